"""Reading files, whole and damaged."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.sessions.entries import CustomEntry, Entry, decode_entry, encode_entry
from knightcode.sessions.errors import (
    NotASessionError,
    SessionFileError,
    SessionNotFoundError,
    SessionReadError,
)
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import parse_session, read_header, read_session
from tests.sessions.samples import HEADER_LINE, chain, reply, result, said, ticking, user

ENTRIES: list[Entry] = chain(
    said(user('naïve 日本 \u2028\u2029\u0085 \\ " \U0001f600')),
    said(reply(calls=("c",))),
    said(result("c", "a\nb\r\n\0")),
    CustomEntry(custom_type="x", data={"deep": [None, 1.5, {"a": "\x1e"}]}),
)
LINES = [encode_entry(entry) + b"\n" for entry in ENTRIES]
FILE = HEADER_LINE + b"".join(LINES)


def whole_entries(data: bytes) -> tuple[Entry, ...]:
    """The entries whose lines are complete in a prefix of FILE, a missing LF aside."""
    end = len(HEADER_LINE)
    count = 0
    for line in LINES:
        end += len(line)
        count += len(data) >= end - 1
    return tuple(ENTRIES[:count])


def test_a_file_is_read_with_all_that_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(FILE)
    stored = read_session(path)
    assert (stored.entries, stored.leaf_id, stored.branch(), stored.cwd, stored.name) == (
        tuple(ENTRIES),
        "e3",
        ENTRIES,
        "/srv/shop",
        None,
    )
    assert (stored.version, stored.damaged_lines, stored.warnings, stored.whole_lines) == (3, 0, (), True)


def test_a_file_cut_at_any_byte_loads_with_every_whole_entry_and_can_be_appended_to(tmp_path: Path) -> None:
    """Session files: Loading and damaged files."""
    path = tmp_path / "s.jsonl"
    for length in range(len(HEADER_LINE) - 1, len(FILE) + 1):
        path.write_bytes(FILE[:length])
        expected = whole_entries(FILE[:length])
        assert read_session(path).entries == expected
        assert path.read_bytes() == FILE[:length]

        log = SessionLog.open(path, now_ms=ticking())
        assert log.entries == expected
        added = log.append_message(user("next"))
        log.close()
        assert read_session(path).entries == (*expected, added)


def test_a_file_cut_inside_its_header_is_no_session(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for length in range(len(HEADER_LINE) - 1):
        path.write_bytes(FILE[:length])
        with pytest.raises(NotASessionError, match=str(path)):
            read_session(path)


@pytest.mark.parametrize(
    ("data", "damaged"),
    [
        (b"\xef\xbb\xbf" + FILE, 0),
        (FILE.replace(b"\n", b"\r\n"), 0),
        (FILE.replace(b"\n", b"\n\n \n"), 0),
        (b"not json\n" + FILE, 1),
        (b"\n\n" + FILE, 0),
        (FILE + b"\0" * 4096, 1),
        (FILE[:-1] + b"\0" * 100, 0),
        (HEADER_LINE + b"\0" * 512 + b"".join(LINES), 0),
        (HEADER_LINE + b"[]\n" + b"".join(LINES) + b'{"type":"mess', 2),
        (HEADER_LINE + HEADER_LINE + b"".join(LINES), 1),
    ],
    ids=["bom", "crlf", "blanks", "garbage", "lead", "nuls", "nul-tail", "nul-gap", "torn", "two-headers"],
)
def test_damage_around_the_lines_costs_no_entry(data: bytes, damaged: int) -> None:
    stored = parse_session(data)
    assert stored is not None
    assert (stored.entries, stored.damaged_lines) == (tuple(ENTRIES), damaged)


def _holds_nothing(garbage: bytes) -> bool:
    return all(decode_entry(line) is None for line in garbage.split(b"\n"))


TORN = st.sampled_from(LINES).flatmap(lambda line: st.integers(0, len(line) - 2).map(lambda end: line[:end]))
GARBAGE = (st.binary(max_size=30) | TORN).filter(_holds_nothing)


@given(st.tuples(GARBAGE, GARBAGE, GARBAGE, GARBAGE))
@settings(max_examples=100)
def test_garbage_between_lines_costs_none_of_them(garbage: tuple[bytes, ...]) -> None:
    data = HEADER_LINE + b"".join(waste + b"\n" + line for waste, line in zip(garbage, LINES, strict=True))
    stored = parse_session(data)
    assert stored is not None
    assert stored.entries == tuple(ENTRIES)


@given(st.data())
@settings(max_examples=100)
def test_a_hole_in_a_file_costs_only_the_lines_that_it_touches(data: st.DataObject) -> None:
    start = data.draw(st.integers(len(HEADER_LINE), len(FILE)))
    end = data.draw(st.integers(start, len(FILE)))
    stored = parse_session(FILE[:start] + FILE[end:])
    assert stored is not None
    position, untouched = len(HEADER_LINE), []
    for entry, line in zip(ENTRIES, LINES, strict=True):
        if position + len(line) <= start or position > end:
            untouched.append(entry)
        position += len(line)
    assert [entry for entry in stored.entries if entry in untouched] == untouched


def test_what_cannot_be_read_says_why_and_where(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, error in [
        (tmp_path / "none", SessionNotFoundError),
        (tmp_path / "none" / "deeper", SessionNotFoundError),
        (tmp_path / "pipe", SessionReadError),
        (tmp_path, SessionReadError),
    ]:
        for read in (read_session, read_header):
            with pytest.raises(error, match=str(path)):
                read(path)


def test_every_error_about_a_file_names_it() -> None:
    assert str(SessionFileError(Path("/a/b.jsonl"), "It is odd")) == "It is odd: /a/b.jsonl"
    assert str(SessionFileError(None, "It is odd")) == "It is odd: a session in memory"


# --- headers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "session_id"),
    [
        (FILE, "s1"),
        (HEADER_LINE[:-1], "s1"),
        (b"\xef\xbb\xbf" + HEADER_LINE, "s1"),
        (b"garbage\n" * 2000 + HEADER_LINE, "s1"),
        (b"x" * (1 << 20) + b"\n" + HEADER_LINE, None),
        (LINES[0] + HEADER_LINE, None),
        (b"", None),
        (b"\n", None),
        (HEADER_LINE[:-9], None),
    ],
    ids=["whole", "no-end", "bom", "late", "too-late", "not-first", "empty", "blank", "cut"],
)
def test_a_header_is_found_in_the_first_mebibyte(
    tmp_path: Path, content: bytes, session_id: str | None
) -> None:
    """Session files: Session listing."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    header = read_header(path)
    assert (None if header is None else header.id) == session_id


def test_a_header_behind_the_limit_of_a_look_up_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * (1 << 20) + b"\n" + FILE)
    assert read_session(path).entries == tuple(ENTRIES)
