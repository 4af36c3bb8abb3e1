"""A summary from the model: what is asked, what counts as an answer, and how the asking ends."""

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from knightcode.agent.compaction import (
    Aborted,
    CompactionSettings,
    Failed,
    FileOps,
    Outcome,
    Preparation,
    Summary,
    summarise,
)
from knightcode.agent.compaction.prompts import NO_HISTORY, SYSTEM_PROMPT
from knightcode.agent.compaction.summary import CALLED_A_TOOL, CUT_OFF, EMPTY, NO_REASON
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.retry import RetryPolicy
from knightcode.messages import Cost, ModelMessage, ThinkingLevel, Usage, UserMessage, text_of
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from tests.agent.compaction.pieces import MODEL, SMALL, preparation, replied, user
from tests.agent.stage import Play, Plays, now_ms, says

HISTORY = (UserMessage(timestamp=0, content="Fix it"),)
PREFIX = (UserMessage(timestamp=0, content="And that"),)
FILES = FileOps(read=frozenset({"a.py"}))
BLOCKS = "\n\n<read-files>\na.py\n</read-files>"
POLICY = RetryPolicy(max_retries=2, base_delay_ms=1_000)


def fails(text: str, *, usage: Usage = Usage(), retry_after_ms: int | None = None) -> Play:  # noqa: B008
    async def play(_: ModelRequest, reply: ReplyBuilder) -> None:
        await trio.lowlevel.checkpoint()
        reply.usage = usage
        reply.fail(text, retry_after_ms=retry_after_ms)

    return play


def costs(text: str, usage: Usage) -> Play:
    async def play(request: ModelRequest, reply: ReplyBuilder) -> None:
        reply.usage = usage
        await says(text)(request, reply)

    return play


async def says_half_and_hangs(_: ModelRequest, reply: ReplyBuilder) -> None:
    reply.delta(reply.open_text(), "half")
    await trio.sleep_forever()


async def thinks_only(_: ModelRequest, reply: ReplyBuilder) -> None:
    await trio.lowlevel.checkpoint()
    reply.delta(reply.open_thinking(), "What shall I say?")
    reply.delta(reply.open_text(), " \n")
    reply.done("stop")


async def gives_up(_: ModelRequest, reply: ReplyBuilder) -> None:
    await trio.lowlevel.checkpoint()
    reply.abort()


@attrs.define(eq=False)
class Desk:
    """Where a summary is asked for."""

    models: Plays
    interrupt: Interrupt = attrs.field(factory=Interrupt)
    model: Model = MODEL
    level: ThinkingLevel = "high"
    policy: RetryPolicy = POLICY

    async def ask(self, given: Preparation, instructions: str | None = None) -> Outcome:
        with trio.fail_after(600):
            return await summarise(
                given,
                models=self.models,
                model=self.model,
                thinking_level=self.level,
                retry=self.policy,
                interrupt=self.interrupt,
                now_ms=now_ms,
                instructions=instructions,
            )

    def prompts(self) -> list[str]:
        """What the user is made to say in each request."""
        return ["".join(map(said_in, request.messages)) for request in self.models.asked]


def said_in(message: ModelMessage) -> str:
    assert isinstance(message, UserMessage)
    return text_of(message.content)


def desk(*plays: Play) -> Desk:
    return Desk(Plays(list(plays)))


# --- what is asked ------------------------------------------------------------------------------------


async def test_a_history_is_summarised_with_its_file_lists() -> None:
    """Compaction: Producing the summary."""
    usage = Usage(input=10, output=2, total_tokens=12)
    at = desk(costs("\nThe summary.\n", usage))
    outcome = await at.ask(preparation(history=HISTORY, files=FILES))
    assert outcome == Summary("The summary." + BLOCKS, usage, FILES)
    (prompt,) = at.prompts()
    assert prompt.startswith("<conversation>\n[User]: Fix it\n</conversation>\n\nSummarise ")
    assert "<previous-summary>" not in prompt


