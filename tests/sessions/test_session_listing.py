"""Lists of sessions and the search for one."""

import os
from pathlib import Path
from typing import Any

import pytest

from knightcode.messages import SystemMessage, TextBlock, UserMessage
from knightcode.sessions.clock import iso
from knightcode.sessions.entries import CustomEntry, Entry, SessionInfoEntry, encode_entry
from knightcode.sessions.listing import SessionSummary, find_session, list_sessions
from tests.sessions.samples import HEADER_LINE, START, chain, json_line, reply, said, user


def put(path: Path, *entries: Entry, modified_s: int = 100, **header: Any) -> Path:
    """A session file, last changed at a given second."""
    members = {
        "type": "session",
        "version": 3,
        "id": path.stem,
        "timestamp": START,
        "cwd": "/srv/shop",
        **header,
    }
    return put_bytes(
        path, json_line(**members) + b"".join(encode_entry(entry) + b"\n" for entry in entries), modified_s
    )


def put_bytes(path: Path, data: bytes, modified_s: int = 100) -> Path:
    path.write_bytes(data)
    os.utime(path, (modified_s, modified_s))
    return path


def title(*messages: Any) -> str:
    """What a list shows for a session of these messages."""
    folder = messages[0]
    put(folder / "t.jsonl", *chain(*(said(message) for message in messages[1:])))
    (summary,) = list_sessions([folder])
    return summary.title


def test_a_list_tells_what_each_session_is(tmp_path: Path) -> None:
    """Session files: Session listing."""
    parent = put(tmp_path / "p.jsonl", *chain(said(user("first\nsecond")), said(reply())), modified_s=300)
    workspace = {"mode": "worktree", "cwd": "/trees/1", "projectCwd": "/srv/shop"}
    child = put(
        tmp_path / "c.jsonl",
        *chain(
            said(SystemMessage(timestamp=1, content="prompt")),
            said(user("a")),
            said(user("b")),
            said(reply()),
            CustomEntry(custom_type="knightcode.workspace", data=workspace),
            SessionInfoEntry(name="Shop"),
        ),
        modified_s=200,
        parentSession=str(parent),
    )
    assert list_sessions([tmp_path, tmp_path / "missing"]) == [
        SessionSummary(
            path=parent,
            id="p",
            cwd="/srv/shop",
            name=None,
            title="first",
            parent=None,
            forked_from_id=None,
            created_at=START,
            modified_ms=300_000,
            message_count=2,
            user_messages=1,
        ),
        SessionSummary(
            path=child,
            id="c",
            cwd="/trees/1",
            name="Shop",
            title="Shop",
            parent=str(parent),
            forked_from_id="p",
            created_at=START,
            modified_ms=200_000,
            message_count=3,
            user_messages=2,
            worktree=True,
            project_cwd="/srv/shop",
        ),
    ]


