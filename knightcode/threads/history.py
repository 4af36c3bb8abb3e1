"""Pages of a thread's history.

A cursor names the branch it was cut from by that branch's leaf, so that appending cannot move later
pages, and the oldest turn that was delivered.

Source: App Server, "History, listings, and large values"; App Server notes, "Cursors", "Building a page".
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import attrs

from knightcode.models.errors import error_kind
from knightcode.sessions.entries import Entry
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import StoredSession
from knightcode.sessions.turns import stored_turns, turn_starts
from knightcode.threads.cursors import Cursor, decode_cursor, encode_cursor, invalid_cursor
from knightcode.threads.items import Turn, stored_turn
from knightcode.threads.opening import in_worker

PAGE_TURNS = 50


class _Place(
    Cursor, frozen=True, kw_only=True, rename={"kind": "k", "thread": "t", "leaf": "l", "before": "b"}
):
    kind: Literal["h"]
    thread: str
    leaf: str
    before: str


@attrs.frozen
class Page:
    """Turns, oldest first; `next_cursor` leads to older ones. `leaf` is what the page was cut from."""

    turns: tuple[Turn, ...]
    next_cursor: str | None = None
    leaf: str = ""

    def newest(self, count: int) -> "Page":
        """The same page with no more than its newest `count` turns, for one that is too large to send."""
        if count >= len(self.turns):
            return self
        turns = self.turns[len(self.turns) - count :]
        return Page(turns, _encode(turns[0].thread_id, self.leaf, turns[0].id), self.leaf)


async def read_page(
    stored: StoredSession | SessionLog,
    *,
    thread_id: str,
    cwd: str,
    cursor: str | None,
    running: str | None = None,
) -> Page:
    """A page as `cut_page` cuts it; of a file that was only read, in a worker thread.

    Of a loaded thread it is cut at once, without a checkpoint: its branch goes on growing.

    Raises:
        ThreadError: `invalidCursor`.
    """

    def cut() -> Page:
        return cut_page(stored.current_branch, thread_id=thread_id, cwd=cwd, cursor=cursor, running=running)

    return await in_worker(cut) if isinstance(stored, StoredSession) else cut()


def cut_page(
    branch: Sequence[Entry],
    *,
    thread_id: str,
    cwd: str,
    cursor: str | None,
    running: str | None = None,
    limit: int = PAGE_TURNS,
) -> Page:
    """The newest page of a branch, or the one that a cursor continues.

    It costs what is on the page and behind it; older history is not looked at.

    Args:
        branch: root to leaf.
        running: the id of the turn that runs now; it is left out.
        limit: turns on a page.
    Raises:
        ThreadError: `invalidCursor` when the cursor is malformed, of another thread, or of a branch
            that is not the current one any more.
    """
    leaf, end = branch[-1].id if branch else "", len(branch)
    following: Entry | None = None
    if cursor is None:
        starts = turn_starts(branch)
    else:
        place = _decode(cursor, thread_id)
        leaf = place.leaf
        starts = turn_starts(branch, _end_of(branch, leaf))
        end = _start_of(branch, starts, place.before)
        following = branch[end]
    others = (at for at in starts if branch[at].id != running)
    begins = list(islice(others, limit))
    more = next(others, None) is not None
    if following is not None and not begins:
        return Page(())  # what lies before the first turn belongs to it
    part = branch[begins[-1] if more else 0 : end]
    turns = [
        turn for turn in stored_turns(part, kind_of=error_kind, following=following) if turn.id != running
    ]
    return Page(
        turns=tuple(stored_turn(turn, thread_id, cwd) for turn in turns),
        next_cursor=_encode(thread_id, leaf, turns[0].id) if more else None,
        leaf=leaf,
    )


def check_cursor(cursor: str, thread_id: str) -> None:
    """Refuse early what cannot be a cursor of this thread, before anything is loaded for it.

    Raises:
        ThreadError: `invalidCursor`.
    """
    _decode(cursor, thread_id)


def _end_of(branch: Sequence[Entry], leaf: str) -> int:
    """Where the part of the branch ends that a cursor's first page was cut from."""
    for at in range(len(branch) - 1, -1, -1):
        if branch[at].id == leaf:
            return at + 1
    raise invalid_cursor()


def _start_of(branch: Sequence[Entry], starts: Iterator[int], turn_id: str) -> int:
    """Where a turn begins; takes it and all newer ones out of `starts`."""
    for at in starts:
        if branch[at].id == turn_id:
            return at
    raise invalid_cursor()


def _encode(thread_id: str, leaf: str, before: str) -> str:
    return encode_cursor(_Place(kind="h", thread=thread_id, leaf=leaf, before=before))


def _decode(cursor: str, thread_id: str) -> _Place:
    place = decode_cursor(cursor, _Place)
    if place.thread != thread_id:
        raise invalid_cursor()
    return place
