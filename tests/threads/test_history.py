"""Pages of a branch, and the cursors between them."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.models.errors import error_kind
from knightcode.sessions.entries import (
    CustomMessageEntry,
    Entry,
    ModelChangeEntry,
    TurnEndEntry,
    TurnStartEntry,
    encode_entry,
)
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import read_session
from knightcode.sessions.turns import stored_turns
from knightcode.threads.history import PAGE_TURNS, Page, check_cursor, cut_page, read_page
from knightcode.threads.items import Turn, stored_turn
from knightcode.threads.turn import ThreadError
from tests.sessions.samples import HEADER_LINE, chain, reply, result, said, ticking, user

KINDS: list[Entry] = [
    TurnStartEntry(),
    TurnEndEntry(turn_id="", status="completed"),
    said(user("q")),
    said(reply(calls=("c",))),
    said(reply()),
    said(result("c")),
    CustomMessageEntry(custom_type="note", content="n"),
    ModelChangeEntry(provider="acme", model_id="m1"),
]


def marked(drafts: list[Entry]) -> list[Entry]:
    """A branch in which every end names the start before it."""
    started, fixed = "none", list[Entry]()
    for at, draft in enumerate(drafts):
        if isinstance(draft, TurnStartEntry):
            started = f"e{at}"
        ends = isinstance(draft, TurnEndEntry)
        fixed.append(TurnEndEntry(turn_id=started, status="completed") if ends else draft)
    return chain(*fixed)


BRANCHES = st.lists(st.sampled_from(KINDS), max_size=20).map(marked)


def conversation(turns: int) -> list[Entry]:
    one: list[Entry] = [
        TurnStartEntry(),
        said(user("q")),
        said(reply()),
        TurnEndEntry(turn_id="", status="completed"),
    ]
    return marked(one * turns)


def page_of(
    branch: list[Entry], cursor: str | None = None, *, limit: int = 2, running: str | None = None
) -> Page:
    return cut_page(branch, thread_id="t", cwd="/srv", cursor=cursor, limit=limit, running=running)


def pages(branch: list[Entry], limit: int) -> Iterator[Page]:
    """All pages, newest first."""
    page = page_of(branch, limit=limit)
    yield page
    while page.next_cursor is not None:
        page = page_of(branch, page.next_cursor, limit=limit)
        yield page


def whole(branch: list[Entry]) -> tuple[Turn, ...]:
    """All turns, oldest first, by the grouping of the whole branch."""
    return tuple(stored_turn(turn, "t", "/srv") for turn in stored_turns(branch, kind_of=error_kind))


def refused(branch: list[Entry], cursor: str) -> str:
    with pytest.raises(ThreadError) as caught:
        page_of(branch, cursor)
    return caught.value.code


@given(BRANCHES, st.integers(1, 4))
@settings(max_examples=200)
def test_all_pages_together_are_all_turns_of_the_branch(branch: list[Entry], limit: int) -> None:
    """App Server: History, listings, and large values."""
    cut = list(pages(branch, limit))
    together = tuple(turn for page in reversed(cut) for turn in page.turns)
    assert together == whole(branch)
    assert all(len(page.turns) == limit for page in cut[:-1])
    assert len(cut[-1].turns) <= limit


@given(BRANCHES, st.lists(st.sampled_from(KINDS), max_size=6), st.integers(1, 3))
@settings(max_examples=100)
def test_what_is_appended_later_moves_no_page(branch: list[Entry], more: list[Entry], limit: int) -> None:
    longer = branch + chain(*[said(user("x"))] * len(branch), *more)[len(branch) :]
    cursor = page_of(branch, limit=limit).next_cursor
    if cursor is not None:
        assert page_of(longer, cursor, limit=limit) == page_of(branch, cursor, limit=limit)


@given(BRANCHES, st.integers(1, 3))
@settings(max_examples=100)
def test_the_running_turn_is_on_no_page_and_takes_no_place_on_one(branch: list[Entry], limit: int) -> None:
    turns = whole(branch)
    for running in turns:
        others = tuple(turn for turn in turns if turn.id != running.id)
        page = page_of(branch, limit=limit, running=running.id)
        assert page.turns == others[-limit:]
        assert (page.next_cursor is not None) == (len(others) > limit)


def test_an_empty_branch_is_one_empty_page() -> None:
    assert page_of([]) == Page(())


def test_a_page_has_fifty_turns() -> None:
    branch = conversation(120)
    sizes, cursor = [], None
    while True:
        page = cut_page(branch, thread_id="t", cwd="/srv", cursor=cursor)
        sizes.append(len(page.turns))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sizes == [PAGE_TURNS, PAGE_TURNS, 20]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "é",
        "\ud83d",
        "e30",
        "bnVsbA",
        "A" * 100_000,
        base64.urlsafe_b64encode(b'{"t":"t","l":"e3","b":"e0"}').decode(),
        base64.urlsafe_b64encode(b'{"k":"l","t":"t","l":"e3","b":"e0"}').decode(),
        base64.urlsafe_b64encode(b'{"k":"h","t":"t","l":7,"b":"e0"}').decode(),
        base64.urlsafe_b64encode(b'{"k":"h","x":' + b"[" * 100_000).decode(),
        base64.urlsafe_b64encode(b'{"k":"h","t":"\xff","l":"e3","b":"e0"}').decode(),
    ],
    ids=[
        *("empty", "no base64", "not ASCII", "half a pair", "no members", "null", "noise"),
        *("no kind", "of a listing", "wrong type", "deep", "not UTF-8"),
    ],
)
def test_what_is_no_cursor_is_refused_before_and_after_a_load(cursor: str) -> None:
    """App Server notes: Cursors are never trusted."""
    assert refused(conversation(3), cursor) == "invalidCursor"
    with pytest.raises(ThreadError):
        check_cursor(cursor, "t")


def test_a_cursor_of_another_thread_or_another_branch_is_refused() -> None:
    branch = conversation(5)
    cursor = page_of(branch).next_cursor
    assert cursor is not None
    with pytest.raises(ThreadError):
        cut_page(branch, thread_id="other", cwd="/srv", cursor=cursor)
    with pytest.raises(ThreadError):
        check_cursor(cursor, "other")
    check_cursor(cursor, "t")
    assert refused(branch[:-1], cursor) == "invalidCursor"
    assert refused([], cursor) == "invalidCursor"


@pytest.mark.parametrize("before", ["e1", "e19", "none", ""])
def test_a_cursor_that_names_no_turn_of_its_branch_is_refused(before: str) -> None:
    data = b'{"k":"h","t":"t","l":"e11","b":"%b"}' % before.encode()
    assert refused(conversation(5), base64.urlsafe_b64encode(data).decode()) == "invalidCursor"


def test_before_the_first_turn_there_is_an_empty_page_even_if_something_came_before_it() -> None:
    branch = marked([CustomMessageEntry(custom_type="note", content="n"), TurnStartEntry(), said(user("q"))])
    cursor = base64.urlsafe_b64encode(b'{"k":"h","t":"t","l":"e2","b":"e1"}').decode()
    assert page_of(branch, cursor) == Page(())


async def test_a_file_and_the_session_that_is_opened_from_it_have_the_same_pages(tmp_path: Path) -> None:
    branch = conversation(60)
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER_LINE + b"".join(encode_entry(entry) + b"\n" for entry in branch))
    log = SessionLog.open(path, now_ms=ticking())
    first = await read_page(read_session(path), thread_id="t", cwd="/srv", cursor=None)
    second = await read_page(read_session(path), thread_id="t", cwd="/srv", cursor=first.next_cursor)
    assert (*second.turns, *first.turns) == whole(branch)
    for page, cursor in ((first, None), (second, first.next_cursor)):
        assert await read_page(log, thread_id="t", cwd="/srv", cursor=cursor) == page
    log.close()
