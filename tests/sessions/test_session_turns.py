"""A branch cut into turns."""

from collections.abc import Sequence
from typing import Any, overload

from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.messages import BashExecutionMessage, SystemMessage
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    ModelChangeEntry,
    TurnEndEntry,
    TurnError,
    TurnStartEntry,
)
from knightcode.sessions.turns import StoredTurn, TurnEntry, is_item_entry, stored_turns, turn_starts
from tests.sessions.samples import START_MS, chain, reply, result, said, user

NOTE = CustomMessageEntry(custom_type="note", content="n")
SETTING = ModelChangeEntry(provider="acme", model_id="m1")


def at(seconds: int) -> int:
    return START_MS + 1000 * seconds


def turn(
    path: list[Entry],
    turn_id: str,
    status: Any,
    start: int,
    end: int | None,
    entries: dict[int, int | None],
    error: TurnError | None = None,
) -> StoredTurn:
    """`entries` maps positions in the path to ordinals; times are positions as well."""
    return StoredTurn(
        id=turn_id,
        status=status,
        started_at_ms=at(start),
        completed_at_ms=None if end is None else at(end),
        error=error,
        entries=tuple(TurnEntry(ordinal, path[index]) for index, ordinal in entries.items()),
    )


def test_a_turn_is_what_lies_between_its_markers() -> None:
    """App server: Durable turns and read-back."""
    path = chain(
        TurnStartEntry(),
        said(SystemMessage(timestamp=1)),
        said(user("q")),
        said(reply(calls=("c",))),
        said(result("c")),
        CompactionEntry(summary="s", first_kept_entry_id="e2"),
        said(user("steered")),
        said(reply()),
        TurnEndEntry(turn_id="e0", status="completed"),
    )
    assert stored_turns(path) == [
        turn(path, "e0", "completed", 0, 8, {1: None, 2: 0, 3: 1, 4: None, 5: 2, 6: 3, 7: 4})
    ]


def test_only_entries_that_become_items_have_ordinals() -> None:
    """App server: Item ids."""
    counted: list[Entry] = [
        said(user("u")),
        said(reply()),
        said(BashExecutionMessage(timestamp=1, command="ls")),
        NOTE,
        CompactionEntry(summary="s"),
        BranchSummaryEntry(from_id="root", summary="s"),
    ]
    others: list[Entry] = [
        said(result("c")),
        said(SystemMessage(timestamp=1)),
        SETTING,
        CustomEntry(custom_type="x"),
    ]
    assert [is_item_entry(entry) for entry in counted + others] == [True] * 6 + [False] * 4


def test_a_failed_turn_tells_its_error() -> None:
    error = TurnError(message="429", kind="rateLimit")
    path = chain(TurnStartEntry(), TurnEndEntry(turn_id="e0", status="failed", error=error))
    assert stored_turns(path) == [turn(path, "e0", "failed", 0, 1, {}, error)]


def test_a_turn_without_an_end_is_interrupted_and_was_never_completed() -> None:
    path = chain(TurnStartEntry(), said(user("q")), said(reply(calls=("c",))))
    assert stored_turns(path) == [turn(path, "e0", "interrupted", 0, None, {1: 0, 2: 1})]


def test_a_turn_without_an_end_ends_where_the_next_one_starts() -> None:
    path = chain(
        TurnStartEntry(),
        said(user("q")),
        TurnStartEntry(),
        said(user("again")),
        TurnEndEntry(turn_id="e2", status="completed"),
    )
    assert stored_turns(path) == [
        turn(path, "e0", "interrupted", 0, None, {1: 0}),
        turn(path, "e2", "completed", 2, 4, {3: 0}),
    ]


def test_an_end_marker_that_names_another_turn_ends_nothing() -> None:
    path = chain(
        TurnEndEntry(turn_id="gone", status="failed"),
        TurnStartEntry(),
        TurnEndEntry(turn_id="e0", status="failed"),
        said(user("q")),
        TurnEndEntry(turn_id="e1", status="completed"),
        TurnEndEntry(turn_id="e1", status="failed"),
    )
    assert stored_turns(path) == [turn(path, "e1", "completed", 1, 4, {3: 0})]


