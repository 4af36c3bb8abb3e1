"""When a context is compacted without being asked for."""

import attrs
import pytest

from knightcode.agent.compaction import CompactionSettings, Decision, over_threshold
from knightcode.messages import AssistantMessage
from knightcode.models.model import Model
from knightcode.sessions.entries import ContextEditEntry, Entry
from tests.agent.compaction.pieces import MODEL, SMALL, compacted, decided, hide, replied, user
from tests.sessions.samples import START_MS, chain, said

OTHER = attrs.evolve(MODEL, id="other")
TOO_LONG = "400 prompt is too long: 1200 tokens > 1000 maximum"
OFF = attrs.evolve(SMALL, enabled=False)


def after(reply: AssistantMessage, *more: Entry) -> list[Entry]:
    return chain(said(user(5)), said(reply), *more)


@pytest.mark.parametrize(
    ("tokens", "window", "settings", "over"),
    [
        (900, 1_000, SMALL, False),
        (901, 1_000, SMALL, True),
        (901, 1_000, OFF, False),
        (10**9, 0, SMALL, False),
        (10**9, -1, SMALL, False),
        (0, 50, SMALL, True),
        (1_000, 1_000, CompactionSettings(reserve_tokens=0), False),
        (1_001, 1_000, CompactionSettings(reserve_tokens=0), True),
    ],
)
def test_the_threshold_is_the_window_without_the_reserve(
    tokens: int, window: int, settings: CompactionSettings, over: bool
) -> None:
    """Compaction: When automatic compaction runs."""
    assert over_threshold(tokens, attrs.evolve(MODEL, context_window=window), settings) is over


@pytest.mark.parametrize(("usage", "decision"), [(900, Decision.NOTHING), (901, Decision.THRESHOLD)])
def test_a_reply_over_the_threshold_is_followed_by_a_compaction(usage: int, decision: Decision) -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(usage=usage))) is decision


def test_what_came_after_a_reply_does_not_change_its_figure() -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(usage=800), said(user(500)))) is Decision.NOTHING


def test_nothing_happens_without_a_reply() -> None:
    """Compaction: Decision after a reply."""
    assert decided([]) is Decision.NOTHING
    assert decided(chain(said(user(5_000))), before_prompt=True) is Decision.NOTHING


@pytest.mark.parametrize(
    "reply",
    [replied(usage=950), replied(stop="error", error=TOO_LONG), replied(usage=1_001)],
    ids=["over the threshold", "overflow", "silent overflow"],
)
def test_nothing_happens_where_automatic_compaction_is_off(reply: AssistantMessage) -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(reply), settings=OFF) is Decision.NOTHING


def test_an_aborted_reply_counts_before_a_prompt_only() -> None:
    """Compaction: Decision after a reply."""
    path = after(replied(usage=950, stop="aborted"))
    assert decided(path) is Decision.NOTHING
    assert decided(path, before_prompt=True) is Decision.THRESHOLD


def test_a_reply_from_before_the_last_compaction_is_stale() -> None:
    """Compaction: Decision after a reply."""
    path = after(replied(usage=950), compacted("e1"))
    assert decided(path) is Decision.NOTHING
    assert decided(path, before_prompt=True) is Decision.NOTHING
    clock_went_back = after(replied(usage=950, at_ms=START_MS + 60_000), compacted("e1"))
    assert decided(clock_went_back) is Decision.NOTHING


@pytest.mark.parametrize(
    ("asked_at_ms", "decision"), [(START_MS - 1, Decision.NOTHING), (START_MS, Decision.THRESHOLD)]
)
def test_a_reply_to_a_request_from_before_the_last_compaction_is_stale(
    asked_at_ms: int, decision: Decision
) -> None:
    """Compaction: Decision after a reply."""
    path = chain(compacted(None), said(user(5)), said(replied(usage=950, at_ms=asked_at_ms)))
    assert decided(path) is decision


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(replied(stop="error", error=TOO_LONG), id="the provider says so"),
        pytest.param(replied(stop="length", usage=995), id="no room for a reply"),
        pytest.param(replied(stop="length", usage=500, output=99), id="cut off before the model's limit"),
    ],
)
def test_a_reply_that_did_not_fit_is_asked_for_again(reply: AssistantMessage) -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(reply)) is Decision.RECOVER


def test_a_reply_that_used_up_the_models_limit_stands() -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(stop="length", usage=500, output=100))) is Decision.NOTHING


