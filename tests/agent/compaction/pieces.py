"""Branches by size: messages whose estimates are whole numbers of tokens, and what is made of them."""

from typing import Any

from knightcode.agent.compaction import CompactionSettings, Decision, Preparation, decide, prepare
from knightcode.agent.compaction.files import FileOps
from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Message,
    ReplyBlock,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from knightcode.models.model import Model
from knightcode.sessions.context import build_context
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, Entry
from tests.sessions.samples import START_MS

MODEL = Model(
    provider="p", id="m", name="M", api="a", base_url="", context_window=1_000, max_tokens=100, reasoning=True
)
SMALL = CompactionSettings(reserve_tokens=100, keep_recent_tokens=50)


def sized(tokens: int, mark: str = "x") -> str:
    """A text of that many tokens."""
    return mark * (4 * tokens)


def user(tokens: int, mark: str = "u") -> UserMessage:
    return UserMessage(timestamp=START_MS, content=[TextBlock(text=sized(tokens, mark))])


def bash(tokens: int, *, excluded: bool = False) -> BashExecutionMessage:
    return BashExecutionMessage(
        timestamp=START_MS, command="", output=sized(tokens), exclude_from_context=excluded
    )


def replied(
    tokens: int = 0,
    *calls: str,
    stop: StopReason = "stop",
    usage: int = 0,
    output: int = 0,
    error: str | None = None,
    at_ms: int = START_MS,
    model: Model = MODEL,
) -> AssistantMessage:
    """A reply of the model. A call adds the tokens of its name, `ls`, and of its empty arguments: one.

    Args:
        usage: input tokens that the provider reported.
    """
    said: list[ReplyBlock] = [TextBlock(text=sized(tokens, "a"))] if tokens else []
    made = [ToolCallBlock(id=call, name="ls", arguments={}) for call in calls]
    return AssistantMessage(
        timestamp=at_ms,
        content=[*said, *made],
        api=model.api,
        provider=model.provider,
        model=model.id,
        usage=Usage(input=usage, output=output),
        stop_reason=stop,
        error_message=error,
    )


def result(call: str, tokens: int) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=START_MS, tool_call_id=call, tool_name="ls", content=[TextBlock(text=sized(tokens, "r"))]
    )


def hide(entry_id: str) -> ContextEditEntry:
    return ContextEditEntry(target_id=entry_id, replacement=None)


def compacted(first_kept: str | None, summary: str = "S", **members: Any) -> CompactionEntry:
    return CompactionEntry(summary=summary, first_kept_entry_id=first_kept, **members)


def prepared(path: list[Entry], settings: CompactionSettings = SMALL) -> Preparation | None:
    return prepare(path, build_context(path), settings)


def decided(
    path: list[Entry],
    *,
    model: Model = MODEL,
    settings: CompactionSettings = SMALL,
    before_prompt: bool = False,
) -> Decision:
    return decide(path, build_context(path), model, settings, before_prompt=before_prompt)


def preparation(
    *,
    history: tuple[Message, ...] = (),
    prefix: tuple[Message, ...] = (),
    previous: str | None = None,
    files: FileOps = FileOps(),  # noqa: B008 -- frozen
    settings: CompactionSettings = SMALL,
) -> Preparation:
    """What `prepare` would make of these messages."""
    return Preparation(
        first_kept_entry_id="e1",
        messages_to_summarize=history,
        turn_prefix_messages=prefix,
        is_split_turn=bool(prefix),
        tokens_before=900,
        previous_summary=previous,
        file_ops=files,
        settings=settings,
    )
