"""What happens in an agent session, as values in the order in which it happens.

The same records leave the process in RPC and JSON mode, so the members have their names there. The
app server turns them into notifications.

Source: Session events, "Catalogue", "Messages".
"""

from typing import Any

from msgspec import Struct

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
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]


class ToolExecutionUpdate(Event, frozen=True, kw_only=True, tag="tool_execution_update"):
    tool_call_id: str
    tool_name: str
    args: dict[str, Any]
    partial_result: PartialResult


class ToolExecutionEnd(Event, frozen=True, kw_only=True, omit_defaults=False, tag="tool_execution_end"):
    tool_call_id: str
    tool_name: str
    result: PartialResult
    is_error: bool


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
)
