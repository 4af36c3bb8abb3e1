"""One agent run: ask the model, stream the reply, run its tools, until nothing is left to do.

The loop is not cancelled by an interrupt: its waits are (see `Interrupt`), so that what has arrived
is stored and every message that began has its end. A reply is stored and its events are sent in one
synchronous step.

Source: agent loop, "The loop", "Abort".
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import attrs
import msgspec
import trio

from knightcode.agent.calls import ToolBatch
from knightcode.agent.hooks import FinishedTurn, Hooks, ProviderResponse
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.request import build_request, system_change
from knightcode.agent.steering import Steering
from knightcode.agent.tools.base import Tool, ToolContext
from knightcode.events import (
    AgentEnd,
    AgentStart,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ReplyEvent,
    SessionEvent,
    TurnEnd,
    TurnStart,
)
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    StoredMessage,
    SystemMessage,
    ThinkingLevel,
    ToolCallBlock,
)
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.sessions.context import SessionContext


class Conversation(Protocol):
    """Where the run's messages go, and where its requests come from. Both are synchronous."""

    def append(self, message: StoredMessage | CustomMessage) -> None:
        """Store a message. Raises when it cannot be written; the run then fails."""

    def context(self) -> SessionContext:
        """What the stored branch says now."""


class Models(Protocol):
    """The way to a model."""

    async def stream(self, request: ModelRequest, reply: ReplyBuilder) -> None:
        """Fill `reply`; never raises for a provider's failure."""


@attrs.frozen
class Setup:
    """What the next request is made with; read anew for each, so that changes apply at once."""

    model: Model
    thinking_level: ThinkingLevel
    tools: Mapping[str, Tool]
    sections: Mapping[str, str]
    exact_prompt: str | None = None
    """Sent instead of the sections, and never stored."""


async def _nothing() -> None:
    await trio.lowlevel.checkpoint()


