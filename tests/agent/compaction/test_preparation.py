"""What a compaction starts from, beside the cut."""

from typing import Any

import attrs
import pytest

from knightcode.agent.compaction import CompactionSettings, FileOps, Preparation, why_nothing
from knightcode.agent.compaction.files import file_ops
from knightcode.messages import AssistantMessage, Message, ToolCallBlock
from knightcode.sessions.entries import Entry, LabelEntry, TurnEndEntry, TurnStartEntry
from tests.agent.compaction.pieces import SMALL, compacted, prepared, replied, result, user
from tests.sessions.samples import chain, said

LISTS = "\n\n<read-files>\na.py\n</read-files>\n\n<modified-files>\nb.py\n</modified-files>"
DETAILS = {"readFiles": ["a.py"], "modifiedFiles": ["b.py"]}
ENDED = TurnEndEntry(turn_id="e0", status="completed")


def using(*calls: tuple[str, Any]) -> AssistantMessage:
    """A reply that calls tools: names, and what they are given as `path`."""
    blocks = [
        ToolCallBlock(id=str(at), name=name, arguments={"path": path})
        for at, (name, path) in enumerate(calls)
    ]
    return AssistantMessage(timestamp=0, content=[*blocks])


def test_a_preparation_says_all_that_a_compaction_goes_by() -> None:
    """Compaction: Choosing the cut, the result."""
    first, call, kept = user(5), using(("read", "c.py"), ("edit", "a.py")), user(60)
    path = chain(
        said(user(400)),
        compacted(None, "What was." + LISTS, details=DETAILS),
        said(first),
        said(call),
        said(replied(1, usage=700)),
        said(replied(51)),
        said(kept),
    )
    assert prepared(path) == Preparation(
        first_kept_entry_id="e6",
        messages_to_summarize=(first, call, replied(1, usage=700), replied(51)),
        turn_prefix_messages=(),
        is_split_turn=False,
        tokens_before=700 + 51 + 60,
        previous_summary="What was.",
        file_ops=FileOps(
            read=frozenset({"a.py", "c.py"}), written=frozenset(), edited=frozenset({"a.py", "b.py"})
        ),
        settings=SMALL,
    )


def test_files_of_the_turn_that_is_cut_count_as_well_but_not_those_of_the_kept_part() -> None:
    """Compaction: File lists."""
    path = chain(
        said(user(5)),
        said(using(("read", "a.py"))),
        said(user(5)),
        said(using(("write", "b.py"))),
        said(replied(60)),
        said(using(("edit", "c.py"))),
    )
    made = prepared(path)
    assert made is not None
    assert made.is_split_turn
    assert made.file_ops == FileOps(read=frozenset({"a.py"}), written=frozenset({"b.py"}))


def test_a_preparation_does_not_ask_whether_automatic_compaction_is_on() -> None:
    """Compaction: Settings."""
    path = chain(said(user(5)), said(user(60)))
    off = attrs.evolve(SMALL, enabled=False)
    made = prepared(path, off)
    assert made is not None
    assert made.settings == off


def test_the_defaults_are_those_of_the_settings_file() -> None:
    """Compaction: Settings."""
    assert CompactionSettings() == CompactionSettings(
        enabled=True, reserve_tokens=16_384, keep_recent_tokens=20_000
    )


# --- nothing to do ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ([], "Nothing to compact (session too small)"),
        (chain(said(user(5))), "Nothing to compact (session too small)"),
        (chain(said(user(5)), said(user(60)), compacted("e1")), "Already compacted"),
        (
            chain(said(user(5)), said(user(60)), TurnStartEntry(), compacted("e0"), ENDED, TurnStartEntry()),
            "Already compacted",
        ),
        (
            chain(said(user(60)), compacted("e0"), LabelEntry(target_id="e0")),
            "Nothing to compact (session too small)",
        ),
    ],
    ids=["no entry", "small", "compacted", "compacted in a turn of its own", "a label since"],
)
def test_a_person_is_told_why_there_is_nothing_to_compact(path: list[Entry], why: str) -> None:
    """Compaction: Manual compaction."""
    assert prepared(path) is None
    assert why_nothing(path) == why


# --- files --------------------------------------------------------------------------------------------


def test_a_file_that_was_changed_is_not_listed_as_read() -> None:
    """Compaction: File lists."""
    calls = using(("read", "b"), ("read", "a"), ("read", "d"), ("write", "d"), ("edit", "c"), ("edit", "b"))
    ops = file_ops([calls], None)
    assert (ops.read_files, ops.modified_files) == (["a"], ["b", "c", "d"])
    assert ops.details() == {"readFiles": ["a"], "modifiedFiles": ["b", "c", "d"]}
    assert ops.blocks() == (
        "\n\n<read-files>\na\n</read-files>\n\n<modified-files>\nb\nc\nd\n</modified-files>"
    )


def test_lists_without_a_file_leave_no_trace_in_the_text() -> None:
    """Compaction: File lists."""
    assert FileOps().blocks() == ""
    assert FileOps().details() == {"readFiles": [], "modifiedFiles": []}
    assert FileOps(written=frozenset({"a"})).blocks() == "\n\n<modified-files>\na\n</modified-files>"


@pytest.mark.parametrize(
    "message",
    [using(("bash", "a"), ("grep", "a"), ("Read", "a")), using(("read", 5), ("edit", None)), result("c", 1)],
    ids=["other tools", "no path", "no reply"],
)
def test_what_names_no_file_is_passed_over(message: Message) -> None:
    """Compaction: File lists."""
    assert file_ops([message], None) == FileOps()


@pytest.mark.parametrize(
    "details",
    [None, [], "readFiles", {}, {"readFiles": "a", "modifiedFiles": {"b": 1}}, {"readFiles": [1, None]}],
)
def test_details_of_another_form_name_no_files(details: Any) -> None:
    """Compaction: File lists."""
    assert file_ops([], compacted(None, details=details)) == FileOps()


def test_files_that_an_extension_listed_are_not_taken_over() -> None:
    """Compaction: File lists."""
    path = chain(
        compacted(None, "What was." + LISTS, details=DETAILS, from_hook=True), said(user(5)), said(user(60))
    )
    made = prepared(path)
    assert made is not None
    assert (made.file_ops, made.previous_summary) == (FileOps(), "What was." + LISTS)


def test_lists_at_the_end_of_a_summary_are_not_summarised_again() -> None:
    """Compaction: File lists."""
    for text in ("What was." + LISTS, "What was."):
        made = prepared(chain(compacted(None, text, details=DETAILS), said(user(5)), said(user(60))))
        assert made is not None
        assert made.previous_summary == "What was."