def test_entries_between_turns_belong_to_the_turn_before_and_leave_its_times() -> None:
    path = chain(
        TurnStartEntry(),
        said(user("q")),
        TurnEndEntry(turn_id="e0", status="completed"),
        NOTE,
        SETTING,
        TurnStartEntry(),
        TurnEndEntry(turn_id="e5", status="interrupted"),
        NOTE,
    )
    assert stored_turns(path) == [
        turn(path, "e0", "completed", 0, 2, {1: 0, 3: 1, 4: None}),
        turn(path, "e5", "interrupted", 5, 6, {7: 0}),
    ]


def test_entries_before_the_first_turn_stand_in_front_of_it() -> None:
    path = chain(SETTING, NOTE, TurnStartEntry(), said(user("q")))
    assert stored_turns(path) == [turn(path, "e2", "interrupted", 2, None, {0: None, 1: 0, 3: 1})]


def test_item_entries_without_any_turn_are_one_completed_turn() -> None:
    path = chain(SETTING, NOTE, said(BashExecutionMessage(timestamp=1, command="ls")), SETTING)
    assert stored_turns(path) == [turn(path, "e1", "completed", 1, 2, {0: None, 1: 0, 2: 1, 3: None})]


def test_a_branch_without_items_has_no_turns() -> None:
    assert [stored_turns([]), stored_turns(chain(SETTING, said(SystemMessage(timestamp=1))))] == [[], []]


# --- without markers --------------------------------------------------------------------------------


def test_without_markers_every_user_message_begins_a_turn() -> None:
    path = chain(SETTING, said(user("a")), said(reply()), said(user("b")), said(reply()), SETTING)
    assert stored_turns(path) == [
        turn(path, "e1", "completed", 1, 2, {0: None, 1: 0, 2: 1}),
        turn(path, "e3", "completed", 3, 4, {3: 0, 4: 1, 5: None}),
    ]


def test_without_markers_the_last_reply_tells_how_a_turn_ended() -> None:
    path = chain(
        said(user("a")),
        said(reply(stop="error", error="429 slow down")),
        said(user("b")),
        said(reply(stop="error", error="x")),
        said(reply(stop="aborted", calls=("c",))),
        said(user("c")),
        said(reply(stop="length")),
    )
    turns = stored_turns(path, kind_of=lambda text: "rateLimit" if text.startswith("429") else "other")
    assert turns == [
        turn(
            path,
            "e0",
            "failed",
            0,
            1,
            {0: 0, 1: 1},
            TurnError(message="429 slow down", kind="rateLimit"),
        ),
        turn(path, "e2", "interrupted", 2, 4, {2: 0, 3: 1, 4: 2}),
        turn(path, "e5", "completed", 5, 6, {5: 0, 6: 1}),
    ]


def test_without_markers_the_last_turn_is_interrupted_when_something_was_still_to_come() -> None:
    unfinished = [
        chain(said(user("q"))),
        chain(said(user("q")), said(reply(calls=("c",)))),
        chain(said(user("q")), said(reply(calls=("c",))), said(result("c"))),
        chain(said(user("q")), SETTING, NOTE),
    ]
    ends = [(turn.status, turn.completed_at_ms) for path in unfinished for turn in stored_turns(path)]
    assert ends == [("interrupted", None)] * 4


def test_without_markers_or_a_classifier_an_error_is_of_the_kind_other_and_its_results_count() -> None:
    path = chain(said(user("a")), said(reply(stop="error", error="x")), said(result("c")), said(user("b")))
    assert stored_turns(path)[0] == turn(
        path, "e0", "failed", 0, 2, {0: 0, 1: 1, 2: None}, TurnError(message="x", kind="other")
    )


def test_without_markers_an_earlier_turn_is_over_when_the_next_begins() -> None:
    path = chain(said(user("a")), said(user("b")), said(reply()))
    assert stored_turns(path) == [
        turn(path, "e0", "completed", 0, 0, {0: 0}),
        turn(path, "e1", "completed", 1, 2, {1: 0, 2: 1}),
    ]


def test_markers_in_a_later_part_leave_the_earlier_part_its_turns() -> None:
    path = chain(
        said(user("a")),
        said(reply(calls=("c",))),
        TurnStartEntry(),
        said(user("b")),
        TurnEndEntry(turn_id="e2", status="completed"),
    )
    assert stored_turns(path) == [
        turn(path, "e0", "interrupted", 0, None, {0: 0, 1: 1}),
        turn(path, "e2", "completed", 2, 4, {3: 0}),
    ]


