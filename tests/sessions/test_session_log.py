"""A session in use: what is appended, when it is written, and what happens when it cannot be."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.messages import ThinkingLevel
from knightcode.sessions.clock import iso
from knightcode.sessions.context import build_context
from knightcode.sessions.entries import (
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    TurnEndEntry,
    TurnError,
    TurnStartEntry,
    decode_entry,
)
from knightcode.sessions.errors import (
    EntryNotFoundError,
    NotASessionError,
    SessionClosedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionReadError,
    SessionWriteError,
)
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import read_session
from knightcode.sessions.tree import branch, by_id
from tests.sessions.samples import HEADER_LINE, START, START_MS, header_on, json_line, reply, ticking, user

LEVEL: ThinkingLevel = "high"


@attrs.define(eq=False)
class Disk:
    """Stands for `os.write` with `room` bytes left; it takes what fits, as a full disk does."""

    room: int | None = None
    calls: int = 0

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self.calls += 1
        if self.room is None:
            return os.write(descriptor, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(descriptor, data[: self.room])
        self.room -= written
        return written


def new_log(folder: Path | None, **options: Any) -> SessionLog:
    return SessionLog.create(cwd="/srv/shop", folder=folder, now_ms=ticking(), session_id="s1", **options)


def saved_log(folder: Path, **options: Any) -> SessionLog:
    """A session with one entry, in a file."""
    log = new_log(folder, **options)
    log.append_message(reply())
    return log


def file_of(log: SessionLog) -> Path:
    assert log.path is not None
    return log.path


# --- the tree -----------------------------------------------------------------------------------------


def test_every_append_is_a_child_of_the_one_before() -> None:
    """Session files: Tree and leaf."""
    log = new_log(None)
    appended = [
        log.append_model_change("acme", "m1"),
        log.append_thinking_level_change(LEVEL),
        log.append_custom("knightcode.approvalMode", {"mode": "ask"}),
        log.append_turn_start(),
        log.append_message(user("hi"), timestamp_ms=5),
        log.append_session_info("  The\r\n\nShop "),
        log.append_turn_end("t", "failed", TurnError(message="no")),
    ]
    ids = [entry.id for entry in appended]
    times = [iso(START_MS + 1000 * at) for at in (1, 2, 3, 4)] + [iso(5), iso(START_MS + 5000)]
    times.append(iso(START_MS + 6000))
    common: list[dict[str, Any]] = [
        {"id": entry_id, "parent_id": parent_id, "timestamp": time}
        for entry_id, parent_id, time in zip(ids, [None, *ids[:-1]], times, strict=True)
    ]
    assert appended == [
        ModelChangeEntry(**common[0], provider="acme", model_id="m1"),
        ThinkingLevelChangeEntry(**common[1], thinking_level="high"),
        CustomEntry(**common[2], custom_type="knightcode.approvalMode", data={"mode": "ask"}),
        TurnStartEntry(**common[3]),
        MessageEntry(**common[4], message=user("hi")),
        SessionInfoEntry(**common[5], name="The Shop"),
        TurnEndEntry(**common[6], turn_id="t", status="failed", error=TurnError(message="no")),
    ]
    assert len(set(ids)) == len(ids)
    assert list(log.entries) == log.branch() == appended
    assert (log.leaf_id, log.name, log.updated_at_ms) == (ids[-1], "The Shop", START_MS + 6000)


def test_a_moved_leaf_begins_another_branch() -> None:
    log = new_log(None)
    first, second = log.append_turn_start(), log.append_turn_start()
    log.move_leaf(first.id)
    third = log.append_turn_start()
    assert (third.parent_id, log.branch()) == (first.id, [first, third])
    log.move_leaf(None)
    assert (log.leaf_id, log.branch()) == (None, [])
    root = log.append_turn_start()
    assert (root.parent_id, log.branch()) == (None, [root])
    log.move_leaf(second.id)
    assert log.branch() == [first, second]


def test_a_branch_that_was_handed_out_does_not_change() -> None:
    log = new_log(None)
    log.append_turn_start()
    held = log.branch()
    log.append_turn_start()
    assert len(held) == 1
    held.clear()
    assert len(log.branch()) == 2


@given(st.lists(st.none() | st.integers(0, 9), max_size=20))
@settings(max_examples=60)
def test_the_branch_is_always_the_way_up_from_the_leaf(steps: list[int | None]) -> None:
    """None appends; a number moves the leaf to the entry of that number, or before all of them."""
    log = new_log(None)
    for step in steps:
        if step is None:
            log.append_turn_start()
        else:
            log.move_leaf(log.entries[step].id if step < len(log.entries) else None)
        assert log.branch() == branch(by_id(log.entries), log.leaf_id)


def test_what_names_an_unknown_entry_is_refused() -> None:
    """Session files: `label`."""
    log = new_log(None)
    for draft in (LabelEntry(target_id="gone", label="x"), ContextEditEntry(target_id="gone")):
        with pytest.raises(EntryNotFoundError, match="Entry gone not found"):
            log.append_entry(draft)
    with pytest.raises(EntryNotFoundError, match="Entry gone not found"):
        log.move_leaf("gone")
    assert (log.entries, log.leaf_id) == ((), None)


def test_a_compaction_that_keeps_nothing_stores_its_own_id() -> None:
    log = new_log(None)
    kept = log.append_message(user("hi"))
    nothing = log.append_entry(CompactionEntry(summary="s"))
    something = log.append_entry(CompactionEntry(summary="s", first_kept_entry_id=kept.id))
    assert (nothing.first_kept_entry_id, something.first_kept_entry_id) == (nothing.id, kept.id)


def test_an_empty_name_clears_the_name() -> None:
    log = new_log(None)
    log.append_session_info("Shop")
    log.append_session_info(" \n ")
    assert log.name is None


def test_the_last_workspace_entry_tells_the_working_directory() -> None:
    """App server: Workspaces."""
    log = new_log(None)
    found = [log.cwd]
    for data in (
        {"mode": "worktree", "cwd": "/trees/1"},
        {"mode": "local"},
        {"cwd": "/trees/2"},
        None,
        {"cwd": 5},
    ):
        log.append_custom("knightcode.workspace", data)
        found.append(log.cwd)
    assert found == ["/srv/shop", "/trees/1", "/srv/shop", "/trees/2", "/trees/2", "/srv/shop"]


def test_a_pending_reply_is_never_stored() -> None:
    log = new_log(None)
    with pytest.raises(ValueError, match="pending"):
        log.append_message(reply(stop="pending"))
    assert log.entries == ()


def test_what_json_cannot_hold_is_refused_and_not_appended(tmp_path: Path) -> None:
    log = saved_log(tmp_path)
    before = file_of(log).read_bytes()
    with pytest.raises(TypeError):
        log.append_custom("x", object())
    assert (len(log.entries), file_of(log).read_bytes()) == (1, before)
    log.close()


# --- the file -----------------------------------------------------------------------------------------


def test_no_file_is_made_before_the_first_reply(tmp_path: Path) -> None:
    """Session files: Append-only, with a deferred first write."""
    folder = tmp_path / "sessions" / "--srv-shop--"
    log = new_log(folder, parent_session="/old.jsonl")
    log.append_turn_start()
    log.append_message(user("hi"))
    planned = folder / "2027-04-09T06-31-52-480Z_s1.jsonl"
    assert (log.path, log.planned_path, folder.exists()) == (None, planned, False)

    log.append_message(reply())
    header, *lines = planned.read_bytes().splitlines()
    assert log.path == planned
    assert header_on(header) == log.header
    assert log.header == SessionHeader(
        version=3, id="s1", timestamp=START, cwd="/srv/shop", parent_session="/old.jsonl"
    )
    assert [decode_entry(line) for line in lines] == list(log.entries)
    log.close()


def test_the_first_end_of_a_turn_makes_the_file_as_well(tmp_path: Path) -> None:
    """App server: First turn of a thread."""
    log = new_log(tmp_path)
    start = log.append_turn_start()
    log.append_message(user("hi"))
    log.append_turn_end(start.id, "interrupted")
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_once_there_is_a_file_every_entry_is_written_at_once_and_in_one_call(tmp_path: Path) -> None:
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)
    for count in range(2, 5):
        log.append_message(user("x\u2028\u2029\u0085\u001e\n" * 50))
        assert read_session(file_of(log)).entries == log.entries
        assert disk.calls == count
    log.close()


def test_folder_and_file_are_the_user_s_alone(tmp_path: Path) -> None:
    log = saved_log(tmp_path / "new")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", file_of(log))]
    assert modes == [0o700, 0o600]
    log.close()


def test_a_session_in_memory_never_has_a_file() -> None:
    log = new_log(None)
    log.append_message(reply())
    log.append_turn_end("t", "completed")
    assert (log.path, log.planned_path, len(log.entries)) == (None, None, 2)
    log.close()


def test_a_name_that_is_taken_is_an_error_and_the_other_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "2027-04-09T06-31-52-480Z_s1.jsonl"
    path.write_bytes(b"other")
    log = new_log(tmp_path)
    with pytest.raises(SessionExistsError, match=str(path)):
        log.append_message(reply())
    assert (path.read_bytes(), log.path, len(log.entries)) == (b"other", None, 1)
    log.close()


def test_a_session_can_be_bound_to_an_exact_path(tmp_path: Path) -> None:
    path = tmp_path / "a" / "mine.jsonl"
    log = saved_log(tmp_path, path=path)
    assert (log.path, read_session(path).header) == (path, log.header)
    log.close()


def test_an_id_that_would_leave_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be a session id"):
        SessionLog.create(cwd="/", folder=tmp_path, now_ms=ticking(), session_id="../x")


def test_sessions_that_name_no_id_get_different_ones() -> None:
    logs = [SessionLog.create(cwd="/", folder=None, now_ms=lambda: START_MS) for _ in range(2)]
    assert logs[0].id != logs[1].id


def test_a_closed_log_appends_nothing_and_closing_again_is_once(tmp_path: Path) -> None:
    log = saved_log(tmp_path)
    path = file_of(log)
    log.close()
    log.close()
    before = path.read_bytes()
    with pytest.raises(SessionClosedError, match=str(path)):
        log.append_turn_start()
    log.flush()
    assert (path.read_bytes(), len(log.entries), log.path) == (before, 1, path)


def test_a_log_that_is_closed_before_its_first_reply_leaves_no_file(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append_message(user("hi"))
    log.close()
    assert list(tmp_path.iterdir()) == []


# --- a disk that does not take it ----------------------------------------------------------------------


@pytest.mark.parametrize("room", range(0, 120, 7))
def test_a_full_disk_leaves_nothing_half_written_and_the_next_write_brings_the_rest(
    tmp_path: Path, room: int
) -> None:
    """A session goes on after the disk was full, without a gap in its tree."""
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)
    before = file_of(log).read_bytes()
    disk.room = room
    with pytest.raises(SessionWriteError, match="No space left on device"):
        log.append_custom("x", "y" * 100)
    assert (file_of(log).read_bytes(), len(log.entries)) == (before, 2)
    disk.room = None
    log.append_message(user("again"))
    stored = read_session(file_of(log))
    assert (stored.entries, stored.damaged_lines) == (log.entries, 0)
    log.close()


def test_what_could_not_be_written_can_be_written_later_without_a_new_entry(tmp_path: Path) -> None:
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)
    disk.room = 10
    with pytest.raises(SessionWriteError):
        log.append_custom("x", 1)
    with pytest.raises(SessionWriteError):
        log.flush()
    disk.room = None
    log.flush()
    calls = disk.calls
    log.flush()
    assert (read_session(file_of(log)).entries, disk.calls) == (log.entries, calls)
    log.close()


@pytest.mark.parametrize("room", [None, 0])
def test_closing_tries_once_more_to_write_what_could_not_be_written(tmp_path: Path, room: int | None) -> None:
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)
    path, saved = file_of(log), log.entries
    disk.room = 0
    with pytest.raises(SessionWriteError):
        log.append_custom("x", 1)
    disk.room = room
    log.close()
    assert read_session(path).entries == (log.entries if room is None else saved)


@pytest.mark.parametrize("room", [0, 1, 60])
def test_a_start_of_a_turn_that_cannot_be_written_never_was(tmp_path: Path, room: int) -> None:
    """A turn that nobody was told of must not come up when the disk has room again."""
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)

    def kept() -> tuple[object, ...]:
        entries = (log.entries, log.branch(), log.leaf_id, dict(log.index), log.context())
        return (file_of(log).read_bytes(), *entries)

    before, leaf_id = kept(), log.leaf_id
    disk.room = room
    with pytest.raises(SessionWriteError, match="No space left on device"):
        log.append_turn_start()
    assert kept() == before
    disk.room = None
    log.flush()
    assert kept() == before
    start = log.append_turn_start()
    assert start.parent_id == leaf_id
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_a_start_that_fails_takes_only_itself_back(tmp_path: Path) -> None:
    """What waited to be written before it still waits, and what comes after it has no gap before it."""
    disk = Disk()
    log = saved_log(tmp_path, write=disk.write)
    disk.room = 0
    with pytest.raises(SessionWriteError):
        log.append_custom("waits", 1)
    with pytest.raises(SessionWriteError):
        log.append_turn_start()
    disk.room = None
    log.append_message(user("again"))
    assert [type(entry) for entry in log.entries] == [MessageEntry, CustomEntry, MessageEntry]
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_a_start_that_cannot_make_the_file_leaves_a_session_that_still_waits_for_one(tmp_path: Path) -> None:
    disk = Disk(0)
    log = new_log(tmp_path, write=disk.write)
    with pytest.raises(SessionWriteError):
        log.append_entry(TurnEndEntry(turn_id="t", status="completed"), keep_unwritten=False)
    start = log.append_turn_start()
    assert (log.entries, log.path, list(tmp_path.iterdir())) == ((start,), None, [])
    disk.room = None
    log.append_message(reply())
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_a_start_in_a_session_that_is_kept_in_memory_is_stored_there() -> None:
    log = new_log(None)
    start = log.append_turn_start()
    assert (log.entries, log.path) == ((start,), None)


@pytest.mark.parametrize("room", [0, 1, 60, 200])
def test_a_first_write_that_fails_leaves_no_file_and_is_done_again(tmp_path: Path, room: int) -> None:
    disk = Disk(room)
    log = new_log(tmp_path, write=disk.write)
    log.append_message(user("hi"))
    with pytest.raises(SessionWriteError, match=str(tmp_path)):
        log.append_message(reply())
    assert (list(tmp_path.iterdir()), log.path, len(log.entries)) == ([], None, 2)
    disk.room = None
    log.append_custom("x", 1)
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_short_writes_are_continued(tmp_path: Path) -> None:
    log = saved_log(tmp_path, write=lambda descriptor, data: os.write(descriptor, data[:3]))
    log.append_message(user("hello"))
    assert read_session(file_of(log)).entries == log.entries
    log.close()


def test_a_torn_line_that_cannot_be_cut_off_costs_no_other_line(tmp_path: Path) -> None:
    """The descriptor becomes one that can neither write nor cut, as on a device that went away."""
    log = saved_log(tmp_path)
    path = file_of(log)

    def write_and_lose_the_descriptor(descriptor: int, data: bytes | memoryview) -> int:
        os.write(descriptor, data[:20])
        readonly = os.open(path, os.O_RDONLY)
        os.dup2(readonly, descriptor)  # neither writing nor cutting is possible any more
        os.close(readonly)
        raise OSError(errno.EIO, "Input/output error")

    def write_again(descriptor: int, data: bytes | memoryview) -> int:
        appending = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            return os.write(appending, data)
        finally:
            os.close(appending)

    writers = iter([write_and_lose_the_descriptor, write_again])

    def write(descriptor: int, data: bytes | memoryview) -> int:
        return next(writers)(descriptor, data)

    reopened = SessionLog.open(path, now_ms=ticking(), write=write)
    with pytest.raises(SessionWriteError, match="Input/output error"):
        reopened.append_custom("x", "y" * 100)
    reopened.append_message(user("again"))
    stored = read_session(path)
    assert (stored.entries, stored.damaged_lines) == (reopened.entries, 1)
    log.close()
    reopened.close()


def test_a_file_that_was_deleted_is_an_error_and_not_a_silent_loss(tmp_path: Path) -> None:
    log = saved_log(tmp_path)
    file_of(log).unlink()
    with pytest.raises(SessionWriteError, match="deleted"):
        log.append_turn_start()
    log.close()


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    log = new_log(tmp_path / "file")
    with pytest.raises(SessionWriteError, match=r"_s1\.jsonl"):
        log.append_message(reply())
    log.close()


def test_a_size_limit_of_the_system_leaves_whole_lines(tmp_path: Path) -> None:
    """The same as the full disk, with the system's own short writes."""
    path = tmp_path / "s.jsonl"
    program = """
import os, resource, sys
from pathlib import Path
from knightcode.sessions.log import SessionLog
from knightcode.sessions.errors import SessionWriteError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
log = SessionLog.open(Path(sys.argv[1]), now_ms=lambda: 0)
failed = 0
for _ in range(40):
    try:
        log.append_custom("x", "y" * 20)
    except SessionWriteError:
        failed += 1
os._exit(0 if 0 < failed < 40 and len(log.entries) == 40 else 1)
"""
    path.write_bytes(HEADER_LINE)
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=20)
    stored = read_session(path)
    assert (ended.returncode, stored.damaged_lines, stored.whole_lines) == (0, 0, True)
    assert 0 < len(stored.entries) < 40


