"""Notifications: their params, named after them, and who gets which.

Source: app server notes, "Notification table".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from knightcode_protocol.envelope import encode
from knightcode_protocol.errors import ErrorCode
from knightcode_protocol.handshake import InitializedParams
from knightcode_protocol.objects import (
    ApprovalMode,
    Count,
    Item,
    QueuedInput,
    Status,
    ThinkingLevel,
    Thread,
    ThreadModel,
    TokenUsage,
    Turn,
    TurnSummary,
)
from knightcode_protocol.objects import Warning as WarningObject
from knightcode_protocol.wire import Wire

Audience = Literal["all", "subs", "one"]
"""Every initialized connection, the thread's subscribers, or the one connection concerned."""

# --- threads ------------------------------------------------------------------------------------


class ThreadStarted(Wire, frozen=True, kw_only=True):
    """`thread/started`: a new thread exists."""

    thread: Thread


class ThreadStatusChanged(Wire, frozen=True, kw_only=True):
    """`thread/status/changed`."""

    thread_id: str
    status: Status


class ThreadDeleted(Wire, frozen=True, kw_only=True):
    """`thread/deleted`: nothing of the thread is left."""

    thread_id: str


class ThreadTurnCompleted(Wire, frozen=True, kw_only=True):
    """`thread/turn/completed`: a turn's outcome, for listings."""

    turn: TurnSummary


class ThreadSettingsUpdated(Wire, frozen=True, kw_only=True):
    """`thread/settings/updated`: the settings now in effect."""

    thread_id: str
    thinking_level: ThinkingLevel
    approval_mode: ApprovalMode
    model: ThreadModel | UnsetType = UNSET


class TokenUsageUpdated(Wire, frozen=True, kw_only=True):
    """`thread/tokenUsage/updated`: after every finalized reply."""

    thread_id: str
    turn_id: str
    usage: TokenUsage


# --- turns and items ----------------------------------------------------------------------------


class TurnStarted(Wire, frozen=True, kw_only=True):
    """`turn/started`: `turn` has no items yet; `requestId` is the token of the request that began it."""

    thread_id: str
    turn: Turn
    request_id: str | UnsetType = UNSET


class TurnCompleted(Wire, frozen=True, kw_only=True):
    """`turn/completed`: the last word on a turn's items and status."""

    thread_id: str
    turn: TurnSummary


class TurnRetry(Wire, frozen=True, kw_only=True):
    """`turn/retry`: the turn waits before it asks the model again, or no longer does.

    Attributes:
        attempt: the try that the wait precedes, from 1.
        max_attempts, delay_ms: of a wait; absent at the end.
        success: at the end: whether a try gave a reply; absent while waiting.
        message: the failure that is waited for, or that ended the tries.
    """

    thread_id: str
    turn_id: str
    state: Literal["waiting", "ended"]
    attempt: Annotated[int, Meta(ge=1)]
    max_attempts: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    delay_ms: Count | UnsetType = UNSET
    success: bool | UnsetType = UNSET
    message: str | UnsetType = UNSET


class TurnQueueUpdated(Wire, frozen=True, kw_only=True):
    """`turn/queue/updated`: everything that waits now, oldest first, in place of what was sent before."""

    thread_id: str
    steering: tuple[str, ...]
    follow_up: tuple[QueuedInput, ...]


class ItemStarted(Wire, frozen=True, kw_only=True):
    """`item/started`: provisional content and times."""

    thread_id: str
    turn_id: str
    item: Item


class ItemCompleted(Wire, frozen=True, kw_only=True):
    """`item/completed`: replaces everything that was sent of the item."""

    thread_id: str
    turn_id: str
    item: Item


class ItemRemoved(Wire, frozen=True, kw_only=True):
    """`item/removed`: a started item that will not be completed."""

    thread_id: str
    turn_id: str
    item_id: str


class AgentMessageDelta(Wire, frozen=True, kw_only=True):
    """`item/agentMessage/delta`: text to append."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ReasoningDelta(Wire, frozen=True, kw_only=True):
    """`item/reasoning/delta`: text to append."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ToolCallOutputDelta(Wire, frozen=True, kw_only=True):
    """`item/toolCall/outputDelta`: output to append, or to put in place of the old when `replace` is true."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    replace: bool = False


# --- the rest -----------------------------------------------------------------------------------


class ServerRequestCancelled(Wire, frozen=True, kw_only=True):
    """`serverRequest/cancelled`: a request of the server, named by its JSON id, needs no answer any more."""

    thread_id: str
    request_id: str


class WarningNotification(WarningObject, frozen=True, kw_only=True):
    """`warning`: a warning of a loaded thread."""

    thread_id: str


class ErrorNotification(Wire, frozen=True, kw_only=True):
    """`error`: something failed that no request is waiting for."""

    code: ErrorCode
    message: str
    thread_id: str | UnsetType = UNSET
    turn_id: str | UnsetType = UNSET
    queue_id: str | UnsetType = UNSET
    client_message_id: str | UnsetType = UNSET
    data: Any = UNSET


# --- the tables ---------------------------------------------------------------------------------


class ServerNotification:
    """One row: a notification's method, the type of its params, and who gets it."""

    __slots__ = ("_head", "audience", "name", "params")

    def __init__(self, name: str, params: type[Wire], audience: Audience) -> None:
        self.name = name
        self.params = params
        self.audience: Audience = audience
        self._head = b'{"method":%b,"params":' % encode(name)

    def __repr__(self) -> str:
        return f"ServerNotification({self.name!r})"

    def line(self, params: Wire) -> bytes:
        """The notification as one line, encoded once whatever the number of receivers."""
        return b"%b%b}\n" % (self._head, encode(params))


_ROWS = (
    ServerNotification("thread/started", ThreadStarted, "all"),
    ServerNotification("thread/status/changed", ThreadStatusChanged, "all"),
    ServerNotification("thread/deleted", ThreadDeleted, "all"),
    ServerNotification("thread/turn/completed", ThreadTurnCompleted, "all"),
    ServerNotification("thread/settings/updated", ThreadSettingsUpdated, "subs"),
    ServerNotification("thread/tokenUsage/updated", TokenUsageUpdated, "subs"),
    ServerNotification("turn/started", TurnStarted, "subs"),
    ServerNotification("turn/completed", TurnCompleted, "subs"),
    ServerNotification("turn/retry", TurnRetry, "subs"),
    ServerNotification("turn/queue/updated", TurnQueueUpdated, "subs"),
    ServerNotification("item/started", ItemStarted, "subs"),
    ServerNotification("item/completed", ItemCompleted, "subs"),
    ServerNotification("item/removed", ItemRemoved, "subs"),
    ServerNotification("item/agentMessage/delta", AgentMessageDelta, "subs"),
    ServerNotification("item/reasoning/delta", ReasoningDelta, "subs"),
    ServerNotification("item/toolCall/outputDelta", ToolCallOutputDelta, "subs"),
    ServerNotification("serverRequest/cancelled", ServerRequestCancelled, "one"),
    ServerNotification("warning", WarningNotification, "subs"),
    ServerNotification("error", ErrorNotification, "one"),
)

NOTIFICATIONS: Mapping[str, ServerNotification] = MappingProxyType({row.name: row for row in _ROWS})
NOTIFICATION_OF: Mapping[type[Wire], ServerNotification] = MappingProxyType(
    {row.params: row for row in _ROWS}
)
"""The row for the params' type: a sender needs no method names."""

CLIENT_NOTIFICATIONS: Mapping[str, type[Wire]] = MappingProxyType({"initialized": InitializedParams})