async def test_a_request_for_a_summary_stands_alone() -> None:
    """Compaction: Calls."""
    at = desk(says("S"), says("P"))
    await at.ask(preparation(history=HISTORY, prefix=PREFIX))
    one, other = at.models.asked
    assert one == ModelRequest(
        model=MODEL,
        system_prompt=SYSTEM_PROMPT,
        messages=one.messages,
        thinking_level="high",
        max_tokens=80,
        session_id=one.session_id,
        cache_retention="none",
    )
    assert attrs.evolve(other, messages=one.messages, session_id=one.session_id) == attrs.evolve(
        one, max_tokens=50
    )
    assert one.session_id and other.session_id and one.session_id != other.session_id


@pytest.mark.parametrize(
    ("reserve", "max_tokens", "limits"),
    [
        (101, 1_000, [80, 50]),
        (101, 60, [60, 50]),
        (101, 0, [80, 50]),
        (16_384, 8_192, [8_192, 8_192]),
        (16_384, 100_000, [13_107, 8_192]),
        (0, 1_000, [None, None]),
    ],
)
async def test_the_reserve_and_the_model_limit_the_output(
    reserve: int, max_tokens: int, limits: list[int | None]
) -> None:
    """Compaction: Calls."""
    at = desk(says("S"), says("P"))
    at.model = attrs.evolve(MODEL, max_tokens=max_tokens)
    settings = CompactionSettings(reserve_tokens=reserve)
    await at.ask(preparation(history=HISTORY, prefix=PREFIX, settings=settings))
    assert [request.max_tokens for request in at.models.asked] == limits


@pytest.mark.parametrize(
    ("reasoning", "level", "asked"), [(True, "low", "low"), (True, "off", "off"), (False, "low", "off")]
)
async def test_the_model_reasons_as_in_the_session_if_it_can(
    reasoning: bool, level: ThinkingLevel, asked: ThinkingLevel
) -> None:
    """Compaction: Calls."""
    at = desk(says("S"))
    at.model, at.level = attrs.evolve(MODEL, reasoning=reasoning), level
    await at.ask(preparation(history=HISTORY))
    assert [request.thinking_level for request in at.models.asked] == [asked]


async def test_an_old_summary_is_brought_up_to_date() -> None:
    """Compaction: Prompt shape."""
    at = desk(says("New."))
    await at.ask(preparation(history=HISTORY, previous="Old."))
    (prompt,) = at.prompts()
    assert prompt.startswith(
        "<conversation>\n[User]: Fix it\n</conversation>\n\n"
        "<previous-summary>\nOld.\n</previous-summary>\n\nThe previous summary "
    )


@pytest.mark.parametrize("previous", [None, "Old."])
async def test_a_summary_of_a_history_has_the_fixed_sections(previous: str | None) -> None:
    """Compaction: Prompt shape."""
    at = desk(says("S"))
    await at.ask(preparation(history=HISTORY, previous=previous))
    (prompt,) = at.prompts()
    headings = [line for line in prompt.splitlines() if line.startswith("#")]
    assert headings == [
        "## Goal",
        "## Constraints & Preferences",
        "## Progress",
        "### Done",
        "### In Progress",
        "### Blocked",
        "## Key Decisions",
        "## Next Steps",
        "## Critical Context",
    ]


async def test_instructions_are_for_the_history_alone() -> None:
    """Compaction: Prompt shape."""
    at = desk(says("S"), says("P"))
    await at.ask(preparation(history=HISTORY, prefix=PREFIX), "the parser")
    history, prefix = at.prompts()
    assert history.endswith("\n\nPay special attention to: the parser")
    assert "the parser" not in prefix


async def test_empty_instructions_are_none() -> None:
    """Compaction: Prompt shape."""
    at, same = desk(says("S")), desk(says("S"))
    await at.ask(preparation(history=HISTORY), "")
    await same.ask(preparation(history=HISTORY))
    assert at.prompts() == same.prompts()


# --- a turn that is cut -------------------------------------------------------------------------------


async def test_the_beginning_of_a_cut_turn_is_summarised_after_the_history() -> None:
    """Compaction: Calls."""
    at = desk(says("History."), says("Beginning."))
    outcome = await at.ask(preparation(history=HISTORY, prefix=PREFIX, files=FILES))
    assert isinstance(outcome, Summary)
    assert outcome.text == "History.\n\n---\n\n# Beginning of the Current Request\n\nBeginning." + BLOCKS
    history, prefix = at.prompts()
    assert "[User]: Fix it" in history and "[User]: And that" not in history
    assert prefix.startswith("<conversation>\n[User]: And that\n</conversation>\n\n")
    assert [line for line in prefix.splitlines() if line.startswith("#")] == [
        "## Original Request",
        "## Early Progress",
        "## Context for the Rest",
    ]


