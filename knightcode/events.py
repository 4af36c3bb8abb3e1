"""What happens in an agent session, as values in the order in which it happens.

The same records leave the process in RPC and JSON mode, so the members have their names there. The
app server turns them into notifications.

Source: Session events, "Catalogue", "Messages".
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from knightcode.messages import (
    AssistantMessage,
    InputBlock,
    Message,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
)


class Event(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="type"):
    """Base of every event."""


# --- one reply while it streams: made by ReplyBuilder, in grammatical order ----------------------


class TextStart(Event, frozen=True, kw_only=True, tag="text_start"):
    content_index: int


class TextDelta(Event, frozen=True, kw_only=True, tag="text_delta"):
    content_index: int
    delta: str


class TextEnd(Event, frozen=True, kw_only=True, tag="text_end"):
    content_index: int
    content: str


class ThinkingStart(Event, frozen=True, kw_only=True, tag="thinking_start"):
    content_index: int


class ThinkingDelta(Event, frozen=True, kw_only=True, tag="thinking_delta"):
    content_index: int
    delta: str


class ThinkingEnd(Event, frozen=True, kw_only=True, tag="thinking_end"):
    content_index: int
    content: str


class ToolCallStart(Event, frozen=True, kw_only=True, tag="toolcall_start"):
    content_index: int
    id: str
    tool_name: str


class ToolCallDelta(Event, frozen=True, kw_only=True, tag="toolcall_delta"):
    content_index: int
    delta: str


class ToolCallEnd(Event, frozen=True, kw_only=True, tag="toolcall_end"):
    content_index: int
    tool_call: ToolCallBlock


ReplyEvent = (
    TextStart
    | TextDelta
    | TextEnd
    | ThinkingStart
    | ThinkingDelta
    | ThinkingEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
)


# --- the run ------------------------------------------------------------------------------------


class AgentStart(Event, frozen=True, kw_only=True, tag="agent_start"):
    pass


class AgentEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="agent_end"):
    messages: list[Message]


class TurnStart(Event, frozen=True, kw_only=True, tag="turn_start"):
    pass


class TurnEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="turn_end"):
    message: AssistantMessage
    tool_results: list[ToolResultMessage]


class MessageStart(Event, frozen=True, kw_only=True, tag="message_start"):
    message: Message


class MessageUpdate(Event, frozen=True, kw_only=True, omit_defaults=False, tag="message_update"):
    usage: Usage
    assistant_message_event: ReplyEvent


class MessageEnd(Event, frozen=True, kw_only=True, tag="message_end"):
    message: Message


class PartialResult(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a tool has so far, or its result: content blocks and JSON details."""

    content: list[InputBlock]
    details: Any = None


class ToolExecutionStart(Event, frozen=True, kw_only=True, tag="tool_execution_start"):
    """`parent_tool_call_id` is set for a nested call: one that another call makes."""

    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    parent_tool_call_id: str | None = None


class ToolExecutionUpdate(Event, frozen=True, kw_only=True, tag="tool_execution_update"):
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    partial_result: PartialResult
    parent_tool_call_id: str | None = None


class ToolExecutionEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="tool_execution_end"):
    tool_call_id: str
    tool_name: str
    result: PartialResult
    is_error: bool
    parent_tool_call_id: str | None = None


# --- the session --------------------------------------------------------------------------------

CompactionReason = Literal["manual", "threshold", "overflow"]


class CompactionStart(Event, frozen=True, kw_only=True, tag="compaction_start"):
    reason: CompactionReason


class CompactionResult(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a compaction made; token counts are estimates."""

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    estimated_tokens_after: int
    usage: Usage | None = None
    details: Any = None


class CompactionEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="compaction_end"):
    """`result` is None unless a compaction was written; then `aborted` or `error_message` says why."""

    reason: CompactionReason
    result: CompactionResult | None = None
    aborted: bool = False
    will_retry: bool = False
    error_message: str | UnsetType = UNSET


class AutoRetryStart(Event, frozen=True, kw_only=True, tag="auto_retry_start"):
    """A failed reply is tried again after `delay_ms`; `attempt` counts from 1."""

    attempt: int
    max_attempts: int
    delay_ms: int
    error_message: str


class AutoRetryEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="auto_retry_end"):
    """The one end of a chain of retries; `final_error` is set unless a reply came through."""

    success: bool
    attempt: int
    final_error: str | UnsetType = UNSET


SessionEvent = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
    | CompactionStart
    | CompactionEnd
    | AutoRetryStart
    | AutoRetryEnd
)
