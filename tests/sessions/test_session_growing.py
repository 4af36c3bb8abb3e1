"""What is kept of a session while it grows is what a look at all of it would find."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.messages import SystemMessage, ToolDeclaration, UserMessage
from knightcode.sessions.context import build_context
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    KnownEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    encode_entry,
)
from knightcode.sessions.facts import MessageCounts, count_messages, title_of
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import read_session
from tests.sessions.samples import HEADER_LINE, chain, reply, result, said, ticking, user

LOOK_UP = ToolDeclaration(name="look_up")
DRAFTS: list[KnownEntry] = [
    said(UserMessage(timestamp=1, content=[])),
    said(user("first\nsecond")),
    said(user("later")),
    said(reply(calls=("c",))),
    said(result("c")),
    said(SystemMessage(timestamp=1, content="text", sections={"a": "one"}, tools_added=[LOOK_UP])),
    said(SystemMessage(timestamp=1, sections={"a": None, "b": "two"}, replace=True)),
    CustomMessageEntry(custom_type="note", content="n"),
    CustomEntry(custom_type="mode", data=1),
    CustomEntry(custom_type="mode", data=2),
    CustomEntry(custom_type="other", data=3),
    BranchSummaryEntry(from_id="root", summary="left"),
    ModelChangeEntry(provider="other", model_id="m9"),
    ThinkingLevelChangeEntry(thinking_level="high"),
    SessionInfoEntry(name="Shop"),
    SessionInfoEntry(name=""),
    CompactionEntry(summary="s"),
]

Step = KnownEntry | int | tuple[str, int]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.sampled_from(DRAFTS)
    | st.integers(0, 9)
    | st.tuples(st.sampled_from(["hide", "edit", "keep"]), st.integers(0, 9)),
    max_size=25,
)


def new_log() -> SessionLog:
    return SessionLog.create(cwd="/srv/shop", folder=None, now_ms=ticking())


def take(log: SessionLog, step: Step) -> None:
    """Append a draft; go to an entry by its number; hide or edit one, or compact and keep from it on."""
    if not isinstance(step, int | tuple):
        log.append_entry(step)
        return
    what, number = ("move", step) if isinstance(step, int) else step
    target = log.entries[number].id if number < log.entry_count else None
    if what == "move":
        log.move_leaf(target)
    elif target is not None and what == "keep":
        log.append_entry(CompactionEntry(summary="s", first_kept_entry_id=target))
    elif target is not None:
        log.append_entry(ContextEditEntry(target_id=target, replacement=None if what == "hide" else "new"))


@given(STEPS)
@settings(max_examples=150)
def test_what_a_log_keeps_is_always_what_its_entries_say(steps: list[Step]) -> None:
    log = new_log()
    for step in steps:
        take(log, step)
        path = log.branch()
        mode = next(
            (e for e in reversed(path) if isinstance(e, CustomEntry) and e.custom_type == "mode"), None
        )
        assert log.context() == build_context(path)
        assert (list(log.current_branch), log.last_custom("mode")) == (path, mode)
        assert list(log.newest_first()) == list(reversed(log.entries))
        assert log.entry_count == len(log.entries)
        assert log.message_counts == count_messages(log.entries)
        assert log.title == title_of(log.entries, log.name)


@given(STEPS)
@settings(max_examples=30)
def test_a_session_that_is_opened_goes_on_as_one_that_was_never_closed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    path = tmp_path_factory.mktemp("sessions") / "s.jsonl"
    before = new_log()
    for step in steps:
        take(before, step)
    path.write_bytes(HEADER_LINE + b"".join(encode_entry(entry) + b"\n" for entry in before.entries))
    log = SessionLog.open(path, now_ms=ticking())
    stored = read_session(path).prepare()
    for opened in (log, stored):
        assert opened.context() == build_context(opened.branch())
        assert opened.title == title_of(before.entries, before.name)
        assert opened.last_custom("mode") == log.last_custom("mode")
    assert log.message_counts == count_messages(before.entries)
    log.append_message(user("on"))
    assert log.context() == build_context(log.branch())
    log.close()


def test_a_context_is_the_same_value_until_something_is_appended_and_never_changes() -> None:
    log = new_log()
    log.append_message(user("one"))
    held = log.context()
    assert log.context() is held
    log.append_message(SystemMessage(timestamp=1, sections={"a": "x"}))
    log.append_message(reply())
    assert (held.messages, held.system.sections, held.model) == ((user("one"),), {}, None)
    assert log.context().messages[0] is held.messages[0]


def test_an_append_goes_through_no_earlier_entry_again() -> None:
    """A message that is made from an entry is made once: the context grows and is not built anew."""
    log = new_log()
    log.append_entry(CustomMessageEntry(custom_type="note", content="n"))
    made = log.context().messages[0]
    for draft in DRAFTS:
        if not isinstance(draft, CompactionEntry):
            log.append_entry(draft)
    assert log.context().messages[0] is made


def test_an_edit_that_was_in_the_file_before_its_target_holds_for_it(tmp_path: Path) -> None:
    """Only damage makes such a file; its context is the same however it came to be known."""
    first, second = chain(ContextEditEntry(target_id="e1", replacement="new"), said(user("old")))
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER_LINE + encode_entry(first) + b"\n" + encode_entry(second) + b"\n")
    stored = read_session(path)
    assert stored.context().messages == (UserMessage(timestamp=1, content="new"),)
    assert stored.context() == build_context(stored.branch())


def test_counts_and_title_are_those_of_the_whole_session_and_not_of_the_branch() -> None:
    log = new_log()
    log.append_message(user("first"))
    log.move_leaf(None)
    log.append_message(user("other"))
    log.append_message(reply())
    assert (log.message_counts, log.title) == (MessageCounts(stored=3, by_user=2), "first")
    log.append_session_info("Shop")
    assert log.title == "Shop"
    log.append_session_info("")
    assert log.title == "first"
