"""A process that dies while it appends: what was acknowledged is in the file, whichever byte was the last."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.sessions.entries import Entry, decode_entry
from knightcode.sessions.errors import NotASessionError
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import parse_session, read_session
from tests.sessions.samples import HEADER_LINE, reply, result, ticking, user

Append = Callable[[SessionLog], Entry]

APPENDS: tuple[Append, ...] = (
    lambda log: log.append_turn_start(),
    lambda log: log.append_message(user('naïve 日本 \u2028 \U0001f600 "quoted"')),
    lambda log: log.append_message(reply(calls=("c",))),
    lambda log: log.append_message(result("c", "a\nb\0")),
    lambda log: log.append_custom("x", {"deep": [None, {"a": 1}]}),
    lambda log: log.append_turn_end("t", "completed"),
)

LIVES = st.lists(st.tuples(st.lists(st.sampled_from(APPENDS), max_size=6), st.integers(0, 900)), max_size=4)
"""Processes one after the other: what each appends, and the bytes that it writes before it dies."""


class DeathError(BaseException):
    """The process is dead: what runs after this would not run."""


@attrs.define(eq=False)
class DyingDisk:
    """Stands for `os.write`; with the last byte that there is room for the process dies.

    Attributes:
        left: what the dead process has left in the file, whatever the living one does to it afterwards.
        last: the data of the write in which it died, as far as they were written.
    """

    path: Path
    room: int
    left: bytes | None = None
    last: bytes = b""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Append, to the path instead of the descriptor: both are the same file."""
        part = bytes(data[: self.room])
        with self.path.open("ab") as file:
            file.write(part)
        self.room -= len(part)
        if not self.room:
            self.left, self.last = self.path.read_bytes(), part
            raise DeathError
        return len(part)


def whole_entries(data: bytes) -> list[Entry]:
    """The entries on the lines that are whole; of a last line only its end may be missing."""
    return [entry for line in data.split(b"\n") if (entry := decode_entry(line)) is not None]


def live(path: Path, appends: list[Append], room: int) -> list[Entry]:
    """One process, from opening the file to its death or end; the entries that must be in the file then."""
    disk = DyingDisk(path, room)
    known = list(read_session(path).entries) if path.exists() else []
    try:
        if path.exists():
            log = SessionLog.open(path, now_ms=ticking(), write=disk.write)
        else:
            log = SessionLog.create(
                cwd="/srv/shop", folder=path.parent, path=path, now_ms=ticking(), write=disk.write
            )
        for append in appends:
            append(log)
            if log.path is not None:
                known = list(log.entries)
    except DeathError:
        assert disk.left is not None
        path.write_bytes(disk.left)
        return known + whole_entries(disk.last)
    log.close()
    return known


@given(LIVES)
@settings(max_examples=150)
def test_whatever_byte_is_a_process_s_last_the_next_one_finds_all_that_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[list[Append], int]]
) -> None:
    """Session files: Writing; one dies after the other, in the making of the file, in repairs, in appends."""
    path = tmp_path_factory.mktemp("sessions") / "s.jsonl"
    for appends, room in lives:
        expected = live(path, appends, room)
        if not path.exists():
            assert expected == []
            continue
        try:
            stored = read_session(path)
        except NotASessionError:  # it died in the first line of a new file, before anything was acknowledged
            assert expected == []
            path.unlink()
            continue
        assert list(stored.entries) == expected
        assert stored.branch() == expected
        for cut in range(0, path.stat().st_size, 97):
            session = parse_session(path.read_bytes()[:cut])
            assert session is None or list(session.entries) == expected[: len(session.entries)]


@pytest.mark.parametrize("room", range(1, 40))
def test_a_process_that_dies_while_it_repairs_a_torn_line_leaves_it_to_the_next(
    tmp_path: Path, room: int
) -> None:
    path = tmp_path / "s.jsonl"
    log = SessionLog.create(cwd="/", folder=tmp_path, path=path, now_ms=ticking())
    kept = log.append_message(reply())
    log.close()
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"torn"')
    expected = live(path, [APPENDS[1]], room)
    assert expected == [kept]
    assert list(read_session(path).entries) == expected
    log = SessionLog.open(path, now_ms=ticking())
    added = log.append_message(user("on"))
    log.close()
    stored = read_session(path)
    assert (list(stored.entries), stored.branch()) == ([kept, added], [kept, added])


def test_the_lives_are_long_enough_to_die_in_everything(tmp_path: Path) -> None:
    """A file with its header and two entries is smaller than the room there is at most."""
    path = tmp_path / "s.jsonl"
    assert len(live(path, [APPENDS[0], APPENDS[2]], 10_000)) == 2
    assert len(HEADER_LINE) < path.stat().st_size < 900