def test_a_reply_whose_request_was_cut_silently_stands() -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(usage=1_001))) is Decision.OVERFLOW


@pytest.mark.parametrize("text", ["429 rate limit: too many tokens", "500 server error", ""])
def test_an_error_of_another_kind_calls_for_nothing(text: str) -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(stop="error", error=text))) is Decision.NOTHING


def test_another_models_overflow_is_no_reason_to_ask_again() -> None:
    """Compaction: Decision after a reply."""
    failed = replied(stop="error", error=TOO_LONG, model=OTHER)
    assert decided(after(failed)) is Decision.NOTHING
    cut_silently = replied(usage=1_001, model=OTHER)
    assert decided(after(cut_silently)) is Decision.THRESHOLD


def test_an_overflow_that_the_model_no_longer_sees_is_no_reason_to_ask_again() -> None:
    """Compaction: Decision after a reply."""
    assert decided(after(replied(stop="error", error=TOO_LONG), hide("e1"))) is Decision.NOTHING


def test_an_overflow_with_other_words_in_its_place_is_still_seen() -> None:
    """Compaction: Decision after a reply."""
    edit = ContextEditEntry(target_id="e1", replacement="shorter")
    assert decided(after(replied(stop="error", error=TOO_LONG), edit)) is Decision.RECOVER


@pytest.mark.parametrize("window", [0, -1])
def test_no_request_is_too_large_for_an_unknown_window_unless_the_provider_says_so(window: int) -> None:
    """Compaction: When automatic compaction runs."""
    unknown: Model = attrs.evolve(MODEL, context_window=window)
    assert decided(after(replied(usage=10**9)), model=unknown) is Decision.NOTHING
    failed = replied(stop="error", error=TOO_LONG)
    assert decided(after(failed), model=unknown) is Decision.RECOVER


@pytest.mark.parametrize("last", [replied(stop="error", error="500"), replied()], ids=["error", "no usage"])
def test_a_reply_without_a_figure_is_measured_by_the_one_before_it(last: AssistantMessage) -> None:
    """Compaction: Decision after a reply."""
    small = chain(said(replied(usage=890)), said(user(10)), said(last))
    large = chain(said(replied(usage=890)), said(user(11)), said(last))
    assert (decided(small), decided(large)) == (Decision.NOTHING, Decision.THRESHOLD)


def test_what_a_failed_reply_reports_is_not_its_figure() -> None:
    """Compaction: Decision after a reply."""
    path = chain(said(replied(usage=100)), said(replied(stop="error", error="500", usage=950)))
    assert decided(path) is Decision.NOTHING


def test_without_any_figure_the_context_is_estimated() -> None:
    """Compaction: Decision after a reply."""
    assert decided(chain(said(user(900)), said(replied()))) is Decision.NOTHING
    assert decided(chain(said(user(901)), said(replied()))) is Decision.THRESHOLD


def test_a_figure_from_before_the_last_compaction_decides_nothing() -> None:
    """Compaction: Decision after a reply."""
    kept = chain(
        said(user(5)),
        said(replied(usage=950, at_ms=START_MS + 60_000)),
        compacted("e0"),
        said(user(5)),
        said(replied(stop="error", error="500", at_ms=START_MS + 60_000)),
    )
    assert decided(kept) is Decision.NOTHING
    newer = chain(*kept[:3], said(replied(usage=900)), said(user(1)), kept[4])
    assert decided(newer) is Decision.THRESHOLD
    forgotten = chain(*kept[:2], compacted("e2"), said(user(901)), kept[4])
    assert decided(forgotten) is Decision.THRESHOLD


def test_a_context_with_edits_is_measured_as_it_is_now() -> None:
    """Compaction: Decision after a reply."""
    path = chain(said(user(900)), said(user(5)), said(replied(usage=950)), hide("e0"))
    assert decided(path) is Decision.NOTHING
    assert decided(chain(said(user(901)), hide("e9"), said(replied()))) is Decision.THRESHOLD


def test_an_edit_of_what_was_summarised_since_changes_nothing() -> None:
    """Compaction: Decision after a reply."""
    path = chain(
        said(user(5)),
        hide("e0"),
        said(user(950)),
        said(replied(usage=50)),
        compacted("e2"),
        said(replied(stop="error", error="500", at_ms=START_MS + 60_000)),
    )
    assert decided(path) is Decision.NOTHING
