"""From single entries to the messages that they are in a context. Pure.

Source: Session files, "Rebuilding context".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from knightcode.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CustomMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    ContextEditEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    TurnEndEntry,
    TurnStartEntry,
)

_MARKERS = frozenset({TurnStartEntry, TurnEndEntry})
"""Entries that stand in every turn and are never a message."""


def project(path: Iterable[Entry], edits: Mapping[str, ContextEditEntry]) -> list[Message]:
    """The messages that entries are, in their order.

    Args:
        edits: the edit that holds for each entry that has one, under the entry's id.
    """
    messages: list[Message] = []
    for entry in path:
        if type(entry) is MessageEntry and entry.id not in edits:
            messages.append(entry.message)  # nearly all of them, so without a call
        elif type(entry) in _MARKERS:
            continue
        elif (message := message_of(entry, edits)) is not None:
            messages.append(message)
    return messages


def message_of(entry: Entry, edits: Mapping[str, ContextEditEntry]) -> Message | None:
    """The message that an entry is; None for one that is none, or that an edit hides."""
    message: Message
    if isinstance(entry, MessageEntry):
        message = entry.message
    elif isinstance(entry, CustomMessageEntry):
        message = CustomMessage(
            timestamp=milliseconds(entry),
            custom_type=entry.custom_type,
            content=entry.content,
            display=entry.display,
            details=entry.details,
        )
    elif isinstance(entry, BranchSummaryEntry) and entry.summary:
        message = BranchSummaryMessage(
            timestamp=milliseconds(entry), summary=entry.summary, from_id=entry.from_id
        )
    else:
        return None
    return _edited(message, edits[entry.id].replacement) if entry.id in edits else message


def milliseconds(entry: Entry) -> int:
    """The entry's time, 0 for none that can be read."""
    return parse_iso(entry.timestamp) or 0


def _edited(message: Message, replacement: str | list[Any] | None) -> Message | None:
    """A message with other content; None when it is hidden. Only what an edit may target changes."""
    if not isinstance(message, UserMessage | AssistantMessage | ToolResultMessage | CustomMessage):
        return message
    if replacement is None:
        return None
    if isinstance(replacement, str):
        if isinstance(message, AssistantMessage | ToolResultMessage):
            return replace(message, content=[TextBlock(text=replacement)])
        return replace(message, content=replacement)
    fitting = (
        TextBlock | ThinkingBlock | ToolCallBlock
        if isinstance(message, AssistantMessage)
        else TextBlock | ImageBlock
    )
    return replace(message, content=[block for block in replacement if isinstance(block, fitting)])