# --- opening --------------------------------------------------------------------------------------------


def test_a_session_goes_on_where_its_file_ends(tmp_path: Path) -> None:
    log = saved_log(tmp_path)
    log.append_session_info("Shop")
    log.append_custom("knightcode.workspace", {"cwd": "/trees/1"})
    path = file_of(log)
    log.close()
    again = SessionLog.open(path, now_ms=ticking())
    assert (
        again.header,
        again.entries,
        again.branch(),
        again.leaf_id,
        again.name,
        again.cwd,
        again.path,
    ) == (
        log.header,
        log.entries,
        log.branch(),
        log.leaf_id,
        "Shop",
        "/trees/1",
        path,
    )
    entry = again.append_message(user("more"))
    assert entry.parent_id == log.leaf_id
    assert build_context(again.branch()).messages == (reply(), user("more"))
    assert read_session(path).entries == again.entries
    again.close()


def test_opening_and_closing_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER_LINE + b"torn\n" + json_line(type="hologram", id="a", parentId=None))
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    log = SessionLog.open(path, now_ms=ticking())
    assert log.warnings == ("1 damaged line(s) of the session file were skipped",)
    log.close()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_loaded_session_without_a_reply_is_appended_to_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER_LINE)
    log = SessionLog.open(path, now_ms=ticking())
    log.append_message(user("hi"))
    assert read_session(path).entries == log.entries
    log.close()


