"""Listings of threads: one scan for the first page, an immutable snapshot for the following ones.

Source: App Server, "History, listings, and large values"; App Server notes, "thread/list".
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import attrs
import msgspec
import trio

from knightcode.threads.cursors import Cursor, decode_cursor, encode_cursor, invalid_cursor
from knightcode.threads.notices import Status

SNAPSHOTS = 32
SNAPSHOT_SECONDS = 300.0
DEFAULT_LIMIT = 50

Filters = tuple[str | None, bool]


@attrs.frozen
class ThreadRow:
    """A thread in a listing. `updated_at` is when its file was modified."""

    id: str
    cwd: str
    name: str
    status: Status
    created_at: str
    updated_at: str
    message_count: int
    forked_from_id: str | None = None
    damaged: bool = False


@attrs.frozen
class ListPage:
    """Rows, most recently updated first; `next_cursor` leads to older ones."""

    rows: tuple[ThreadRow, ...]
    next_cursor: str | None = None


class _Place(
    Cursor,
    frozen=True,
    kw_only=True,
    rename={"kind": "k", "snapshot": "s", "offset": "o", "filters": "f"},
):
    kind: Literal["l"]
    snapshot: str
    offset: int
    filters: str


@attrs.define
class _Snapshot:
    rows: tuple[ThreadRow, ...]
    filters: str
    used_at: float


@attrs.define(eq=False)
class Listing:
    """The snapshots that cursors lead to: 32 at most, each for five minutes since its last use."""

    _snapshots: OrderedDict[str, _Snapshot] = attrs.field(factory=OrderedDict, init=False)

    def first(self, rows: Sequence[ThreadRow], filters: Filters, limit: int) -> ListPage:
        """The first page of fresh rows; they are kept only if there is a second page."""
        ordered = tuple(
            sorted(sorted(rows, key=lambda row: row.id), key=lambda row: row.updated_at, reverse=True)
        )
        if len(ordered) <= limit:
            return ListPage(ordered)
        snapshot_id = secrets.token_hex(8)
        self._snapshots[snapshot_id] = _Snapshot(ordered, _digest(filters), trio.current_time())
        while len(self._snapshots) > SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return ListPage(ordered[:limit], _encode(snapshot_id, limit, filters))

    def more(self, cursor: str, filters: Filters, limit: int) -> ListPage:
        """The page that a cursor leads to.

        Raises:
            ThreadError: `invalidCursor` for one that is malformed, expired, evicted or of other filters.
        """
        place = decode_cursor(cursor, _Place)
        self._expire()
        snapshot = self._snapshots.get(place.snapshot)
        if snapshot is None or not snapshot.filters == place.filters == _digest(filters):
            raise invalid_cursor()
        if not 0 < place.offset < len(snapshot.rows):
            raise invalid_cursor()
        snapshot.used_at = trio.current_time()
        self._snapshots.move_to_end(place.snapshot)
        end = place.offset + limit
        more = end < len(snapshot.rows)
        return ListPage(
            snapshot.rows[place.offset : end], _encode(place.snapshot, end, filters) if more else None
        )

    def _expire(self) -> None:
        now = trio.current_time()
        for snapshot_id, snapshot in tuple(self._snapshots.items()):
            if now - snapshot.used_at >= SNAPSHOT_SECONDS:
                del self._snapshots[snapshot_id]


def _digest(filters: Filters) -> str:
    return hashlib.sha256(msgspec.json.encode(filters)).hexdigest()[:16]


def _encode(snapshot: str, offset: int, filters: Filters) -> str:
    return encode_cursor(_Place(kind="l", snapshot=snapshot, offset=offset, filters=_digest(filters)))
