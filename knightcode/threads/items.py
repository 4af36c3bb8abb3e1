"""Turns and their items, and how stored messages become items.

The same functions serve a running turn and a page of history, so that what a client saw live is what
it reads back.

Source: App Server notes, "Turn", "Item", "Durable turns and read-back".
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import attrs

from knightcode.agent.tools.changes import FileChange, file_changes
from knightcode.events import CompactionReason
from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    ImageBlock,
    InputBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.models.errors import ErrorKind
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
)
from knightcode.sessions.turns import StoredTurn

EndedStatus = Literal["completed", "interrupted", "failed"]
TurnStatus = Literal["inProgress"] | EndedStatus
CallStatus = Literal["pending", "running", "completed", "failed", "declined"]


@attrs.frozen(kw_only=True)
class Item:
    """What all items have. `index` is the position in the turn; nested calls have a parent instead."""

    id: str
    index: int | None = None
    parent_id: str | None = None
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


@attrs.frozen(kw_only=True)
class UserItem(Item):
    text: str
    images: tuple[ImageBlock, ...] = ()
    client_message_id: str | None = None


@attrs.frozen(kw_only=True)
class AgentItem(Item):
    text: str


@attrs.frozen(kw_only=True)
class ReasoningItem(Item):
    text: str


@attrs.frozen(kw_only=True)
class CallItem(Item):
    tool: str
    input: Any
    status: CallStatus
    output: tuple[InputBlock, ...] = ()
    file_changes: tuple[FileChange, ...] = ()
    from_user: bool = False


@attrs.frozen(kw_only=True)
class CompactionItem(Item):
    summary: str
    reason: CompactionReason = "manual"
    status: Literal["running", "completed", "failed", "cancelled"] = "completed"
    tokens_before: int | None = None
    tokens_after: int | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class ExtensionItem(Item):
    extension: str
    text: str


AnyItem = UserItem | AgentItem | ReasoningItem | CallItem | CompactionItem | ExtensionItem


@attrs.frozen
class TurnError:
    message: str
    kind: ErrorKind


@attrs.frozen
class Turn:
    """One turn. Times are Unix milliseconds; `items` is empty in summaries."""

    id: str
    thread_id: str
    status: TurnStatus
    started_at_ms: int
    completed_at_ms: int | None = None
    error: TurnError | None = None
    items: tuple[AnyItem, ...] = ()


def reply_items(turn_id: str, ordinal: int, message: AssistantMessage) -> list[AnyItem]:
    """The items of one finished reply in content order, without index; its calls are `pending`.

    Empty blocks make no item, except redacted thinking. A failed or aborted reply shows what it
    said, and none of its calls.
    """
    items: list[AnyItem] = []
    texts = thoughts = 0
    ended = None if message.duration_ms is None else message.timestamp + message.duration_ms
    for block in message.content:
        if isinstance(block, TextBlock):
            if block.text:
                items.append(
                    AgentItem(
                        id=f"{turn_id}:{ordinal}:t{texts}",
                        text=block.text,
                        started_at_ms=message.timestamp,
                        completed_at_ms=ended,
                    )
                )
            texts += 1
        elif isinstance(block, ThinkingBlock):
            if block.thinking or block.redacted:
                items.append(
                    ReasoningItem(
                        id=f"{turn_id}:{ordinal}:r{thoughts}",
                        text="" if block.redacted else block.thinking,
                        started_at_ms=message.timestamp,
                        completed_at_ms=ended,
                    )
                )
            thoughts += 1
        elif isinstance(block, ToolCallBlock) and message.stop_reason not in ("error", "aborted"):
            items.append(CallItem(id=block.id, tool=block.name, input=block.arguments, status="pending"))
    return items


def finished_call(item: CallItem, result: ToolResultMessage, cwd: str) -> CallItem:
    """The item of a call once its result is known."""
    details = result.details if isinstance(result.details, dict) else {}
    status: CallStatus = "completed"
    if result.is_error:
        status = "declined" if details.get("blocked") is True else "failed"
    return attrs.evolve(
        item,
        status=status,
        output=tuple(result.content),
        file_changes=tuple(file_changes(item.tool, item.input, result.details, result.is_error, cwd)),
        started_at_ms=None if result.duration_ms is None else result.timestamp - result.duration_ms,
        completed_at_ms=result.timestamp,
    )


def input_item(turn_id: str, ordinal: int, entry: Entry) -> AnyItem | None:
    """The item of an entry that is not a reply: user, extension, compaction, typed shell command."""
    item_id, at = f"{turn_id}:{ordinal}", parse_iso(entry.timestamp)
    if isinstance(entry, MessageEntry):
        message = entry.message
        if isinstance(message, UserMessage):
            images = () if isinstance(message.content, str) else message.content
            return UserItem(
                id=item_id,
                text=text_of(message.content),
                images=tuple(block for block in images if isinstance(block, ImageBlock)),
                completed_at_ms=at,
            )
        if isinstance(message, BashExecutionMessage):
            return CallItem(
                id=item_id,
                tool="bash",
                input={"command": message.command},
                status="failed" if message.cancelled or message.exit_code else "completed",
                output=(TextBlock(text=message.output),),
                from_user=True,
                completed_at_ms=at,
            )
        return None
    if isinstance(entry, CustomMessageEntry):
        if not entry.display:
            return None
        return ExtensionItem(
            id=item_id, extension=entry.custom_type, text=text_of(entry.content), completed_at_ms=at
        )
    if isinstance(entry, CompactionEntry):
        return CompactionItem(
            id=compaction_id(item_id),
            summary=entry.summary,
            reason=_reason_of(entry),
            tokens_before=entry.tokens_before,
            completed_at_ms=at,
        )
    if isinstance(entry, BranchSummaryEntry):
        return ExtensionItem(id=item_id, extension="branch_summary", text=entry.summary, completed_at_ms=at)
    return None


def _reason_of(entry: CompactionEntry) -> CompactionReason:
    """Why a compaction was made; files of other programs do not say it."""
    said = entry.details.get("reason") if isinstance(entry.details, dict) else None
    return next((known for known in get_args(CompactionReason) if known == said), "manual")


def compaction_id(entry_id: str) -> str:
    """The item id of a compaction at an entry's place.

    One that fails leaves no entry, and whatever comes next takes its place in the turn: the two must
    not share an id.
    """
    return f"{entry_id}:c"


def stored_items(turn: StoredTurn, cwd: str) -> tuple[AnyItem, ...]:
    """All items of a stored turn, numbered. A call without a result reads as failed, without output."""
    results: dict[str, ToolResultMessage] = {}
    for _, entry in turn.entries:
        if isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResultMessage):
            results.setdefault(entry.message.tool_call_id, entry.message)
    return number(_unnumbered(turn, cwd, results))


def number(items: Iterable[AnyItem]) -> tuple[AnyItem, ...]:
    """Items with their positions as index."""
    return tuple(attrs.evolve(item, index=index) for index, item in enumerate(items))


def _unnumbered(turn: StoredTurn, cwd: str, results: Mapping[str, ToolResultMessage]) -> Iterable[AnyItem]:
    for ordinal, entry in turn.entries:
        if ordinal is None:
            continue
        if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            for item in reply_items(turn.id, ordinal, entry.message):
                if isinstance(item, CallItem):
                    result = results.get(item.id)
                    yield (
                        attrs.evolve(item, status="failed")
                        if result is None
                        else finished_call(item, result, cwd)
                    )
                else:
                    yield item
        else:
            item_or_none = input_item(turn.id, ordinal, entry)
            if item_or_none is not None:
                yield item_or_none


def _known_kind(kind: str) -> ErrorKind:
    return next((known for known in get_args(ErrorKind) if known == kind), "other")


def stored_turn(turn: StoredTurn, thread_id: str, cwd: str) -> Turn:
    """A stored turn with its items."""
    return Turn(
        id=turn.id,
        thread_id=thread_id,
        status=turn.status,
        started_at_ms=turn.started_at_ms,
        completed_at_ms=turn.completed_at_ms,
        error=None if turn.error is None else TurnError(turn.error.message, _known_kind(turn.error.kind)),
        items=stored_items(turn, cwd),
    )
