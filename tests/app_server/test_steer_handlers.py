"""A steer that is still in its `input` handlers when its turn is stopped or over.

Its request is refused at once, its handlers run to their end, and its text goes nowhere: no model
reads it, nothing shows it, no queue keeps it.

Source: App Server, "Threads and turns"; App Server notes, "Steers and queue".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from knightcode.agent.hooks import Handled, Input
from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, MemoryServer, call, open_memory
from tests.app_server.pipe import PATIENCE, Message, text

LOST = "this goes nowhere"


@attrs.define(eq=False)
class Steered:
    """A turn in the middle of a tool, whose steers stop at a gate.

    Attributes:
        tool: where the turn waits.
        handlers: where its steers wait.
        asked: every request that reached the model, as JSON-like values.
    """

    server: MemoryServer
    client: MemoryClient
    thread_id: str
    turn_id: str
    tool: Gate
    handlers: Gate
    asked: list[dict[str, Any]]

    def steer(self, text: str = LOST) -> int:
        """Send a steer; the id of its request."""
        return self.client.begin(
            "turn/steer", threadId=self.thread_id, expectedTurnId=self.turn_id, text=text
        )

    async def caught(self, text: str = LOST) -> int:
        """Send a steer, and wait until a handler has it."""
        request_id = self.steer(text)
        await self.handlers.until_visited()
        return request_id

    def is_answered(self, request_id: int) -> bool:
        return any(one.get("id") == request_id and "method" not in one for one in self.client.heard)

    async def let_handlers_end(self) -> None:
        """Let all handlers go, and see that they do."""
        self.handlers.open()
        await self.handlers.until_passed(len(self.handlers.visitors))

    def check_lost(self) -> None:
        """Nobody was told of the text: no model, no client, no queue, no file."""
        assert LOST not in str(self.asked)
        assert LOST not in str(self.client.heard)
        for file in (self.server.folder / "home").rglob("*.jsonl"):
            assert LOST not in file.read_text()


@asynccontextmanager
async def open_steered(folder: Path, *replies: list[Message]) -> AsyncIterator[Steered]:
    """A turn that is in its first tool; `replies` come after it."""
    async with open_memory(folder, [call("gate", "c1")], *replies) as server:
        client = server.connect()
        thread_id = await client.start_thread(folder)
        thread, tool, handlers = server.thread(thread_id), Gate(), Gate()
        asked: list[dict[str, Any]] = []

        async def asks(body: dict[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            asked.append(body)

        async def steers_wait(given: Input | Handled) -> None:
            await trio.lowlevel.checkpoint()
            if isinstance(given, Input) and given.steering:
                await handlers.handler(given)

        server.give(thread_id, "gate", tool.tool)
        thread.hooks.before_provider_request.add(asks)
        thread.hooks.input.add(steers_wait)
        turn_id = await client.start_turn(thread_id)
        await tool.until_visited()
        yield Steered(server, client, thread_id, turn_id, tool, handlers, asked)
        tool.open()
        handlers.open()


def reason_of(answer: Message) -> tuple[str, str | None]:
    error = answer["error"]
    return error["code"], error.get("data", {}).get("reason")


CANCELLED = ("invalidParams", "steerCancelled")


@pytest.mark.proves("STEER-006", "STEER-009")
@pytest.mark.rule("S27", "S1")
async def test_an_interrupt_refuses_a_steer_in_its_handlers_and_they_run_to_their_end(tmp_path: Path) -> None:
    async with open_steered(tmp_path, [text("next")]) as turn:
        client = turn.client
        steer = await turn.caught()
        await client.request("turn/interrupt", threadId=turn.thread_id, turnId=turn.turn_id)
        # The refusal came before the interrupt's own answer, and no handler was waited for.
        assert reason_of(await client.response(steer)) == CANCELLED
        assert turn.handlers.passed == 0
        assert (await client.until_completed(turn.turn_id))["status"] == "interrupted"
        await turn.let_handlers_end()
        assert (await client.run_turn(turn.thread_id, "another"))["status"] == "completed"
        turn.check_lost()
        assert client.notifications("turn/queue/updated") == []


@pytest.mark.proves("STEER-008", "STEER-009")
@pytest.mark.rule("S27")
async def test_the_end_of_its_turn_refuses_a_steer_in_its_handlers_and_no_later_turn_gets_it(
    tmp_path: Path,
) -> None:
    async with open_steered(tmp_path, [text("done")], [text("next")]) as turn:
        client = turn.client
        steer = await turn.caught()
        turn.tool.open()
        completed = await client.until_completed(turn.turn_id)
        assert reason_of(await client.response(steer)) == CANCELLED
        assert completed["status"] == "completed"
        assert turn.handlers.passed == 0
        await client.until_idle(turn.thread_id)
        during = await client.start_turn(turn.thread_id, "another")  # its handlers still run
        await turn.let_handlers_end()
        assert (await client.until_completed(during))["status"] == "completed"
        turn.check_lost()
        assert client.notifications("turn/queue/updated") == []


@pytest.mark.proves("STEER-007", "STEER-009")
@pytest.mark.rule("S27")
async def test_an_unload_refuses_a_steer_in_its_handlers_and_waits_for_them(tmp_path: Path) -> None:
    async with open_steered(tmp_path, [text("next")]) as turn:
        client = turn.client
        steer = await turn.caught()
        thread = turn.server.thread(turn.thread_id)
        thread.unload("unload")
        assert reason_of(await client.response(steer)) == CANCELLED
        assert (await client.until_completed(turn.turn_id))["status"] == "interrupted"
        assert not thread.ended.is_set()
        await turn.let_handlers_end()
        with trio.fail_after(PATIENCE):
            await thread.ended.wait()
        assert (await client.run_turn(turn.thread_id, "another"))["status"] == "completed"
        turn.check_lost()


@pytest.mark.proves("STEER-007")
@pytest.mark.rule("S27", "S67")
async def test_a_stop_of_the_server_refuses_a_steer_in_its_handlers_and_waits_for_them(
    tmp_path: Path,
) -> None:
    async with open_steered(tmp_path) as turn:
        steer = await turn.caught()
        thread = turn.server.thread(turn.thread_id)
        turn.server.host.manager.refuse_new_work()
        assert (await turn.client.response(steer))["error"]["code"] == "shuttingDown"
        assert (await turn.client.until_completed(turn.turn_id))["status"] == "interrupted"
        await turn.let_handlers_end()
        with trio.fail_after(PATIENCE):
            await thread.ended.wait()
        turn.check_lost()


@pytest.mark.rule("S27")
@pytest.mark.parametrize("consumes", [True, False], ids=["consumed", "left alone"])
async def test_what_handlers_make_of_a_refused_steer_changes_nothing(tmp_path: Path, consumes: bool) -> None:
    async with open_steered(tmp_path, [text("next")]) as turn:
        ended = trio.Event()

        async def decides(given: Input | Handled) -> Handled | Input | None:
            await trio.lowlevel.checkpoint()
            if not isinstance(given, Input) or not given.steering:
                return None
            ended.set()
            return Handled() if consumes else Input("rewritten", steering=True)

        turn.server.thread(turn.thread_id).hooks.input.add(decides)
        steer = await turn.caught()
        await turn.client.request("turn/interrupt", threadId=turn.thread_id)
        turn.handlers.open()
        with trio.fail_after(PATIENCE):
            await ended.wait()
        await turn.client.run_turn(turn.thread_id, "another")
        answers = [one for one in turn.client.heard if one.get("id") == steer and "method" not in one]
        assert [reason_of(one) for one in answers] == [CANCELLED]
        turn.check_lost()
        assert "rewritten" not in str(turn.asked)


@pytest.mark.rule("S27", "S81")
async def test_a_handler_that_fails_after_the_refusal_makes_no_second_answer(tmp_path: Path) -> None:
    async with open_steered(tmp_path, [text("next")]) as turn:
        failed = trio.Event()

        async def fails(given: Input | Handled) -> None:
            await trio.lowlevel.checkpoint()
            if isinstance(given, Input) and given.steering:
                failed.set()
                raise ZeroDivisionError

        turn.server.thread(turn.thread_id).hooks.input.add(fails)
        steer = await turn.caught()
        await turn.client.request("turn/interrupt", threadId=turn.thread_id)
        turn.handlers.open()
        with trio.fail_after(PATIENCE):
            await failed.wait()
        await turn.client.run_turn(turn.thread_id, "another")
        answers = [one for one in turn.client.heard if one.get("id") == steer and "method" not in one]
        assert [reason_of(one) for one in answers] == [CANCELLED]


@pytest.mark.rule("S27")
async def test_an_interrupt_refuses_every_steer_that_waits_those_behind_the_first_as_well(
    tmp_path: Path,
) -> None:
    async with open_steered(tmp_path, [text("next")]) as turn:
        steers = [turn.steer(f"{LOST} {number}") for number in range(3)]
        await turn.handlers.until_visited()
        await turn.client.request("turn/interrupt", threadId=turn.thread_id)
        answers = [reason_of(await turn.client.response(steer)) for steer in steers]
        assert answers == [CANCELLED] * 3
        await turn.let_handlers_end()
        await turn.client.run_turn(turn.thread_id, "another")
        # The handlers of those that waited behind the first had not begun, and never do.
        assert [given.text for given in turn.handlers.visitors] == [f"{LOST} 0"]
        turn.check_lost()


@pytest.mark.rule("S28", "S29")
async def test_steers_keep_their_order_however_long_their_handlers_take(tmp_path: Path) -> None:
    async with open_steered(tmp_path, [text("a")], [text("b")], [text("c")], [text("d")]) as turn:
        client = turn.client

        async def loiters(given: Input | Handled) -> None:
            assert isinstance(given, Input)
            for _ in range(20 if given.text == "one" else 1):
                await trio.lowlevel.checkpoint()

        turn.server.thread(turn.thread_id).hooks.input.add(loiters)
        steers = [turn.steer(said) for said in ("one", "two", "three")]
        await turn.handlers.until_visited()
        assert not any(turn.is_answered(steer) for steer in steers)
        turn.handlers.open()
        for steer in steers:
            assert (await client.response(steer))["result"] == {}
        answered = [one["id"] for one in client.heard if one.get("id") in steers and "method" not in one]
        assert answered == steers
        turn.tool.open()
        completed = await client.until_completed(turn.turn_id)
        assert completed["status"] == "completed"
        said = [item["text"] for item in client.items(kind="userMessage")]
        assert said == ["go", "one", "two", "three"]
        shown = [update["steering"] for update in client.notifications("turn/queue/updated")]
        assert shown == [
            ["one"],
            ["one", "two"],
            ["one", "two", "three"],
            ["two", "three"],
            ["three"],
            [],
        ]


@pytest.mark.rule("S26", "S27")
async def test_a_steer_that_comes_after_the_interrupt_is_refused_before_any_handler_sees_it(
    tmp_path: Path,
) -> None:
    async with open_steered(tmp_path) as turn:
        client = turn.client
        client.begin("turn/interrupt", threadId=turn.thread_id)
        steer = turn.steer()
        assert reason_of(await client.response(steer)) == CANCELLED
        await client.until_completed(turn.turn_id)
        late = await client.response(turn.steer())
        assert reason_of(late) == ("turnMismatch", None)
        assert turn.handlers.visitors == []
        turn.check_lost()