@pytest.mark.parametrize(("previous", "history"), [(None, NO_HISTORY), ("Old.", "Old.")])
async def test_without_a_history_the_beginning_of_the_turn_is_the_only_request(
    previous: str | None, history: str
) -> None:
    """Compaction: Calls."""
    at = desk(says("Beginning."))
    outcome = await at.ask(preparation(prefix=PREFIX, previous=previous), "the parser")
    assert isinstance(outcome, Summary)
    assert outcome.text == f"{history}\n\n---\n\n# Beginning of the Current Request\n\nBeginning."
    assert len(at.models.asked) == 1


async def test_usage_is_the_sum_of_all_requests_field_by_field(autojump_clock: MockClock) -> None:
    """Compaction: Storing."""
    first = Usage(
        input=1, output=2, cache_read=3, cache_write=4, total_tokens=10, cost=Cost(input=0.5, total=1)
    )
    at = desk(fails("503", usage=first), costs("S", first), costs("P", first))
    outcome = await at.ask(preparation(history=HISTORY, prefix=PREFIX))
    assert isinstance(outcome, Summary)
    assert outcome.usage == Usage(
        input=3, output=6, cache_read=9, cache_write=12, total_tokens=30, cost=Cost(input=1.5, total=3)
    )


# --- what is no summary -------------------------------------------------------------------------------

NO_SUMMARY = [
    pytest.param(fails("400 bad request"), Failed("400 bad request"), id="error"),
    pytest.param(fails("prompt is too long"), Failed("prompt is too long"), id="overflow"),
    pytest.param(fails(""), Failed(NO_REASON), id="error without a word"),
    pytest.param(says("Half a", stop="length"), Failed(CUT_OFF), id="cut off"),
    pytest.param(says("S", ("1", "read", "{}")), Failed(CALLED_A_TOOL), id="tool call"),
    pytest.param(says("S", ("1", "read", "{}"), stop="stop"), Failed(CALLED_A_TOOL), id="tool call, unsaid"),
    pytest.param(says(""), Failed(EMPTY), id="empty"),
    pytest.param(thinks_only, Failed(EMPTY), id="blank"),
    pytest.param(gives_up, Aborted(), id="aborted"),
]


@pytest.mark.parametrize(("play", "outcome"), NO_SUMMARY)
async def test_what_is_no_whole_summary_is_not_taken_for_one(play: Play, outcome: Outcome) -> None:
    """Compaction: Rejected results."""
    at = desk(play)
    assert await at.ask(preparation(history=HISTORY, prefix=PREFIX)) == outcome
    assert len(at.models.asked) == 1


@pytest.mark.parametrize(("play", "outcome"), NO_SUMMARY)
async def test_half_of_two_summaries_is_none(play: Play, outcome: Outcome) -> None:
    """Compaction: Rejected results."""
    assert await desk(says("S"), play).ask(preparation(history=HISTORY, prefix=PREFIX)) == outcome


# --- retries ------------------------------------------------------------------------------------------


async def test_a_request_that_failed_for_a_while_is_made_again(autojump_clock: MockClock) -> None:
    """Compaction: Retrying summary calls."""
    at = desk(fails("503"), fails("overloaded"), says("S"))
    outcome = await at.ask(preparation(history=HISTORY))
    assert outcome == Summary("S", Usage(), FileOps())
    assert trio.current_time() == 1 + 2
    assert at.models.asked[0] == at.models.asked[1] == at.models.asked[2]


async def test_a_request_is_not_made_again_before_the_provider_wants_it(autojump_clock: MockClock) -> None:
    """Compaction: Retrying summary calls."""
    at = desk(fails("429", retry_after_ms=7_000), says("S"))
    await at.ask(preparation(history=HISTORY))
    assert trio.current_time() == 7


