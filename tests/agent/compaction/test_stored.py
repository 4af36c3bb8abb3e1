"""A compaction in a session: what is appended, what the model is told afterwards, what people are told."""

from typing import get_args

import attrs
import pytest
import trio

from knightcode.agent.compaction import (
    CompactionSettings,
    Decision,
    FileOps,
    Summary,
    compaction_entry,
    compaction_result,
    context_tokens,
    decide,
    failure_text,
    hidden_attempt,
    prepare,
    summarise,
)
from knightcode.agent.compaction.estimate import sum_of_estimates
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.retry import RetryPolicy
from knightcode.events import CompactionReason, CompactionResult
from knightcode.messages import (
    CompactionSummaryMessage,
    SystemMessage,
    ToolDeclaration,
    Usage,
)
from knightcode.sessions.context import SessionContext, SystemState, build_context
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, Entry
from knightcode.sessions.log import SessionLog
from tests.agent.compaction.pieces import MODEL, SMALL, preparation, replied, result, sized, user
from tests.agent.stage import Plays, now_ms, says
from tests.sessions.samples import START_MS, chain, said, ticking

SUMMARY = Summary("What was.", Usage(input=7, total_tokens=7), FileOps(edited=frozenset({"a.py"})))
DETAILS = {"readFiles": [], "modifiedFiles": ["a.py"]}
EMPTY = build_context([])
SYSTEM = SystemState("Be good.", {"tools": "Use them."}, (ToolDeclaration(name="ls"),))


def session() -> SessionLog:
    return SessionLog.create(cwd="/", folder=None, now_ms=ticking())


def test_an_entry_holds_the_summary_and_the_prompt_as_it_stands() -> None:
    """Compaction: Storing."""
    context = SessionContext(messages=(), system=SYSTEM, model=None, thinking_level="off")
    assert compaction_entry(
        "manual", preparation(history=(user(5),)), SUMMARY, context, 17
    ) == CompactionEntry(
        summary="What was.",
        first_kept_entry_id="e1",
        tokens_before=900,
        system_message=SystemMessage(
            timestamp=17,
            content="Be good.",
            sections={"tools": "Use them."},
            tools_added=[ToolDeclaration(name="ls")],
        ),
        usage=Usage(input=7, total_tokens=7),
        details={**DETAILS, "reason": "manual"},
    )


def test_a_branch_without_a_prompt_gets_none() -> None:
    """Compaction: Storing."""
    assert compaction_entry("manual", preparation(), SUMMARY, EMPTY, 17).system_message is None


def test_a_result_says_how_large_the_context_is_now() -> None:
    """Compaction: Storing."""
    log = session()
    log.append_message(SystemMessage(timestamp=0, content=sized(40)))
    log.append_message(user(500))
    kept = log.append_message(user(60))
    made = attrs.evolve(preparation(history=(user(500),)), first_kept_entry_id=kept.id)
    stored = log.append_entry(compaction_entry("threshold", made, SUMMARY, log.context(), 17))
    assert compaction_result(stored, log.context()) == CompactionResult(
        summary="What was.",
        first_kept_entry_id=kept.id,
        tokens_before=900,
        estimated_tokens_after=40 + 3 + 60,
        usage=Usage(input=7, total_tokens=7),
        details={**DETAILS, "reason": "threshold"},
    )


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("manual", "Compaction failed: 503"),
        ("threshold", "Auto-compaction failed: 503"),
        ("overflow", "Context overflow recovery failed: 503"),
    ],
)
def test_a_failure_says_what_failed_and_why(reason: CompactionReason, text: str) -> None:
    """Compaction: Manual compaction, Overflow and length recovery."""
    assert failure_text(reason, "503") == text


def test_every_reason_has_its_failure_text() -> None:
    """Compaction: Overflow and length recovery."""
    assert len({failure_text(reason, "") for reason in get_args(CompactionReason)}) == 3


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ([], []),
        (chain(said(user(5))), []),
        (chain(said(user(5)), said(replied(1))), ["e1"]),
        (chain(said(replied(1)), said(replied(1, "c")), said(user(5))), ["e1"]),
        (chain(said(replied(1, "b")), said(result("b", 1)), said(replied(1))), ["e2"]),
        (chain(said(replied(1, "b", "c")), said(result("c", 1)), said(result("b", 1))), ["e0", "e1", "e2"]),
    ],
)
def test_a_failed_attempt_is_hidden_with_its_results(path: list[Entry], hidden: list[str]) -> None:
    """Compaction: Overflow and length recovery."""
    assert hidden_attempt(path) == [ContextEditEntry(target_id=target, replacement=None) for target in hidden]


async def test_a_compacted_session_goes_on_from_the_summary_and_what_was_kept() -> None:
    """Compaction: Storing."""
    log, settings = session(), CompactionSettings(reserve_tokens=100, keep_recent_tokens=50)
    log.append_message(SystemMessage(timestamp=0, sections={"preamble": sized(40)}))
    for mark in "abc":
        log.append_message(user(30, mark))
        log.append_message(replied(30, usage=890, output=20, at_ms=START_MS))
    assert decide(log.current_branch, log.context(), MODEL, settings) is Decision.THRESHOLD
    made = prepare(log.current_branch, log.context(), settings)
    assert made is not None
    with trio.fail_after(5):
        summary = await summarise(
            made,
            models=Plays([says(sized(10))]),
            model=MODEL,
            thinking_level="off",
            retry=RetryPolicy(),
            interrupt=Interrupt(),
            now_ms=now_ms,
        )
    assert isinstance(summary, Summary)
    stored = log.append_entry(compaction_entry("overflow", made, summary, log.context(), 17))
    system, told, *kept = log.context().messages
    assert system == SystemMessage(timestamp=17, sections={"preamble": sized(40)})
    assert isinstance(told, CompactionSummaryMessage)
    assert (told.summary, told.tokens_before) == (sized(10), 910)
    assert kept == [user(30, "c"), replied(30, usage=890, output=20, at_ms=START_MS)]
    answer = compaction_result(stored, log.context())
    assert answer.estimated_tokens_after == sum_of_estimates(log.context().messages) == 40 + 10 + 60
    assert context_tokens(log.current_branch, log.context()) == 110
    assert decide(log.current_branch, log.context(), MODEL, settings) is Decision.NOTHING
    assert prepare(log.current_branch, log.context(), settings) is None


def test_an_input_that_did_not_fit_can_be_asked_about_after_the_recovery() -> None:
    """Compaction: Overflow and length recovery."""
    log = session()
    log.append_message(user(5, "a"))
    log.append_message(replied(5))
    log.append_message(user(2_000, "b"))
    log.append_message(replied(stop="error", error="prompt is too long", at_ms=START_MS + 60_000))
    assert decide(log.current_branch, log.context(), MODEL, SMALL) is Decision.RECOVER
    for edit in hidden_attempt(log.current_branch):
        log.append_entry(edit)
    made = prepare(log.current_branch, log.context(), SMALL)
    assert made is not None
    assert (made.messages_to_summarize, made.turn_prefix_messages) == (
        (user(5, "a"), replied(5)),
        (user(2_000, "b"),),
    )
    log.append_entry(compaction_entry("threshold", made, SUMMARY, log.context(), 17))
    (told,) = log.context().messages
    assert isinstance(told, CompactionSummaryMessage)
    assert told.summary == "What was."
