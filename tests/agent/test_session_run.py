"""What follows a reply inside one turn: another try, what was said meanwhile, or the end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.agent.loop import AgentRun
from knightcode.agent.retry import RetryPolicy
from knightcode.agent.session_run import SessionRun
from knightcode.agent.steering import Steer
from knightcode.events import AutoRetryEnd, AutoRetryStart, MessageEnd
from knightcode.messages import AssistantMessage, ModelMessage, UserMessage, text_of
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from tests.agent.stage import Play, Stage, now_ms, open_stage, says


def fails(text: str, retry_after_ms: int | None = None) -> Play:
    async def play(_: ModelRequest, reply: ReplyBuilder) -> None:
        await trio.lowlevel.checkpoint()
        reply.fail(text, retry_after_ms=retry_after_ms)

    return play


class NoCompaction:
    """A context that is left alone."""

    async def between_turns(self) -> None:
        await trio.lowlevel.checkpoint()

    async def after_run(self, reply: AssistantMessage) -> bool:
        await trio.lowlevel.checkpoint()
        return False


def user(text: str) -> UserMessage:
    return UserMessage(timestamp=now_ms(), content=text)


@attrs.define(eq=False)
class Turn:
    """A stage with everything that belongs to one turn."""

    stage: Stage
    run: SessionRun
    hidden: list[str]

    @property
    def agent(self) -> AgentRun:
        return self.stage.run

    def steer(self, text: str) -> None:
        self.agent.steering.add(Steer(user(text), text))

    def chain(self) -> list[AutoRetryStart | AutoRetryEnd]:
        return [one for one in self.stage.events if isinstance(one, AutoRetryStart | AutoRetryEnd)]

    def asked(self) -> list[list[str]]:
        """The texts of every request; what a model said before it failed is empty here."""
        return [
            [text for text in map(_text, request.messages) if text] for request in self.stage.models.asked
        ]


def _text(message: ModelMessage) -> str:
    return text_of(message.content)


@asynccontextmanager
async def open_turn(plays: Sequence[Play], policy: RetryPolicy | None = None) -> AsyncIterator[Turn]:
    hidden: list[str] = []
    async with open_stage(plays) as stage:

        class History:
            def hide_last_reply(self) -> None:
                replies = [one.message for one in stage.events if isinstance(one, MessageEnd)]
                last = [one for one in replies if isinstance(one, AssistantMessage)][-1]
                hidden.append(last.error_message or "")

        run = SessionRun(stage.run, History(), policy or RetryPolicy(), NoCompaction())
        yield Turn(stage, run, hidden)


async def test_a_failure_that_may_pass_is_tried_again_after_a_growing_wait(
    autojump_clock: MockClock,
) -> None:
    async with open_turn([fails("503 overloaded"), fails("503 overloaded"), says("there")]) as turn:
        began = trio.current_time()
        reply = await turn.run.run([user("go")])
        assert (reply.stop_reason, trio.current_time() - began) == ("stop", 2 + 4)
        assert turn.chain() == [
            AutoRetryStart(attempt=1, max_attempts=3, delay_ms=2_000, error_message="503 overloaded"),
            AutoRetryStart(attempt=2, max_attempts=3, delay_ms=4_000, error_message="503 overloaded"),
            AutoRetryEnd(success=True, attempt=2),
        ]
        assert turn.hidden == ["503 overloaded", "503 overloaded"]
        assert turn.asked() == [["go"], ["go"], ["go"]]


async def test_when_all_tries_are_used_up_the_last_failure_stands(autojump_clock: MockClock) -> None:
    async with open_turn([fails("rate limit")] * 3, RetryPolicy(max_retries=2)) as turn:
        reply = await turn.run.run([user("go")])
        assert (reply.stop_reason, reply.error_message) == ("error", "rate limit")
        assert turn.chain()[-1] == AutoRetryEnd(success=False, attempt=2, final_error="rate limit")
        assert len(turn.chain()) == 3


async def test_a_failure_of_another_kind_ends_the_chain_at_once(autojump_clock: MockClock) -> None:
    async with open_turn([fails("503 overloaded"), fails("no such model")]) as turn:
        reply = await turn.run.run([user("go")])
        assert reply.error_message == "no such model"
        assert turn.chain()[1:] == [AutoRetryEnd(success=False, attempt=1, final_error="no such model")]


async def test_the_wait_that_a_provider_asks_for_is_kept(autojump_clock: MockClock) -> None:
    async with open_turn([fails("429 too many requests", 5_000), says("there")]) as turn:
        began = trio.current_time()
        await turn.run.run([user("go")])
        assert trio.current_time() - began == 5
        assert [one.delay_ms for one in turn.chain() if isinstance(one, AutoRetryStart)] == [5_000]


@pytest.mark.rule("S17")
async def test_an_interrupt_ends_the_wait_for_another_try_at_once(mock_clock: MockClock) -> None:
    async with open_turn([fails("503 overloaded")]) as turn, trio.open_nursery() as nursery:
        nursery.start_soon(turn.run.run, [user("go")])
        await wait_all_tasks_blocked()
        assert len(turn.chain()) == 1
        turn.stage.interrupt.throw("interrupt")
    assert turn.chain()[1:] == [AutoRetryEnd(success=False, attempt=1, final_error="Retry cancelled")]
    assert len(turn.stage.models.asked) == 1


async def test_the_count_of_tries_begins_anew_after_a_reply(autojump_clock: MockClock) -> None:
    plays = [fails("503"), says("a"), fails("503"), says("b")]
    async with open_turn(plays, RetryPolicy(max_retries=1)) as turn:
        asked = 0

        async def again(_: bool) -> bool:
            nonlocal asked
            await trio.lowlevel.checkpoint()
            asked += 1
            if asked == 1:
                turn.steer("more")
            return False

        turn.stage.hooks.agent_before_settle.add(again)
        reply = await turn.run.run([user("go")])
        assert text_of(reply.content) == "b"
        assert [type(one) for one in turn.chain()] == [AutoRetryStart, AutoRetryEnd] * 2


@pytest.mark.rule("S29")
async def test_a_turn_goes_on_for_a_steer_that_is_not_delivered_yet() -> None:
    async with open_turn([]) as turn:

        async def first(request: ModelRequest, reply: ReplyBuilder) -> None:
            turn.steer("and the tests")
            await says("done")(request, reply)

        turn.stage.models.plays = [first, says("tests too")]
        reply = await turn.run.run([user("go")])
        assert text_of(reply.content) == "tests too"
        assert turn.asked() == [["go"], ["go", "done", "and the tests"]]


@pytest.mark.rule("S29")
async def test_a_failed_reply_does_not_take_a_steer_with_it() -> None:
    async with open_turn([]) as turn:

        async def first(request: ModelRequest, reply: ReplyBuilder) -> None:
            turn.steer("use the other one")
            await fails("no such model")(request, reply)

        turn.stage.models.plays = [first, says("right")]
        reply = await turn.run.run([user("go")])
        assert text_of(reply.content) == "right"
        assert turn.asked()[1] == ["go", "use the other one"]


async def test_steers_are_delivered_one_to_a_turn_in_their_order() -> None:
    async with open_turn([]) as turn:

        async def first(request: ModelRequest, reply: ReplyBuilder) -> None:
            turn.steer("one")
            turn.steer("two")
            await says("a")(request, reply)

        turn.stage.models.plays = [first, says("b"), says("c")]
        await turn.run.run([user("go")])
        assert turn.asked()[1:] == [["go", "a", "one"], ["go", "a", "one", "b", "two"]]


async def test_all_steers_are_delivered_together_when_that_is_asked_for() -> None:
    async with open_turn([]) as turn:
        turn.agent.steering.mode = "all"

        async def first(request: ModelRequest, reply: ReplyBuilder) -> None:
            turn.steer("one")
            turn.steer("two")
            await says("a")(request, reply)

        turn.stage.models.plays = [first, says("b")]
        await turn.run.run([user("go")])
        assert turn.asked()[1:] == [["go", "a", "one", "two"]]


@pytest.mark.rule("S28")
async def test_a_steer_that_is_dropped_while_a_handler_looks_at_it_is_not_delivered() -> None:
    async with open_turn([says("never asked")]) as turn:

        async def looks(message: object) -> None:
            await trio.lowlevel.checkpoint()
            if isinstance(message, UserMessage) and text_of(message.content) == "late":
                turn.agent.steering.drop()
                turn.stage.interrupt.throw("interrupt")

        turn.stage.hooks.message_end.add(looks)
        turn.steer("late")
        reply = await turn.run.run([user("go")])
        assert reply.stop_reason == "aborted"
        assert [
            text_of(one.message.content)
            for one in turn.stage.events
            if isinstance(one, MessageEnd) and isinstance(one.message, UserMessage)
        ] == ["go"]


async def test_an_interrupt_of_the_reply_that_was_tried_again_is_no_success() -> None:
    """Agent loop: Automatic retry; the chain has one end."""
    async with open_turn([], RetryPolicy(base_delay_ms=0)) as turn:

        async def cut(_: ModelRequest, reply: ReplyBuilder) -> None:
            reply.delta(reply.open_text(), "so far")
            turn.stage.interrupt.throw("interrupt")
            await trio.lowlevel.checkpoint()

        turn.stage.models.plays = [fails("503 busy"), cut]
        reply = await turn.run.run([user("go")])
        assert reply.stop_reason == "aborted"
        assert turn.chain()[1:] == [AutoRetryEnd(success=False, attempt=1, final_error="Retry cancelled")]
