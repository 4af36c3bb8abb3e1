"""How large a context is: what providers reported, and a guess for what nobody counted. Pure.

Source: Compaction, "Counting tokens".
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    ImageBlock,
    InputBlock,
    Message,
    ReplyBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    text_of,
)
from knightcode.messages import BranchSummaryMessage as _BranchSummary
from knightcode.messages import CompactionSummaryMessage as _CompactionSummary
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, Entry
from knightcode.sessions.projection import message_of

IMAGE_CHARS: Final = 4_800
"""What an image counts, whatever its size."""

_CHARS_PER_TOKEN: Final = 4


def message_tokens(message: Message) -> int:
    """A guess at one message's tokens: four characters each, rounded up; 0 for an empty one."""
    return -(-_chars(message) // _CHARS_PER_TOKEN)


def sum_of_estimates(messages: Iterable[Message]) -> int:
    """The guesses for all the messages, whatever any provider reported."""
    return sum(map(message_tokens, messages))


def reports_usage(message: Message) -> bool:
    """Whether the message is a reply whose usage tells how large the context was then."""
    return (
        isinstance(message, AssistantMessage)
        and message.stop_reason not in ("error", "aborted")
        and message.usage.tokens > 0
    )


def list_tokens(messages: Sequence[Message]) -> int:
    """The size of a list of messages: the last reported one, with guesses for what came after it."""
    since = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and reports_usage(message):
            return message.usage.tokens + since
        since += message_tokens(message)
    return since


def context_tokens(path: Sequence[Entry], context: SessionContext) -> int:
    """The size of the context at the end of a branch.

    What a provider reported counts only when the reply came after the last compaction and the last
    edit: before them the context was another one. Else everything is guessed.

    Args:
        path: the branch, root first.
        context: what the branch says at its end.
    """
    since = 0
    for entry in reversed(path):
        if type(entry) is CompactionEntry or type(entry) is ContextEditEntry:
            break
        # An edit comes after what it is for, so nothing that is newer than the last edit has one.
        message = message_of(entry, {})
        if message is None:
            continue
        if isinstance(message, AssistantMessage) and reports_usage(message):
            return message.usage.tokens + since
        since += message_tokens(message)
    system = message_tokens(context.system.message(0))
    return system + sum_of_estimates(one for one in context.messages if not isinstance(one, SystemMessage))


def _chars(message: Message) -> int:
    if isinstance(message, AssistantMessage):
        return sum(map(_reply_chars, message.content))
    if isinstance(message, SystemMessage):
        sections = sum(len(text) for text in message.sections.values() if text is not None)
        tools = len(msgspec.json.encode(message.tools_added).decode()) if message.tools_added else 0
        return len(text_of(message.content, "")) + sections + tools
    if isinstance(message, BashExecutionMessage):
        return len(message.command) + len(message.output)
    if isinstance(message, _BranchSummary | _CompactionSummary):
        return len(message.summary)
    return _input_chars(message.content)


def _input_chars(content: str | list[InputBlock]) -> int:
    if isinstance(content, str):
        return len(content)
    return sum(IMAGE_CHARS if isinstance(block, ImageBlock) else len(block.text) for block in content)


def _reply_chars(block: ReplyBlock) -> int:
    if isinstance(block, TextBlock):
        return len(block.text)
    if isinstance(block, ThinkingBlock):
        return len(block.thinking)
    return len(block.name) + len(compact_json(block.arguments))


def compact_json(value: Any) -> str:
    """A JSON value as text without blanks, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
