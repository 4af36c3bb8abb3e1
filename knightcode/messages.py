"""The words of a conversation: messages, content blocks and usage.

These values are what session files hold, what models are asked with and what they answer. They are
msgspec structs, since the same value is stored, sent and read back without a conversion. Unknown
members of a stored message are ignored on reading; the file keeps them, lines are never rewritten.

Source: Session files, "Messages".
"""

from typing import Any, Literal

from msgspec import Struct, field

StopReason = Literal["stop", "length", "toolUse", "error", "aborted", "deferred", "pending"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]


def _always(make: type) -> Any:
    """A default for reading that is written all the same: `omit_defaults` leaves factories alone."""
    return field(default_factory=lambda: make())  # noqa: PLW0108 -- `list` itself would be omitted


class Record(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every value that is stored in a session file.

    Values cannot form circles, so the collector need not visit them: loading is a third faster.
    """


# --- content blocks ---------------------------------------------------------------------------


class TextBlock(Record, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Plain text; `text_signature` is opaque and goes back only to the model that made it."""

    text: str
    text_signature: str | None = None


class ImageBlock(Record, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image, base64."""

    data: str
    mime_type: str


class ThinkingBlock(Record, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    """A model's reasoning; redacted blocks may have no text, only a signature."""

    thinking: str
    thinking_signature: str | None = None
    redacted: bool = False


class ToolCallBlock(Record, frozen=True, kw_only=True, tag_field="type", tag="toolCall"):
    """A model's wish to run a tool."""

    id: str
    name: str
    arguments: dict[str, Any]
    thought_signature: str | None = None
    namespace: str | None = None


InputBlock = TextBlock | ImageBlock
ReplyBlock = TextBlock | ThinkingBlock | ToolCallBlock


# --- usage ------------------------------------------------------------------------------------


class Cost(Record, frozen=True, kw_only=True, omit_defaults=False):
    """US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0


class Usage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens of one reply. `input` leaves out what the cache served."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = Cost()

    @property
    def tokens(self) -> int:
        """What a provider reported for a request and its reply, in all; 0 when it reported nothing."""
        return self.total_tokens or self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: "Usage") -> "Usage":
        """Tokens and dollars of both."""
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total_tokens=self.total_tokens + other.total_tokens,
            cost=Cost(
                input=self.cost.input + other.cost.input,
                output=self.cost.output + other.cost.output,
                cache_read=self.cost.cache_read + other.cost.cache_read,
                cache_write=self.cost.cache_write + other.cost.cache_write,
                total=self.cost.total + other.cost.total,
            ),
        )


# --- messages ---------------------------------------------------------------------------------


class ToolDeclaration(Record, frozen=True, kw_only=True):
    """A tool as a system message declares it to the model."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class ToolName(Record, frozen=True, kw_only=True):
    """A tool that a later system message takes away."""

    name: str


class SystemMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="system"):
    """Prompt and tools, or a change of them: sections are patched by name, None removes one."""

    timestamp: int
    content: str | list[TextBlock] = ""
    sections: dict[str, str | None] = {}
    tools_added: list[ToolDeclaration] = []
    tools_removed: list[ToolName] = []
    replace: bool = False


class UserMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="user"):
    """What the user said; live prompts hold a text block first, then images."""

    timestamp: int
    content: str | list[InputBlock] = _always(list)


class AssistantMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    """A model's reply, complete; `timestamp` is when the request began."""

    timestamp: int
    content: list[ReplyBlock] = _always(list)
    api: str = _always(str)
    provider: str = _always(str)
    model: str = _always(str)
    usage: Usage = _always(Usage)
    stop_reason: StopReason = field(default_factory=lambda: "stop")
    error_message: str | None = None
    raw_stop_reason: str | None = None
    response_id: str | None = None
    response_model: str | None = None
    thinking_level: ThinkingLevel | None = None
    duration_ms: int | None = None


class ToolResultMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="toolResult"):
    """The outcome of one tool call; `duration_ms` tells when the call began."""

    timestamp: int
    tool_call_id: str
    tool_name: str
    content: list[InputBlock] = _always(list)
    is_error: bool = _always(bool)
    details: Any = None
    usage: Usage | None = None
    duration_ms: int | None = None


class BashExecutionMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="bashExecution"):
    """A shell command that the user ran directly."""

    timestamp: int
    command: str
    output: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False


class CustomMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="custom"):
    """An extension's text; derived from a `custom_message` entry, never stored as a message."""

    timestamp: int
    custom_type: str
    content: str | list[InputBlock] = []
    display: bool = True
    details: Any = None


class CompactionSummaryMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="compactionSummary"):
    """Stands for the history that a compaction replaced; derived, never stored."""

    timestamp: int
    summary: str
    tokens_before: int = 0


class BranchSummaryMessage(Record, frozen=True, kw_only=True, tag_field="role", tag="branchSummary"):
    """Stands for a branch that was left; derived, never stored."""

    timestamp: int
    summary: str
    from_id: str | None = None


StoredMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage | BashExecutionMessage
Message = StoredMessage | CustomMessage | CompactionSummaryMessage | BranchSummaryMessage
ModelMessage = UserMessage | AssistantMessage | ToolResultMessage
"""What an adapter is given: everything else has been turned into one of these."""


def text_of(
    content: str | list[InputBlock] | list[ReplyBlock] | list[TextBlock], separator: str = "\n"
) -> str:
    """The text blocks of a content, joined."""
    if isinstance(content, str):
        return content
    return separator.join(block.text for block in content if isinstance(block, TextBlock))
