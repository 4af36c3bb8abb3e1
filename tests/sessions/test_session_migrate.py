"""Files of versions 1 and 2."""

import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from knightcode.messages import CustomMessage, UserMessage
from knightcode.sessions.entries import CompactionEntry, MessageEntry, SessionHeader
from knightcode.sessions.log import SessionLog
from knightcode.sessions.migrate import migrate
from knightcode.sessions.read import read_session
from tests.sessions.samples import START, START_MS, json_line, ticking

COMMON: dict[str, Any] = {"timestamp": START}
OLD_HEADER = json_line(type="session", id="s1", timestamp=START, cwd="/srv/shop", extra=1)
HELLO = json_line(type="message", **COMMON, message={"role": "user", "timestamp": 1, "content": "hello"})
HOOK = json_line(
    type="message",
    **COMMON,
    message={"role": "hookMessage", "timestamp": 1, "customType": "n", "content": "x", "display": True},
)


def compaction(index: object) -> bytes:
    return json_line(type="compaction", **COMMON, summary="s", tokensBefore=5, firstKeptEntryIndex=index)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in data.splitlines()]


def test_version_one_becomes_a_chain_of_entries_with_ids() -> None:
    """Session files: Versions and migration."""
    header, hello, hook, summary = lines_of(migrate(OLD_HEADER + HELLO + HOOK + compaction(1)))
    assert header == {
        "type": "session",
        "id": "s1",
        "timestamp": START,
        "cwd": "/srv/shop",
        "extra": 1,
        "version": 3,
    }
    assert [hello["parentId"], hook["parentId"], summary["parentId"]] == [None, hello["id"], hook["id"]]
    assert len({hello["id"], hook["id"], summary["id"]}) == 3
    assert all(len(entry["id"]) == 8 for entry in (hello, hook, summary))
    assert hook["message"]["role"] == "custom"
    assert summary == {
        "type": "compaction",
        **COMMON,
        "summary": "s",
        "tokensBefore": 5,
        "id": summary["id"],
        "parentId": hook["id"],
        "firstKeptEntryId": hello["id"],
    }


@pytest.mark.parametrize("index", [0, 4, 99, -1, True, "1", None, 1.0])
def test_an_index_that_names_no_entry_is_dropped(index: object) -> None:
    summary = lines_of(migrate(OLD_HEADER + HELLO + HELLO + compaction(index)))[-1]
    assert "firstKeptEntryIndex" not in summary
    assert "firstKeptEntryId" not in summary


def test_version_two_keeps_its_ids_and_renames_the_messages_of_hooks() -> None:
    header = json_line(type="session", version=2, id="s1", timestamp=START, cwd="/")
    entry = {"type": "message", "id": "a", "parentId": None, **COMMON}
    data = header + json_line(**entry, message={"role": "hookMessage", "timestamp": 1})
    assert migrate(data) == json_line(
        type="session", version=3, id="s1", timestamp=START, cwd="/"
    ) + json_line(**entry, message={"role": "custom", "timestamp": 1})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        HELLO,
        json_line(type="session", version=3, id="s") + HELLO,
        json_line(type="session", version=4, id="s") + HELLO,
        json_line(type="session", version="1", id="s") + HELLO,
    ],
)
def test_nothing_else_is_changed(data: bytes) -> None:
    assert migrate(data) == data


def test_damaged_lines_stay_in_a_migrated_file() -> None:
    data = b"torn\n" + OLD_HEADER + b'{"half":\n\n' + HELLO[:-1]
    migrated = migrate(data).splitlines()
    assert (migrated[0], migrated[2], len(migrated)) == (b"torn", b'{"half":', 4)


def test_an_old_file_is_rewritten_when_it_is_loaded_for_use_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(OLD_HEADER + HELLO + HOOK + compaction(2)[:-1])
    path.chmod(0o640)
    log = SessionLog.open(path, now_ms=ticking())
    assert log.header == SessionHeader(version=3, id="s1", timestamp=START, cwd="/srv/shop")
    first, second, third = log.branch()
    assert log.entries == (first, second, third)
    assert isinstance(first, MessageEntry)
    assert isinstance(second, MessageEntry)
    assert isinstance(third, CompactionEntry)
    assert (first.message, second.message) == (
        UserMessage(timestamp=1, content="hello"),
        CustomMessage(timestamp=1, custom_type="n", content="x"),
    )
    assert third.first_kept_entry_id == second.id
    added = log.append_turn_start()
    log.close()
    stored = read_session(path)
    assert (stored.version, stored.entries) == (3, (first, second, third, added))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]


def test_reading_an_old_file_changes_nothing_and_gives_the_ids_that_it_will_have(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(OLD_HEADER + HELLO + HELLO)
    before = path.read_bytes()
    stored = read_session(path)
    assert (stored.version, stored.header.version, path.read_bytes()) == (1, 3, before)
    log = SessionLog.open(path, now_ms=lambda: START_MS)
    assert log.entries == stored.entries
    log.close()


def test_a_link_to_an_old_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.jsonl").write_bytes(OLD_HEADER + HELLO)
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "real.jsonl")
    SessionLog.open(link, now_ms=ticking()).close()
    assert (link.is_symlink(), read_session(tmp_path / "real.jsonl").version) == (True, 3)


def test_an_old_file_that_cannot_be_replaced_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(OLD_HEADER + HELLO)
    program = """
import os, resource, sys
from pathlib import Path
from knightcode.sessions.log import SessionLog
from knightcode.sessions.errors import SessionWriteError
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
try:
    SessionLog.open(Path(sys.argv[1]), now_ms=lambda: 0)
except SessionWriteError as error:
    os._exit(7 if sys.argv[1] in str(error) else 1)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=20)
    assert (ended.returncode, path.read_bytes()) == (7, OLD_HEADER + HELLO)
    assert [file.name for file in tmp_path.iterdir()] == ["s.jsonl"]