def test_a_part_without_markers_after_one_with_them_has_turns_of_its_own() -> None:
    path = chain(
        TurnStartEntry(),
        said(user("a")),
        TurnEndEntry(turn_id="e0", status="completed"),
        NOTE,
        said(user("b")),
        said(reply()),
    )
    assert stored_turns(path) == [
        turn(path, "e0", "completed", 0, 2, {1: 0, 3: 1}),
        turn(path, "e4", "completed", 4, 5, {4: 0, 5: 1}),
    ]


# --- prefixes ----------------------------------------------------------------------------------------

DRAFTS: st.SearchStrategy[list[Entry]] = st.lists(
    st.sampled_from(
        [
            TurnStartEntry(),
            TurnEndEntry(turn_id="last", status="completed"),
            said(user("q")),
            said(reply(calls=("c",))),
            said(reply()),
            said(result("c")),
            NOTE,
            SETTING,
        ]
    ),
    max_size=14,
)


def with_ends(drafts: list[Entry]) -> list[Entry]:
    """Let every end marker name the start before it."""
    start = "none"
    fixed: list[Entry] = []
    for index, draft in enumerate(drafts):
        if isinstance(draft, TurnStartEntry):
            start = f"e{index}"
        fixed.append(
            TurnEndEntry(turn_id=start, status="completed") if isinstance(draft, TurnEndEntry) else draft
        )
    return chain(*fixed)


@given(DRAFTS)
@settings(max_examples=100)
def test_once_a_turn_began_later_entries_never_change_the_place_of_earlier_ones(drafts: list[Entry]) -> None:
    path = with_ends([NOTE, TurnStartEntry(), *drafts])
    places: dict[str, tuple[str, int | None]] = {}
    for length in range(2, len(path) + 1):
        turns = stored_turns(path[:length])
        now = {entry.id: (turn.id, ordinal) for turn in turns for ordinal, entry in turn.entries}
        assert now | places == now
        places = now


@given(DRAFTS)
@settings(max_examples=100)
def test_every_item_entry_is_in_exactly_one_turn(drafts: list[Entry]) -> None:
    path = with_ends(drafts)
    found = [
        entry.id for turn in stored_turns(path) for ordinal, entry in turn.entries if ordinal is not None
    ]
    assert found == [entry.id for entry in path if is_item_entry(entry)]
    for one in stored_turns(path):
        ordinals = [ordinal for ordinal, _ in one.entries if ordinal is not None]
        assert ordinals == list(range(len(ordinals)))


# --- backwards ---------------------------------------------------------------------------------------


class Watched(Sequence[Entry]):
    """A branch that remembers the furthest position that was looked at."""

    def __init__(self, path: list[Entry]) -> None:
        self.path = path
        self.furthest = len(path)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        first = index.start or 0 if isinstance(index, slice) else index
        self.furthest = min(self.furthest, first)
        return self.path[index]

    def __len__(self) -> int:
        return len(self.path)


@given(DRAFTS)
@settings(max_examples=150)
def test_turns_begin_backwards_where_they_begin_forwards(drafts: list[Entry]) -> None:
    path = with_ends(drafts)
    for end in range(len(path) + 1):
        began = [path[place].id for place in turn_starts(path, end)]
        turns = stored_turns(path[:end])
        synthetic = bool(turns) and not began
        assert began == ([] if synthetic else [one.id for one in reversed(turns)])
        assert not synthetic or not any(isinstance(one, TurnStartEntry) for one in path[:end])


@given(DRAFTS)
@settings(max_examples=150)
def test_a_part_between_two_starts_gives_the_turns_of_the_whole(drafts: list[Entry]) -> None:
    path = with_ends(drafts)
    turns = stored_turns(path)
    starts = list(turn_starts(path))[::-1]
    for first, begin in enumerate(starts):
        for last, end in enumerate(starts[first:], first):
            part = path[begin if first else 0 : end]
            assert begin == end or stored_turns(part, following=path[end]) == turns[first:last]
        assert stored_turns(path[begin if first else 0 :]) == turns[first:]


def test_the_newest_turns_are_found_without_a_look_at_the_older_ones() -> None:
    path = Watched(with_ends([TurnStartEntry(), said(user("q")), said(reply())] * 1000))
    starts = turn_starts(path)
    assert [next(starts) for _ in range(3)] == [2997, 2994, 2991]
    assert path.furthest == 2991