async def test_after_the_last_try_the_summary_has_failed(autojump_clock: MockClock) -> None:
    """Compaction: Retrying summary calls."""
    at = desk(fails("503"), fails("503"), fails("503 still"))
    assert await at.ask(preparation(history=HISTORY)) == Failed("503 still")
    assert trio.current_time() == 3


async def test_each_request_has_all_of_its_tries(autojump_clock: MockClock) -> None:
    """Compaction: Retrying summary calls."""
    at = desk(fails("503"), fails("503"), says("S"), fails("503"), fails("503"), says("P"))
    assert isinstance(await at.ask(preparation(history=HISTORY, prefix=PREFIX)), Summary)


async def test_without_retries_the_first_failure_is_the_last() -> None:
    """Compaction: Retrying summary calls."""
    at = desk(fails("503"))
    at.policy = RetryPolicy(enabled=False)
    assert await at.ask(preparation(history=HISTORY)) == Failed("503")


# --- interrupts ---------------------------------------------------------------------------------------


async def asked_until_it_waits(at: Desk, then: Callable[[], None]) -> tuple[Outcome, float]:
    """Ask, and do something when everybody waits; the outcome, and how long it took after that."""
    outcomes: list[Outcome] = []
    since = 0.0

    async def ask() -> None:
        outcomes.append(await at.ask(preparation(history=HISTORY, prefix=PREFIX)))

    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            since = trio.current_time()
            then()
    (outcome,) = outcomes
    return outcome, trio.current_time() - since


WAITS = [
    pytest.param([says_half_and_hangs], id="in the first request"),
    pytest.param([fails("503")], id="before another try"),
    pytest.param([says("S"), says_half_and_hangs], id="in the second request"),
    pytest.param([says("S"), fails("503")], id="before another try of the second"),
]


@pytest.mark.parametrize("plays", WAITS)
async def test_an_interrupt_ends_every_wait_at_once(plays: list[Play], autojump_clock: MockClock) -> None:
    """Compaction: Aborting."""
    at = desk(*plays)
    assert await asked_until_it_waits(at, lambda: at.interrupt.throw("stop")) == (Aborted(), 0)
    assert len(at.models.asked) == len(plays)


@pytest.mark.parametrize("plays", WAITS)
async def test_a_cancelled_caller_gets_no_outcome(plays: list[Play], autojump_clock: MockClock) -> None:
    """Compaction: Aborting."""
    at, outcomes = desk(*plays), list[Outcome]()

    async def ask(scope: trio.CancelScope) -> None:
        with scope:
            outcomes.append(await at.ask(preparation(history=HISTORY, prefix=PREFIX)))

    scope = trio.CancelScope()
    with trio.fail_after(600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, scope)
            await wait_all_tasks_blocked()
            scope.cancel()
    assert (scope.cancelled_caught, outcomes) == (True, [])


async def test_after_an_interrupt_no_model_is_asked() -> None:
    """Compaction: Aborting."""
    at = desk(says("S"))
    at.interrupt.throw("stop")
    assert await at.ask(preparation(history=HISTORY)) == Aborted()
    assert at.models.asked == []


@pytest.mark.parametrize("before", [[], [says("S")]], ids=["first request", "second request"])
@pytest.mark.parametrize(
    "play", [says("S"), fails("503"), fails("400")], ids=["summary", "retryable", "final"]
)
async def test_an_interrupt_outranks_a_reply_that_came_right_before_it(
    play: Play, before: list[Play]
) -> None:
    """Compaction: Aborting."""

    async def play_and_interrupt(request: ModelRequest, reply: ReplyBuilder) -> None:
        await play(request, reply)
        at.interrupt.throw("stop")

    at = desk(*before, play_and_interrupt)
    assert await at.ask(preparation(history=HISTORY, prefix=PREFIX)) == Aborted()
    assert len(at.models.asked) == len(before) + 1


async def test_every_ask_gives_others_a_turn() -> None:
    """Compaction: Aborting."""
    interrupted = desk()
    interrupted.interrupt.throw("stop")
    for at in (desk(says("S")), interrupted):
        with assert_checkpoints():
            await at.ask(preparation(history=(user(1), replied(1)), settings=SMALL))
