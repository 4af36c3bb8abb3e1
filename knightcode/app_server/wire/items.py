"""Turns and items.

Source: App Server notes, "Turn", "Item".
"""

from functools import singledispatch

from msgspec import UNSET, UnsetType

import knightcode_protocol.objects as wire
from knightcode.agent.tools.changes import FileChange
from knightcode.messages import ImageBlock, InputBlock, TextBlock
from knightcode.threads.items import (
    AgentItem,
    CallItem,
    CompactionItem,
    ExtensionItem,
    Item,
    ReasoningItem,
    Turn,
    UserItem,
)
from knightcode_protocol.wire import present


@singledispatch
def item_to_wire(item: Item) -> wire.Item:
    """An item as clients see it."""
    raise TypeError(f"no wire form for {type(item).__name__}")


@item_to_wire.register
def _(item: UserItem) -> wire.Item:
    return wire.UserMessage(
        id=item.id,
        index=present(item.index),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        text=item.text,
        images=tuple(wire.ImageRef(mime_type=image.mime_type, data=image.data) for image in item.images),
        client_message_id=present(item.client_message_id),
    )


@item_to_wire.register
def _(item: AgentItem) -> wire.Item:
    return wire.AgentMessage(
        id=item.id,
        index=present(item.index),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        text=item.text,
    )


@item_to_wire.register
def _(item: ReasoningItem) -> wire.Item:
    return wire.Reasoning(
        id=item.id,
        index=present(item.index),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        text=item.text,
    )


@item_to_wire.register
def _(item: CallItem) -> wire.Item:
    changes: tuple[wire.FileChange, ...] | UnsetType = UNSET
    if item.file_changes:
        changes = tuple(_change(change) for change in item.file_changes)
    return wire.ToolCall(
        id=item.id,
        index=present(item.index),
        parent_item_id=present(item.parent_id),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        tool=item.tool,
        input=item.input,
        status=item.status,
        output=tuple(_output(block) for block in item.output),
        file_changes=changes,
        source="user" if item.from_user else UNSET,
    )


@item_to_wire.register
def _(item: CompactionItem) -> wire.Item:
    return wire.Compaction(
        id=item.id,
        index=present(item.index),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        summary=item.summary,
        reason=item.reason,
        status=item.status,
        tokens_before=present(item.tokens_before),
        tokens_after=present(item.tokens_after),
        error=present(item.error),
    )


@item_to_wire.register
def _(item: ExtensionItem) -> wire.Item:
    return wire.ExtensionMessage(
        id=item.id,
        index=present(item.index),
        started_at=present(item.started_at_ms),
        completed_at=present(item.completed_at_ms),
        extension=item.extension,
        text=item.text,
    )


def turn_to_wire(turn: Turn) -> wire.Turn:
    """A turn with its items."""
    return wire.Turn(
        id=turn.id,
        thread_id=turn.thread_id,
        status=turn.status,
        started_at=turn.started_at_ms,
        completed_at=present(turn.completed_at_ms),
        error=_error(turn),
        items=tuple(item_to_wire(item) for item in turn.items),
    )


def summary_to_wire(turn: Turn) -> wire.TurnSummary:
    """A turn without its items."""
    return wire.TurnSummary(
        id=turn.id,
        thread_id=turn.thread_id,
        status=turn.status,
        started_at=turn.started_at_ms,
        completed_at=present(turn.completed_at_ms),
        error=_error(turn),
    )


def _error(turn: Turn) -> wire.TurnError | UnsetType:
    return UNSET if turn.error is None else wire.TurnError(message=turn.error.message, kind=turn.error.kind)


def _output(block: InputBlock) -> wire.ToolOutput:
    if isinstance(block, TextBlock):
        return wire.TextOutput(text=block.text)
    assert isinstance(block, ImageBlock)
    return wire.ImageOutput(mime_type=block.mime_type, data=block.data)


def _change(change: FileChange) -> wire.FileChange:
    return wire.FileChange(path=change.path, kind=change.kind, diff=present(change.diff))
