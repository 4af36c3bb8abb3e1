"""Pages of a thread's history.

A cursor names the branch it was cut from by that branch's leaf, so that appending cannot move later
pages, and the oldest turn that was delivered.

Source: App Server, "History, listings, and large values"; App Server notes, "Cursors", "Building a page".
"""

import base64
import binascii
from collections.abc import Sequence

import attrs
import msgspec

from knightcode.models.errors import error_kind
from knightcode.sessions.entries import Entry
from knightcode.sessions.turns import StoredTurn, stored_turns
from knightcode.threads.items import Turn, stored_turn
from knightcode.threads.turn import ThreadError

PAGE_TURNS = 50


class _Cursor(
    msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "k", "thread": "t", "leaf": "l", "before": "b"}
):
    kind: str
    thread: str
    leaf: str
    before: str


@attrs.frozen
class Page:
    """Turns, oldest first; `next_cursor` leads to older ones."""

    turns: tuple[Turn, ...]
    next_cursor: str | None = None


def cut_page(
    branch: Sequence[Entry], *, thread_id: str, cwd: str, cursor: str | None, running: str | None = None
) -> Page:
    """The newest page of a branch, or the one that a cursor continues.

    Args:
        branch: root to leaf.
        running: the id of the turn that runs now; it is left out.
    Raises:
        ThreadError: `invalidCursor` when the cursor is malformed, of another thread, or of a branch
            that is not the current one any more.
    """
    leaf = branch[-1].id if branch else ""
    before: str | None = None
    if cursor is not None:
        place = _decode(cursor, thread_id)
        branch = _prefix(branch, place.leaf)
        leaf, before = place.leaf, place.before
    turns = [turn for turn in stored_turns(branch, kind_of=error_kind) if turn.id != running]
    if before is not None:
        turns = turns[: _index_of(turns, before)]
    page = turns[-PAGE_TURNS:]
    more = len(turns) > len(page)
    return Page(
        turns=tuple(stored_turn(turn, thread_id, cwd) for turn in page),
        next_cursor=_encode(thread_id, leaf, page[0].id) if more else None,
    )


def check_cursor(cursor: str, thread_id: str) -> None:
    """Refuse early what cannot be a cursor of this thread, before anything is loaded for it.

    Raises:
        ThreadError: `invalidCursor`.
    """
    _decode(cursor, thread_id)


def invalid_cursor() -> ThreadError:
    """The refusal of a cursor."""
    return ThreadError(
        "invalidCursor", "The cursor does not belong to this listing; read the first page again"
    )


def _prefix(branch: Sequence[Entry], leaf: str) -> Sequence[Entry]:
    for index in range(len(branch) - 1, -1, -1):
        if branch[index].id == leaf:
            return branch[: index + 1]
    raise invalid_cursor()


def _index_of(turns: Sequence[StoredTurn], turn_id: str) -> int:
    for index, turn in enumerate(turns):
        if turn.id == turn_id:
            return index
    raise invalid_cursor()


def _encode(thread_id: str, leaf: str, before: str) -> str:
    data = msgspec.json.encode(_Cursor(kind="h", thread=thread_id, leaf=leaf, before=before))
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(cursor: str, thread_id: str) -> _Cursor:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place = msgspec.json.decode(data, type=_Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise invalid_cursor() from None
    if place.kind != "h" or place.thread != thread_id:
        raise invalid_cursor()
    return place