def test_sessions_of_one_moment_stand_in_order_of_their_ids(tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        put(tmp_path / f"{name}.jsonl")
    assert [summary.id for summary in list_sessions([tmp_path])] == ["a", "b", "c"]


def test_a_title_is_the_first_line_of_the_first_words_and_at_most_eighty_characters(tmp_path: Path) -> None:
    image_only = UserMessage(timestamp=1, content=[])
    assert [
        title(tmp_path),
        title(tmp_path, reply("hello")),
        title(tmp_path, image_only, user("\n\n  later \r\nx")),
        title(tmp_path, UserMessage(timestamp=1, content=[TextBlock(text="two"), TextBlock(text="blocks")])),
        title(tmp_path, user("\U0001f600" * 80)),
        title(tmp_path, user("\U0001f600" * 81)),
        title(tmp_path, user("one\u2028line")),
    ] == ["", "", "later", "two blocks", "\U0001f600" * 80, "\U0001f600" * 79 + "…", "one\u2028line"]


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\0" * 100, HEADER_LINE[:-20], b"garbage", b"[" * 100_000, b'{"type":"session","id":7}\n'],
    ids=["empty", "blank", "nuls", "cut", "garbage", "deep", "bad-id"],
)
def test_a_file_without_a_header_is_listed_as_damaged_beside_the_others(tmp_path: Path, data: bytes) -> None:
    """One bad file neither vanishes nor hides the rest."""
    put(tmp_path / "good.jsonl", modified_s=200)
    bad = put_bytes(tmp_path / "bad.jsonl", data)
    good, damaged = list_sessions([tmp_path])
    assert (good.id, good.damaged) == ("good", False)
    assert damaged == SessionSummary(
        path=bad,
        id="bad",
        cwd="",
        name="bad.jsonl",
        title="bad.jsonl",
        parent=None,
        forked_from_id=None,
        created_at=iso(100_000),
        modified_ms=100_000,
        message_count=0,
        user_messages=0,
        damaged=True,
    )


def test_a_byte_order_mark_and_garbage_between_lines_hide_nothing(tmp_path: Path) -> None:
    line = encode_entry(chain(said(user("hi")))[0])
    put_bytes(tmp_path / "a.jsonl", b"\xef\xbb\xbf" + HEADER_LINE + b"garb\0age\n" + line + b"\n\0\0\0")
    (summary,) = list_sessions([tmp_path])
    assert (summary.id, summary.title, summary.message_count, summary.damaged) == ("s1", "hi", 1, False)


def test_messages_of_unknown_roles_are_counted_and_a_header_without_a_time_has_that_of_the_file(
    tmp_path: Path,
) -> None:
    put_bytes(
        tmp_path / "a.jsonl",
        json_line(type="session", version=3, id="a")
        + json_line(type="message", id="x", message={"role": "oracle"})
        + json_line(type="hologram", id="y"),
    )
    (summary,) = list_sessions([tmp_path])
    assert (summary.message_count, summary.user_messages, summary.created_at) == (1, 0, iso(100_000))


def test_only_regular_files_with_the_suffix_of_sessions_are_listed(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").mkdir()
    (tmp_path / "c.json").write_bytes(HEADER_LINE)
    (tmp_path / ".thread-index.json").write_bytes(b"{}")
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert [summary.id for summary in list_sessions([tmp_path, tmp_path / "c.json"])] == ["a"]


@pytest.mark.parametrize("parent", ["/nowhere/x.jsonl", "relative.jsonl", "/", ""])
def test_a_parent_that_is_not_there_has_no_id(tmp_path: Path, parent: str) -> None:
    put(tmp_path / "a.jsonl", parentSession=parent)
    (summary,) = list_sessions([tmp_path])
    assert (summary.parent, summary.forked_from_id) == (parent, None)


def test_the_parent_s_id_is_that_in_its_header_and_not_in_its_name(tmp_path: Path) -> None:
    """App server: Threads, forkedFromId."""
    (tmp_path / "old").mkdir()
    parent = put(tmp_path / "old" / "name.jsonl", id="true-id")
    put(tmp_path / "a.jsonl", parentSession=str(parent))
    assert list_sessions([tmp_path])[0].forked_from_id == "true-id"


def test_a_session_is_found_by_the_id_in_its_header(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    put(tmp_path / "a.jsonl", id="wanted", modified_s=100)
    newest = put(other / "b.jsonl", id="wanted", modified_s=300)
    put(tmp_path / "wanted.jsonl", id="else", modified_s=400)
    put_bytes(tmp_path / "bad.jsonl", b"garbage", 500)
    folders = [tmp_path, other, tmp_path / "missing"]
    assert (find_session(folders, "wanted"), find_session(folders, "want")) == (newest, None)


def test_a_file_that_is_named_after_the_session_is_found_without_a_look_at_any_other(tmp_path: Path) -> None:
    """A look into other files would find the later of two."""
    named = put(tmp_path / "2027-04-09_wanted.jsonl", id="wanted", modified_s=100)
    copy = put(tmp_path / "copy.jsonl", id="wanted", modified_s=300)
    assert find_session([tmp_path], "wanted") == named
    later = put(tmp_path / "2027-04-10_wanted.jsonl", id="wanted", modified_s=200)
    assert find_session([tmp_path], "wanted") == later
    named.unlink()
    later.unlink()
    assert find_session([tmp_path], "wanted") == copy


@pytest.mark.parametrize("data", [b"", b"garbage", json_line(type="session", version=3, id="else")])
def test_a_name_that_says_what_the_header_does_not_is_not_believed(tmp_path: Path, data: bytes) -> None:
    put_bytes(tmp_path / "2027_wanted.jsonl", data, 500)
    (tmp_path / "2028_wanted.jsonl").mkdir()
    os.mkfifo(tmp_path / "2029_wanted.jsonl")
    assert find_session([tmp_path], "wanted") is None
    true = put(tmp_path / "renamed.jsonl", id="wanted")
    assert find_session([tmp_path], "wanted") == true


@pytest.mark.parametrize("session_id", ["", "/", "..", "a/b", "\0", "x" * 5000, "*"])
def test_an_id_that_can_be_no_part_of_a_name_is_simply_not_found(tmp_path: Path, session_id: str) -> None:
    put(tmp_path / "2027_a.jsonl", id="a")
    assert find_session([tmp_path], session_id) is None
