"""What threads tell their subscribers, as domain values. `Publisher` is how they leave this package.

Source: App Server notes, "Notification table".
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, NewType, Protocol

import attrs

from knightcode.gates.approvals import ApprovalMode
from knightcode.messages import ThinkingLevel
from knightcode.models.model import Model
from knightcode.threads.items import AnyItem, Turn

ConnectionId = NewType("ConnectionId", int)
WaitingOn = Literal["approval", "dialog"]


@attrs.frozen
class NotLoaded:
    """Not in memory."""


@attrs.frozen
class Idle:
    """Loaded, nothing admitted."""


@attrs.frozen
class Active:
    """Work is admitted; `waiting_on` says what a person is asked, approvals first."""

    waiting_on: tuple[WaitingOn, ...] = ()


@attrs.frozen
class Broken:
    """Broken; stays visible until a load succeeds."""

    message: str


Status = NotLoaded | Idle | Active | Broken


@attrs.frozen
class ThreadWarning:
    """Something a client should show."""

    message: str
    source: Literal["settings", "extension", "trust", "server"]
    path: str | None = None


@attrs.frozen
class Warned:
    """Something came up in a loaded thread."""

    thread_id: str
    warning: ThreadWarning


@attrs.frozen
class ThreadInfo:
    """A thread as it stands. Times are ISO strings."""

    id: str
    cwd: str
    name: str
    status: Status
    created_at: str
    updated_at: str
    approval_mode: ApprovalMode
    thinking_level: ThinkingLevel
    model: Model | None
    forked_from_id: str | None = None
    session_file: str | None = None
    mode: Literal["desktop", "terminal"] | None = None


@attrs.frozen
class Usage:
    """Cumulative tokens and dollars of a thread; `context_tokens` is None while unknown."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    context_tokens: int | None = None
    context_window: int = 0


@attrs.frozen
class ThreadStarted:
    thread: ThreadInfo


@attrs.frozen
class StatusChanged:
    thread_id: str
    status: Status


@attrs.frozen
class ThreadDeleted:
    thread_id: str


@attrs.frozen
class SettingsChanged:
    thread_id: str
    model: Model | None
    thinking_level: ThinkingLevel
    approval_mode: ApprovalMode


@attrs.frozen
class UsageChanged:
    thread_id: str
    turn_id: str
    usage: Usage


@attrs.frozen
class QueueRow:
    """A queued input as clients see it; `attachments` counts what its text does not show."""

    id: str
    text: str
    attachments: int = 0


@attrs.frozen
class QueueChanged:
    """What waits: steers that are not delivered yet, and queued inputs, oldest first."""

    thread_id: str
    steering: tuple[str, ...] = ()
    follow_up: tuple[QueueRow, ...] = ()


@attrs.frozen
class InputDropped:
    """A queued input that could not start: `code`, `message` and `data` are what a start would have got."""

    thread_id: str
    queue_id: str
    code: str
    message: str
    client_message_id: str | None = None
    data: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class TurnStarted:
    turn: Turn
    request_id: str | None


@attrs.frozen
class TurnCompleted:
    """To subscribers; `ThreadTurnCompleted` says the same to everyone."""

    turn: Turn


@attrs.frozen
class ThreadTurnCompleted:
    turn: Turn


@attrs.frozen
class ItemStarted:
    thread_id: str
    turn_id: str
    item: AnyItem


@attrs.frozen
class ItemCompleted:
    thread_id: str
    turn_id: str
    item: AnyItem


@attrs.frozen
class ItemRemoved:
    thread_id: str
    turn_id: str
    item_id: str


@attrs.define
class TextDelta:
    """More text of an agent message or of reasoning. Not frozen: one is made per token."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    reasoning: bool = False


@attrs.frozen
class OutputDelta:
    """More output of a tool, or all of it when `replace` is set."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    replace: bool = False


@attrs.frozen
class RetryWaiting:
    """A failed reply is tried again after `delay_ms`; `attempt` counts from 1, `message` is the failure."""

    thread_id: str
    turn_id: str
    attempt: int
    max_attempts: int
    delay_ms: int
    message: str


@attrs.frozen
class RetryEnded:
    """The chain of tries is over; `message` says why there was no success."""

    thread_id: str
    turn_id: str
    attempt: int
    success: bool
    message: str | None = None


Notice = (
    ThreadStarted
    | StatusChanged
    | ThreadDeleted
    | SettingsChanged
    | UsageChanged
    | TurnStarted
    | TurnCompleted
    | ThreadTurnCompleted
    | ItemStarted
    | ItemCompleted
    | ItemRemoved
    | TextDelta
    | OutputDelta
    | Warned
    | QueueChanged
    | InputDropped
    | RetryWaiting
    | RetryEnded
)


class Publisher(Protocol):
    """Where notices go. Both calls return at once and never fail: a slow reader is not waited for."""

    def to_all(self, notice: Notice) -> None:
        """To every initialized connection."""

    def to(self, connections: Collection[ConnectionId], notice: Notice) -> None:
        """To these connections."""
