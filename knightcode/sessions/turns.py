"""A branch cut into turns. Pure: what is read back later equals what was shown while it ran.

Source: App server, "Durable turns and read-back", "Item ids".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import attrs

from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    TurnEndEntry,
    TurnError,
    TurnStartEntry,
    TurnStatus,
)

_ITEM_MESSAGES = frozenset({UserMessage, AssistantMessage, BashExecutionMessage, CustomMessage})
_ITEM_ENTRIES = frozenset({CustomMessageEntry, CompactionEntry, BranchSummaryEntry})


class TurnEntry(NamedTuple):
    """An entry of a turn. `ordinal` counts the turn's item entries from 0; others have None."""

    ordinal: int | None
    entry: Entry


@attrs.frozen
class StoredTurn:
    """One turn as the entries tell it.

    Attributes:
        id: of the start marker, or of the entry that stands for it where there are no markers.
        status: `interrupted` also while the turn still runs, which entries cannot know.
        completed_at_ms: None for a turn that was never ended.
        error: of a failed turn.
        entries: all but the markers, in the order of the branch: item entries with their ordinals,
            tool results, system messages, settings and data without.
    """

    id: str
    status: TurnStatus
    started_at_ms: int
    completed_at_ms: int | None
    error: TurnError | None
    entries: tuple[TurnEntry, ...]


def _other(_: str) -> str:
    return "other"


def stored_turns(
    branch: Iterable[Entry], *, kind_of: Callable[[str], str] = _other, following: Entry | None = None
) -> list[StoredTurn]:
    """The turns of a branch, oldest first.

    A turn goes from its start marker to the end marker that names it, or to the next start. Outside
    of these every user message begins a turn, as in files without markers. All that remains belongs to
    the turn before it, or in front of the first turn. Item entries without any turn are one turn.

    Args:
        branch: entries from the root to the leaf. A part of it gives the same turns as the whole
            does if it begins where a turn begins and ends where another one does; see `turn_starts`.
        kind_of: the error kind of a provider's error text, for failed turns without markers.
        following: the entry with which the next turn begins, of a part that ends before the leaf.
    """
    drafts: list[_Draft] = []
    front: list[Entry] = []
    running: _Draft | None = None
    for entry in branch:
        if isinstance(entry, TurnStartEntry):
            running = _Draft(entry, marked=True)
            drafts.append(running)
        elif isinstance(entry, TurnEndEntry):
            if running is not None and running.first.id == entry.turn_id:
                running.end = entry
                running = None
        elif running is None and _is_user(entry):
            drafts.append(_Draft(entry, marked=False, entries=[entry]))
        else:
            (drafts[-1].entries if drafts else front).append(entry)
    if not drafts:
        return _synthetic(front)
    drafts[0].entries[:0] = front
    after = None if following is None else isinstance(following, TurnStartEntry)
    followers = [*(draft.marked for draft in drafts[1:]), after]
    return [
        draft.marked_turn() if draft.marked else draft.unmarked_turn(kind_of, follower_is_marked=follower)
        for draft, follower in zip(drafts, followers, strict=True)
    ]


def turn_starts(branch: Sequence[Entry], end: int | None = None) -> Iterator[int]:
    """Where the turns of `branch[:end]` begin, newest first, as positions in the branch.

    A caller that stops early pays for the turns that it saw, and not for the branch: it is read
    backwards, a start marker at a time. Without markers nothing is certain before its root.
    There is no position for the one turn of a branch in which none ever began.
    """
    said: list[int] = []  # user messages behind the next marker, newest first
    ends: dict[str, int] = {}  # first end of each turn behind the next marker
    for at in range((len(branch) if end is None else end) - 1, -1, -1):
        entry = branch[at]
        if type(entry) is MessageEntry:  # not `isinstance`, which is slower for structs: this may go far back
            if type(entry.message) is UserMessage:
                said.append(at)
        elif type(entry) is TurnEndEntry:
            ends[entry.turn_id] = at
        elif type(entry) is TurnStartEntry:
            ended_at = ends.get(entry.id)
            if ended_at is not None:
                yield from (place for place in said if place > ended_at)
            yield at
            said, ends = [], {}
    yield from said


