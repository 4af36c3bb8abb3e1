"""The points at which something else may take part in a run, and the one runner that calls them.

Gates, plan mode and extensions register here and nowhere else. Handlers of a point run in the order
of their registration, each seeing what the one before it left; those registered `last` run after
all others. A handler that raises is reported and skipped, except at `tool_call`: there it blocks.

Source: agent loop, "Hooks around a run".
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from knightcode.agent.tools.base import Tool, ToolResult
from knightcode.events import SessionEvent
from knightcode.failures import first_leaf
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    ImageBlock,
    Message,
    StoredMessage,
    ToolResultMessage,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
M = TypeVar("M", bound=StoredMessage | CustomMessage)


@attrs.frozen
class Input:
    """What a user sent, before anything was made of it; `steering` when it is for a turn that runs."""

    text: str
    images: tuple[ImageBlock, ...] = ()
    steering: bool = False


@attrs.frozen
class Handled:
    """An `input` handler consumed the input: no turn begins."""


@attrs.frozen
class Prompt:
    """What a run starts with: extra messages, and the prompt's sections."""

    sections: Mapping[str, str]
    messages: tuple[CustomMessage, ...] = ()
    exact_prompt: str | None = None  # sent instead of the sections for this run, never stored


@attrs.frozen
class PendingCall:
    """A tool call that is about to run, with validated arguments; `parent_id` is the call that makes it."""

    call_id: str
    tool: Tool
    arguments: Mapping[str, Any]
    parent_id: str | None = None


@attrs.frozen
class Blocked:
    """The call must not run; `reason` is what the model reads."""

    reason: str
    terminate: bool = False


@attrs.frozen
class FinishedCall:
    """A call that ran, with its result."""

    call: PendingCall
    result: ToolResult


@attrs.frozen
class FinishedTurn:
    """One reply and the results of its calls; `end` and `go_on` are what handlers asked for."""

    message: AssistantMessage
    results: tuple[ToolResultMessage, ...]
    end: bool = False
    go_on: bool = False


@attrs.frozen
class ProviderResponse:
    """Status and headers of a provider's answer, before its body is read."""

    status: int
    headers: Mapping[str, str]


@attrs.frozen
class Settled:
    """A turn has ended, and clients know it."""

    turn_id: str
    status: str  # completed, interrupted or failed


@attrs.frozen
class SessionShutdown:
    """The session's runtime ends; what a handler holds is to be let go."""

    reason: str  # quit


Handler = Callable[[T], Awaitable[T | None]]


@attrs.define(eq=False)
class Point(Generic[T]):
    """One hook point: a value goes through all handlers; None from a handler leaves it as it is."""

    name: str
    _handlers: list[Handler[T]] = attrs.field(factory=list, init=False)
    _last: list[Handler[T]] = attrs.field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._handlers or self._last)

    def add(self, handler: Handler[T], *, last: bool = False) -> Callable[[], None]:
        """Register a handler; the function returned takes it out again."""
        place = self._last if last else self._handlers
        place.append(handler)
        return lambda: place.remove(handler)

    def handlers(self) -> tuple[Handler[T], ...]:
        """In the order in which they run."""
        return (*self._handlers, *self._last)

    async def run(self, value: T) -> T:
        """Pass `value` through the handlers."""
        for handler in self.handlers():
            try:
                changed = await handler(value)
            except* Exception as group:
                log.error("hook failed", extra={"hook": self.name}, exc_info=first_leaf(group))
                changed = None
            if changed is not None:
                value = changed
        return value


@attrs.define(eq=False)
class Hooks:
    """All points of one thread."""

    input: Point[Input | Handled] = attrs.field(factory=lambda: Point("input"), init=False)
    before_agent_start: Point[Prompt] = attrs.field(factory=lambda: Point("before_agent_start"), init=False)
    context: Point[tuple[Message, ...]] = attrs.field(factory=lambda: Point("context"), init=False)
    before_provider_request: Point[dict[str, Any]] = attrs.field(
        factory=lambda: Point("before_provider_request"), init=False
    )
    after_provider_response: Point[ProviderResponse] = attrs.field(
        factory=lambda: Point("after_provider_response"), init=False
    )
    tool_call: Point[PendingCall | Blocked] = attrs.field(factory=lambda: Point("tool_call"), init=False)
    tool_result: Point[FinishedCall] = attrs.field(factory=lambda: Point("tool_result"), init=False)
    message_end: Point[StoredMessage | CustomMessage] = attrs.field(
        factory=lambda: Point("message_end"), init=False
    )
    turn_end: Point[FinishedTurn] = attrs.field(factory=lambda: Point("turn_end"), init=False)
    agent_before_settle: Point[bool] = attrs.field(factory=lambda: Point("agent_before_settle"), init=False)
    agent_settled: Point[Settled] = attrs.field(factory=lambda: Point("agent_settled"), init=False)
    session_shutdown: Point[SessionShutdown] = attrs.field(
        factory=lambda: Point("session_shutdown"), init=False
    )
    observers: list[Callable[[SessionEvent], None]] = attrs.field(factory=list, init=False)

    def observe(self, event: SessionEvent) -> None:
        """Show an event to the observers, before any listener sees it. They return at once."""
        for observer in self.observers:
            try:
                observer(event)
            except Exception:
                log.exception("observer failed", extra={"event": type(event).__name__})

    async def take_input(self, given: Input) -> Input | Handled:
        """Run `input`; the first handler that consumes the input is the last to see it."""
        value: Input | Handled = given
        for handler in self.input.handlers():
            if isinstance(value, Handled):
                break
            try:
                changed = await handler(value)
            except* Exception as group:
                log.error("hook failed", extra={"hook": "input"}, exc_info=first_leaf(group))
                changed = None
            value = value if changed is None else changed
        return value

    async def judge(self, call: PendingCall) -> PendingCall | Blocked:
        """Run `tool_call`: the first handler that blocks, or fails, decides and nobody is asked after it."""
        value: PendingCall | Blocked = call
        for handler in self.tool_call.handlers():
            if isinstance(value, Blocked):
                break
            try:
                changed = await handler(value)
            except* Exception as group:
                failure = first_leaf(group)
                log.error("hook failed", extra={"hook": "tool_call"}, exc_info=failure)
                changed = Blocked(str(failure) or "A check before this tool failed, so it did not run")
            value = value if changed is None else changed
        return value

    async def finish_message(self, message: M) -> M:
        """Run `message_end`: a replacement of another role is refused."""
        if not self.message_end:
            return message
        changed = await self.message_end.run(message)
        return changed if isinstance(changed, type(message)) else message