def test_an_empty_file_becomes_a_new_session(tmp_path: Path) -> None:
    """Session files: Loading and damaged files."""
    path = tmp_path / "s.jsonl"
    path.touch()
    log = SessionLog.open(path, now_ms=ticking(), cwd="/srv/shop")
    assert (log.path, log.header.timestamp, log.cwd, log.entries) == (path, START, "/srv/shop", ())
    assert header_on(path.read_bytes()) == log.header
    log.close()


@pytest.mark.parametrize(
    "content",
    [b"\n", b"\0\0\0", b"hello\n", b"{}\n", HEADER_LINE[:-10], json_line(type="label", id="a") + HEADER_LINE],
)
def test_a_file_without_a_header_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    with pytest.raises(NotASessionError, match=str(path)):
        SessionLog.open(path, now_ms=ticking())
    assert path.read_bytes() == content


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path, error in [
        (tmp_path / "none.jsonl", SessionNotFoundError),
        (tmp_path / "pipe.jsonl", SessionReadError),
        (tmp_path, SessionReadError),
    ]:
        with pytest.raises(error, match=str(path)):
            SessionLog.open(path, now_ms=ticking())


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everything, so it is somebody else meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_may_not_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        Path(folder).chmod(0o755)
        path = Path(folder) / "s.jsonl"
        path.write_bytes(HEADER_LINE)
        path.chmod(0o444)
        with without_privileges(), pytest.raises(SessionWriteError, match=str(path)):
            SessionLog.open(path, now_ms=ticking())
        assert path.read_bytes() == HEADER_LINE