def is_item_entry(entry: Entry) -> bool:
    """Whether an entry counts in a turn's ordinals, shown or not."""
    if isinstance(entry, MessageEntry):
        return type(entry.message) in _ITEM_MESSAGES
    return type(entry) in _ITEM_ENTRIES


@attrs.define(eq=False)
class _Draft:
    first: Entry
    marked: bool
    entries: list[Entry] = attrs.field(factory=list)
    end: TurnEndEntry | None = None

    def marked_turn(self) -> StoredTurn:
        end = self.end
        return StoredTurn(
            id=self.first.id,
            status="interrupted" if end is None else end.status,
            started_at_ms=_time(self.first),
            completed_at_ms=None if end is None else _time(end),
            error=None if end is None else end.error,
            entries=_numbered(self.entries),
        )

    def unmarked_turn(self, kind_of: Callable[[str], str], *, follower_is_marked: bool | None) -> StoredTurn:
        """The turn of a user message without markers; it may be unfinished only as the last of its kind.

        Args:
            follower_is_marked: of the turn that comes next, None if there is none.
        """
        unfinished = follower_is_marked is not False and _is_unfinished(self.entries)
        status, error = _outcome(self.entries, kind_of)
        return StoredTurn(
            id=self.first.id,
            status="interrupted" if unfinished else status,
            started_at_ms=_time(self.first),
            completed_at_ms=None if unfinished else _time(_last_content(self.entries) or self.first),
            error=None if unfinished else error,
            entries=_numbered(self.entries),
        )


def _synthetic(entries: list[Entry]) -> list[StoredTurn]:
    """One turn of all item entries in a branch in which no turn ever began."""
    items = [entry for entry in entries if is_item_entry(entry)]
    if not items:
        return []
    return [
        StoredTurn(
            id=items[0].id,
            status="completed",
            started_at_ms=_time(items[0]),
            completed_at_ms=_time(items[-1]),
            error=None,
            entries=_numbered(entries),
        )
    ]


def _numbered(entries: Iterable[Entry]) -> tuple[TurnEntry, ...]:
    numbered = []
    count = 0
    for entry in entries:
        if is_item_entry(entry):
            numbered.append(TurnEntry(count, entry))
            count += 1
        else:
            numbered.append(TurnEntry(None, entry))
    return tuple(numbered)


def _outcome(entries: Iterable[Entry], kind_of: Callable[[str], str]) -> tuple[TurnStatus, TurnError | None]:
    """Status and error that the last reply tells."""
    last: AssistantMessage | None = None
    for entry in entries:
        if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage):
            last = entry.message
    if last is not None and last.stop_reason == "error":
        text = last.error_message or ""
        return "failed", TurnError(message=text, kind=kind_of(text))
    return ("interrupted" if last is not None and last.stop_reason == "aborted" else "completed"), None


def _is_unfinished(entries: list[Entry]) -> bool:
    """Whether the last word is a question, a tool's result, or a call that nothing answered."""
    for entry in reversed(entries):
        if not isinstance(entry, MessageEntry):
            continue
        message = entry.message
        if isinstance(message, UserMessage | ToolResultMessage):
            return True
        if isinstance(message, AssistantMessage):
            return message.stop_reason not in ("error", "aborted") and any(
                isinstance(block, ToolCallBlock) for block in message.content
            )
    return False


def _last_content(entries: list[Entry]) -> Entry | None:
    """The last entry of the conversation itself: a setting changed days later does not prolong a turn."""
    return next((entry for entry in reversed(entries) if is_item_entry(entry) or _is_result(entry)), None)


def _is_user(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage)


def _is_result(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResultMessage)


def _time(entry: Entry) -> int:
    return parse_iso(entry.timestamp) or 0
