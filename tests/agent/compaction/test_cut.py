"""Where a branch is cut, and what the two sides are."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from knightcode.agent.compaction import CompactionSettings, prepare
from knightcode.agent.compaction.cut import find_cut, span_of
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.sessions.context import build_context
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    LabelEntry,
    ModelChangeEntry,
    TurnEndEntry,
    TurnStartEntry,
)
from tests.agent.compaction.pieces import SMALL, bash, compacted, hide, prepared, replied, result, sized, user
from tests.sessions.samples import START_MS, chain, said

NOTE = CustomMessageEntry(custom_type="note", content=sized(5))
LEFT = BranchSummaryEntry(from_id="root", summary=sized(5))
PROMPT = said(SystemMessage(timestamp=START_MS, content=sized(30)))
LABEL = LabelEntry(target_id="e0", label="here")
METADATA: list[KnownEntry] = [
    ModelChangeEntry(provider="p", model_id="m"),
    LABEL,
    CustomEntry(custom_type="state", data=1),
    TurnStartEntry(),
]


@attrs.frozen
class Sides:
    """Sizes of the summarised messages, and the first entry that is kept."""

    history: list[int]
    prefix: list[int]
    kept: str


def sides(path: list[Entry], keep: int = 50) -> Sides | None:
    made = prepared(path, attrs.evolve(SMALL, keep_recent_tokens=keep))
    if made is None:
        return None
    assert made.is_split_turn == bool(made.turn_prefix_messages)
    return Sides(
        sizes(made.messages_to_summarize), sizes(made.turn_prefix_messages), made.first_kept_entry_id
    )


def sizes(messages: tuple[Message, ...]) -> list[int]:
    return [size_of(message) for message in messages]


def size_of(message: Message) -> int:
    if isinstance(message, AssistantMessage | ToolResultMessage | UserMessage | CustomMessage):
        return sum(len(getattr(block, "text", "")) for block in message.content) // 4
    return 0


def test_the_cut_falls_where_the_kept_part_is_large_enough() -> None:
    """Compaction: Choosing the cut, the example."""
    path = chain(
        said(user(5)),
        said(replied(9, "c")),
        said(result("c", 200)),
        said(replied(10)),
        said(user(5)),
        said(replied(30)),
        said(user(4)),
        said(replied(20)),
    )
    assert sides(path) == Sides(history=[5, 9, 200, 10], prefix=[5], kept="e5")


def test_a_cut_between_turns_splits_none() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(10)), said(user(30)), said(replied(20)))
    assert sides(path) == Sides(history=[5, 10], prefix=[], kept="e2")


def test_a_cut_never_falls_on_a_result() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(1, "c")), said(result("c", 60)), said(replied(1)), said(user(1)))
    assert sides(path) == Sides(history=[], prefix=[5, 1, 60], kept="e3")


def test_results_at_the_end_that_exceed_the_budget_are_kept_with_their_call() -> None:
    """Compaction: Choosing the cut."""
    path = chain(
        said(user(5)),
        said(replied(10)),
        said(user(6)),
        said(replied(1, "c", "d")),
        said(result("c", 200)),
        said(result("d", 300)),
    )
    assert sides(path) == Sides(history=[5, 10], prefix=[6], kept="e3")


@pytest.mark.parametrize("between", [said(bash(5)), NOTE, said(user(5))])
def test_a_cut_never_falls_between_a_call_and_its_result(between: KnownEntry) -> None:
    """Compaction: Choosing the cut."""
    path = chain(
        said(user(5)),
        said(replied(1, "c", "d")),
        said(result("c", 5)),
        between,
        said(result("d", 40)),
        said(replied(7)),
    )
    made = prepared(path, attrs.evolve(SMALL, keep_recent_tokens=46))
    assert made is not None
    assert made.first_kept_entry_id == "e5"
    within = prepared(path[:5], attrs.evolve(SMALL, keep_recent_tokens=44))
    assert within is not None
    assert within.first_kept_entry_id == "e1"


@pytest.mark.parametrize("starter", [said(user(5)), said(bash(5)), NOTE, LEFT])
def test_a_turn_begins_with_whatever_speaks_to_the_model(starter: KnownEntry) -> None:
    """Compaction: Choosing the cut."""
    split = prepared(chain(said(replied(1)), starter, said(replied(2)), said(replied(60))))
    assert split is not None
    assert (len(split.messages_to_summarize), len(split.turn_prefix_messages)) == (1, 2)
    whole = prepared(chain(said(replied(1)), starter, said(replied(60))))
    assert whole is not None
    assert (len(whole.messages_to_summarize), len(whole.turn_prefix_messages)) == (1, 1)
    between = prepared(chain(said(replied(1)), starter, said(replied(46))))
    assert between is not None
    assert (between.turn_prefix_messages, between.first_kept_entry_id) == ((), "e1")


def test_without_a_turns_start_nothing_is_split() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(replied(1)), said(replied(2)), said(replied(60)))
    assert sides(path) == Sides(history=[1, 2], prefix=[], kept="e2")


def test_the_cut_moves_back_over_what_is_no_message() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(10)), *METADATA, said(user(60)))
    assert sides(path) == Sides(history=[5, 10], prefix=[], kept="e2")
    hidden = chain(said(user(5)), said(replied(10)), said(user(70)), hide("e2"), said(replied(60)))
    assert sides(hidden) == Sides(history=[], prefix=[5, 10], kept="e2")


def test_the_cut_does_not_move_back_over_a_compaction() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), compacted(None), *METADATA, said(user(60)), compacted("e0"), said(user(70)))
    assert sides(path) == Sides(history=[5, 60], prefix=[], kept="e8")
    assert sides(path, keep=100) == Sides(history=[5], prefix=[], kept="e2")


def test_hidden_messages_are_neither_counted_nor_summarised() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(500)), said(replied(10)), hide("e1"), said(user(60)))
    assert sides(path) == Sides(history=[5, 10], prefix=[], kept="e3")


def test_an_edited_message_counts_and_is_summarised_as_it_is_now() -> None:
    """Compaction: Choosing the cut."""
    edit = ContextEditEntry(target_id="e0", replacement=sized(3))
    made = prepared(chain(said(user(500)), edit, said(user(60))))
    assert made is not None
    assert made.messages_to_summarize == (UserMessage(timestamp=START_MS, content=sized(3)),)


def test_system_messages_are_not_summarised_and_no_place_to_cut() -> None:
    """Compaction: Choosing the cut."""
    path = chain(PROMPT, said(user(5)), said(replied(10)), PROMPT, said(user(30)))
    assert sides(path) == Sides(history=[5, 10], prefix=[], kept="e4")
    assert sides(chain(PROMPT, PROMPT)) is None


@pytest.mark.parametrize(
    "path",
    [
        [],
        chain(*METADATA),
        chain(said(user(5))),
        chain(said(user(500))),
        chain(PROMPT, said(user(5)), said(replied(10))),
        chain(said(result("c", 100))),
        chain(said(user(5)), said(replied(60)), compacted("e0")),
    ],
    ids=["no entry", "metadata", "small", "one large", "never reached", "no candidate", "just compacted"],
)
def test_there_is_nothing_to_compact(path: list[Entry]) -> None:
    """Compaction: Choosing the cut."""
    assert prepared(path) is None


def test_a_budget_of_nothing_keeps_the_newest_message() -> None:
    """Compaction: Choosing the cut."""
    path = chain(
        said(user(5)), said(replied(10)), said(user(7)), TurnEndEntry(turn_id="t", status="completed")
    )
    assert sides(path, keep=0) == Sides(history=[5, 10], prefix=[], kept="e2")
    assert sides(chain(said(user(5)), said(user(7)), said(user(0))), keep=0) == Sides([5], [], "e1")


# --- after an earlier compaction ----------------------------------------------------------------------


def test_what_the_last_compaction_kept_is_summarised_by_the_next() -> None:
    """Compaction: Choosing the cut."""
    path = chain(
        said(user(5)),
        said(replied(10)),
        PROMPT,
        said(user(6)),
        said(replied(20)),
        compacted("e1"),
        PROMPT,
        said(user(60)),
    )
    assert sides(path) == Sides(history=[10, 6, 20], prefix=[], kept="e7")


def test_the_last_compaction_stands_before_what_it_kept_and_is_no_obstacle() -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(10)), *METADATA, compacted("e1"), said(user(60)))
    assert sides(path) == Sides(history=[10], prefix=[], kept="e2")


@pytest.mark.parametrize("first", ["e2", "gone"])
def test_a_compaction_that_kept_nothing_leaves_what_followed(first: str) -> None:
    """Compaction: Choosing the cut."""
    path = chain(said(user(5)), said(replied(10)), compacted(first), said(user(6)), said(user(60)))
    assert sides(path) == Sides(history=[6], prefix=[], kept="e4")


def test_messages_inside_an_older_compaction_are_summarised() -> None:
    """Session files: compaction, reader compatibility."""
    old = CompactionEntry(summary="S", retained_tail=[SystemMessage(timestamp=0), user(7), replied(8)])
    assert sides(chain(said(user(5)), old, said(user(60)))) == Sides(history=[7, 8], prefix=[], kept="e2")


# --- after a recovery ---------------------------------------------------------------------------------


def test_an_input_that_did_not_fit_is_itself_summarised() -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    path = chain(
        said(user(5)),
        said(replied(10)),
        said(user(600)),
        said(replied(stop="error")),
        hide("e3"),
        LABEL,
    )
    assert sides(path) == Sides(history=[5, 10], prefix=[600], kept="e3")


def test_an_attempt_with_calls_is_omitted_as_a_whole() -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    path = chain(
        said(user(600)), said(replied(1, "c", stop="length")), said(result("c", 70)), hide("e1"), hide("e2")
    )
    assert sides(path) == Sides(history=[], prefix=[600], kept="e1")


@pytest.mark.parametrize(
    "suffix",
    [
        pytest.param([], id="nothing"),
        pytest.param(METADATA, id="metadata"),
        pytest.param([said(replied(stop="error")), hide("e2"), NOTE], id="a new message"),
        pytest.param([said(replied(stop="error"))], id="an attempt that is still seen"),
        pytest.param([said(user(3)), hide("e2")], id="no attempt"),
        pytest.param(
            [said(replied(stop="error")), hide("e2"), ContextEditEntry(target_id="e0", replacement="x")],
            id="an edit of something older",
        ),
        pytest.param(
            [said(replied(stop="error")), hide("e2"), compacted("e1"), compacted("e1"), LABEL], id="compacted"
        ),
    ],
)
def test_otherwise_the_newest_message_is_kept(suffix: list[KnownEntry]) -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    path = chain(said(user(5)), said(user(600)), *suffix)
    made = sides(path)
    assert made is None or (made.prefix, made.kept) == ([], "e1")


def test_edits_inside_the_omitted_attempt_do_not_matter() -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    attempt: list[Entry] = [
        said(replied(stop="error")),
        ContextEditEntry(target_id="e1", replacement="x"),
        hide("e1"),
    ]
    assert sides(chain(said(user(600)), *attempt)) == Sides(history=[], prefix=[600], kept="e1")


def test_hiding_something_older_does_not_matter() -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    path = chain(said(user(5)), said(user(600)), said(replied(stop="error")), hide("e2"), hide("e0"))
    assert sides(path) == Sides(history=[], prefix=[600], kept="e2")


def test_a_small_branch_is_not_cut_behind_an_omitted_attempt() -> None:
    """Compaction: Choosing the cut, recovery suffix."""
    assert sides(chain(said(user(5)), said(replied(stop="error")), hide("e1"))) is None


# --- for every branch ---------------------------------------------------------------------------------

SIZE = st.integers(0, 40)
CALL = st.sampled_from(["c1", "c2", "c3"])
DRAFT: st.SearchStrategy[KnownEntry] = st.one_of(
    SIZE.map(lambda tokens: said(user(tokens))),
    st.builds(lambda tokens, calls: said(replied(tokens, *calls)), SIZE, st.lists(CALL, max_size=2)),
    st.builds(lambda call, tokens: said(result(call, tokens)), CALL, SIZE),
    SIZE.map(lambda tokens: said(bash(tokens))),
    st.integers(0, 15).map(lambda at: hide(f"e{at}")),
    st.integers(0, 15).map(lambda at: ContextEditEntry(target_id=f"e{at}", replacement="xxxx")),
    st.integers(0, 15).map(lambda at: compacted(f"e{at}")),
    st.sampled_from([NOTE, LEFT, PROMPT, *METADATA]),
)
BRANCH = st.lists(DRAFT, max_size=16).map(lambda drafts: chain(*drafts))


def calls_of(message: Message | None) -> set[str]:
    content: list[Any] = message.content if isinstance(message, AssistantMessage) else []
    return {block.id for block in content if isinstance(block, ToolCallBlock)}


@given(BRANCH, st.integers(0, 120))
@example(chain(said(user(20)), said(replied(1, "c1")), said(bash(1)), said(result("c1", 20))), 20)
def test_a_result_is_never_separated_from_its_call(path: list[Entry], keep: int) -> None:
    """Compaction: Choosing the cut."""
    span = span_of(path)
    cut = find_cut(span, keep)
    if cut is None:
        return
    called_at: dict[str, int] = {}
    for at, placed in enumerate(span):
        called_at |= dict.fromkeys(calls_of(placed.message), at)
        if isinstance(placed.message, ToolResultMessage) and at >= cut.kept:
            assert called_at.get(placed.message.tool_call_id, at) >= cut.kept


@given(BRANCH, st.integers(0, 120))
def test_the_kept_part_begins_with_a_message_that_may_stand_first(path: list[Entry], keep: int) -> None:
    """Compaction: Choosing the cut."""
    span = span_of(path)
    cut = find_cut(span, keep)
    if cut is None:
        return
    first = next((placed.message for placed in span[cut.kept :] if placed.message is not None), None)
    assert not isinstance(first, ToolResultMessage | SystemMessage)
    assert 0 <= cut.turn <= cut.kept < len(span)


@given(BRANCH, st.integers(0, 120))
def test_every_message_is_either_summarised_or_kept(path: list[Entry], keep: int) -> None:
    """Compaction: Choosing the cut."""
    made = prepare(path, build_context(path), CompactionSettings(keep_recent_tokens=keep))
    if made is None:
        return
    span = span_of(path)
    after = build_context([*path, compacted(made.first_kept_entry_id, id="new", parent_id=path[-1].id)])
    kept = [message for message in after.messages[1:] if not isinstance(message, SystemMessage)]
    if isinstance(after.messages[0], SystemMessage):
        kept = kept[1:]
    in_span = [one.message for one in span if one.message and not isinstance(one.message, SystemMessage)]
    assert [*made.messages_to_summarize, *made.turn_prefix_messages, *kept] == in_span


@given(BRANCH)
def test_no_branch_has_less_than_no_tokens(path: list[Entry]) -> None:
    """Compaction: Counting tokens."""
    made = prepared(path, attrs.evolve(SMALL, keep_recent_tokens=0))
    assert made is None or made.tokens_before >= 0