def test_a_last_line_without_its_end_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    whole = json_line(type="label", id="a", parentId=None, timestamp=START, targetId="x")
    path.write_bytes(HEADER_LINE + whole[:-1])
    log = SessionLog.open(path, now_ms=ticking())
    assert path.read_bytes() == HEADER_LINE + whole
    assert log.entries == (LabelEntry(id="a", timestamp=START, target_id="x"),)
    log.close()


def test_a_newer_file_is_loaded_with_a_warning_and_never_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(json_line(type="session", version=9, id="s1", timestamp=START, cwd="/", novelty=1))
    before = path.read_bytes()
    log = SessionLog.open(path, now_ms=ticking())
    assert log.warnings == ("The session file has version 9, newer than 3: parts of it may be missing here",)
    log.append_entry(CustomMessageEntry(custom_type="x", content="hi"))
    assert path.read_bytes().startswith(before)
    log.close()


def test_the_latest_time_is_that_of_the_last_entry_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER_LINE)
    log = SessionLog.open(path, now_ms=lambda: START_MS + 7)
    assert log.updated_at_ms == START_MS
    log.append_turn_start()
    log.append_entry(CustomEntry(custom_type="x", timestamp="some day"))
    assert log.updated_at_ms == START_MS + 7
    log.close()