@attrs.define(eq=False)
class AgentRun:
    """What one turn runs with. `run` may be called again, to go on.

    Attributes:
        setup: called before each request.
        emit: receives every event, at once and in order.
        calls: the nursery of tool calls, see `ToolBatch`.
        steering: what the user says meanwhile; polled when a run begins and after every turn of it.
        between_turns: called when a reply's tools are done and another request will follow.
        retry_after_ms: how long the provider of the last, failed, reply asked to be left alone.
    """

    conversation: Conversation
    models: Models
    setup: Callable[[], Setup]
    hooks: Hooks
    interrupt: Interrupt
    calls: trio.Nursery
    tool_context: Callable[[], ToolContext]
    emit: Callable[[SessionEvent], None]
    now_ms: Callable[[], int]
    session_id: str
    steering: Steering = attrs.field(factory=Steering)
    between_turns: Callable[[], Awaitable[None]] = _nothing

    retry_after_ms: int | None = attrs.field(default=None, init=False)
    _added: list[Message] = attrs.field(factory=list, init=False)
    _call_ids: set[str] = attrs.field(factory=set, init=False)
    _broken_calls: set[str] = attrs.field(factory=set, init=False)

    async def run(self, prompt: Sequence[StoredMessage | CustomMessage] = ()) -> AssistantMessage:
        """Run until the model has nothing left to do; returns the last reply, which may have failed.

        Args:
            prompt: what is said to the model first; nothing when a run goes on, which needs a context
                that does not end in a reply, or steers that wait.
        """
        self._added = []
        self.tell(AgentStart())
        self.tell(TurnStart())
        self._declared_context(self.setup())  # the prompt that a message is read under comes before it
        for message in prompt:
            await self._deliver(message)
        await self._deliver_steers()
        while True:
            reply = await self._ask()
            if reply.stop_reason in ("error", "aborted"):
                self.tell(TurnEnd(message=reply, tool_results=[]))
                break
            batch = self._batch(reply)
            results = await batch.run() if batch.calls else []
            for result in results:
                self._announce(result)  # each was stored when its call ended
            finished = FinishedTurn(reply, tuple(results))
            if self.hooks.turn_end:
                finished = await self.hooks.turn_end.run(finished)
            self.tell(TurnEnd(message=reply, tool_results=results))
            wants_reply = bool(batch.calls) and not batch.terminate
            if finished.end or not (wants_reply or finished.go_on or self.steering):
                break
            await self.between_turns()
            self.tell(TurnStart())
            await self._deliver_steers()
        self.tell(AgentEnd(messages=list(self._added)))
        return reply

    # --- messages ------------------------------------------------------------------------------------

    def can_go_on(self) -> bool:
        """Whether another request makes sense: the model has not had the last word."""
        messages = self.conversation.context().messages
        return bool(messages) and not isinstance(messages[-1], AssistantMessage)

    async def _deliver(self, message: StoredMessage | CustomMessage) -> None:
        """Announce and store a message that is complete: a user's, or an extension's."""
        self._store(await self.hooks.finish_message(message), started=False)

    async def _deliver_steers(self) -> None:
        """Deliver what the user has said meanwhile; an interrupt may still take it away."""
        for steer in self.steering.poll():
            message = await self.hooks.finish_message(steer.message)
            if self.steering.take(steer):
                self._store(message, started=False)

    def _store(self, message: StoredMessage | CustomMessage, *, started: bool) -> None:
        """Store and announce in one step; what cannot be stored is never announced."""
        self.conversation.append(message)
        if not isinstance(message, SystemMessage):  # prompts and declarations are not shown to clients
            self._announce(message, started=started)

    def _announce(self, message: StoredMessage | CustomMessage, *, started: bool = False) -> None:
        self._added.append(message)
        if not started:
            self.tell(MessageStart(message=message))
        self.tell(MessageEnd(message=message))

    # --- the model -----------------------------------------------------------------------------------

    async def _ask(self) -> AssistantMessage:
        setup = self.setup()
        context = self._declared_context(setup)
        reply = ReplyBuilder(
            model=setup.model,
            emit=lambda event: self._grow(reply, event),
            now_ms=self.now_ms,
            on_start=lambda: self.tell(MessageStart(message=reply.message())),
            thinking_level=setup.thinking_level,
        )
        kept = False
        message: AssistantMessage | None = None
        try:
            if not self.interrupt.thrown:
                request = await self._request(setup, context)
                with self.interrupt.stops():
                    await self.models.stream(request, reply)
            reply.abort()  # changes nothing in one that is finished
            self.retry_after_ms = reply.retry_after_ms
            message = self._unique_calls(reply)
            message = await self.hooks.finish_message(message)
            kept = True
            self._store(message, started=reply.started)
        finally:
            # When the thread itself is being cancelled, what has arrived is kept all the same.
            if not kept:
                reply.abort()
                self._store(message or self._unique_calls(reply), started=reply.started)
        return message

    def _grow(self, reply: ReplyBuilder, event: ReplyEvent) -> None:
        self.tell(MessageUpdate(usage=reply.usage, assistant_message_event=event))

    def _declared_context(self, setup: Setup) -> SessionContext:
        """The context, after what it does not yet say about the prompt and the tools has been stored."""
        context = self.conversation.context()
        change = system_change(context, setup.sections, tuple(setup.tools.values()), self.now_ms())
        if change is None:
            return context
        self._store(change, started=False)
        return self.conversation.context()

    async def _request(self, setup: Setup, context: SessionContext) -> ModelRequest:
        messages = context.messages
        if self.hooks.context:
            messages = await self.hooks.context.run(messages)
        inspector = _HookInspector(self.hooks)
        return build_request(
            context,
            messages,
            model=setup.model,
            thinking_level=setup.thinking_level,
            exact_prompt=setup.exact_prompt,
            session_id=self.session_id,
            inspector=inspector if inspector.wanted else None,
        )

    def _unique_calls(self, reply: ReplyBuilder) -> AssistantMessage:
        """Some servers count their call ids from one in every reply; within a turn an id names one item."""
        message = reply.message()
        content = list(message.content)
        for place, block in enumerate(content):
            if not isinstance(block, ToolCallBlock):
                continue
            call_id, copy = block.id or "call", 1
            unique = call_id
            while unique in self._call_ids:
                copy += 1
                unique = f"{call_id}-{copy}"
            self._call_ids.add(unique)
            if reply.is_broken(place):
                self._broken_calls.add(unique)
            if unique != block.id:
                content[place] = ToolCallBlock(
                    id=unique,
                    name=block.name,
                    arguments=block.arguments,
                    thought_signature=block.thought_signature,
                    namespace=block.namespace,
                )
        return message if content == message.content else msgspec.structs.replace(message, content=content)

    def _batch(self, reply: AssistantMessage) -> ToolBatch:
        return ToolBatch(
            calls=[block for block in reply.content if isinstance(block, ToolCallBlock)],
            tools=self.setup().tools.get,
            hooks=self.hooks,
            interrupt=self.interrupt,
            nursery=self.calls,
            context=self.tool_context,
            emit=self.tell,
            store=self.conversation.append,
            broken=self._broken_calls,
            now_ms=self.now_ms,
            cut_off=reply.stop_reason == "length",
        )

    def tell(self, event: SessionEvent) -> None:
        if self.hooks.observers:
            self.hooks.observe(event)
        self.emit(event)


@attrs.frozen
class _HookInspector:
    """Shows a request's body and the answer's head to the hooks."""

    hooks: Hooks

    @property
    def wanted(self) -> bool:
        return bool(self.hooks.before_provider_request or self.hooks.after_provider_response)

    async def before_request(self, body: dict[str, object]) -> dict[str, object]:
        return await self.hooks.before_provider_request.run(body)

    async def after_response(self, status: int, headers: Mapping[str, str]) -> None:
        await self.hooks.after_provider_response.run(ProviderResponse(status, headers))
