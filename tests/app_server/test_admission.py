"""One admission to a thread: who has it, who waits for it, and who gets it next.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start",
"Steers and queue".
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.hooks import Settled
from knightcode.threads.phases import PHASES, Phase
from knightcode.threads.turn import TurnInput
from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, MemoryServer, call, done, open_memory
from tests.app_server.pipe import Message, text

# Each turn calls a tool once, so that it can be held up while it runs.
SCRIPT = (
    {"when": {"user": ""}, "steps": [call("wait", "c")]},
    {"when": {"toolResult": "wait"}, "steps": [text("done")]},
)

POINTS = {
    Phase.INPUT: "input",
    Phase.PREPARING: "before_agent_start",
    Phase.SETTLED: "agent_settled",
}
"""Where a handler stops a start in a phase."""

ENDS = ("turn/completed", "thread/turn/completed")

STOPS = [Phase.WAITING, Phase.INPUT, Phase.PREPARING, Phase.RUNNING, Phase.SETTLED]
"""The phases in which a start can be made to stand still; tests of loads and compactions have the others."""


@attrs.define(eq=False)
class Busy:
    """A thread whose one start, with the text "first", stands still in a phase.

    Attributes:
        start: the id of its request.
        turn_id: of the turn that it has become and that has not ended.
    """

    server: MemoryServer
    client: MemoryClient
    thread_id: str
    start: int
    turn_id: str | None
    _gate: Gate
    _holds: ExitStack
    _since: int

    def open(self) -> None:
        """Let handlers and tools go on."""
        self._gate.open()

    async def let_go(self) -> None:
        """Let the start go on, and wait until its thread is idle."""
        self.open()
        self._holds.close()
        await self.client.until_idle(self.thread_id, since=self._since)


@asynccontextmanager
async def open_busy(folder: Path, phase: Phase) -> AsyncIterator[Busy]:
    async with open_memory(folder, *SCRIPT) as server:
        client = server.connect()
        thread_id = await client.start_thread(folder)
        thread = server.thread(thread_id)
        with Gate() as gate, ExitStack() as holds:
            server.give(thread_id, "wait", gate.tool if phase is Phase.RUNNING else done)
            if phase in POINTS:
                getattr(thread.hooks, POINTS[phase]).add(gate.handler)
            if phase is Phase.WAITING:
                holds.enter_context(server.host.manager.hold(thread_id, "revert"))
            since = len(client.heard)
            start = client.begin("turn/start", threadId=thread_id, text="first")
            if phase is Phase.WAITING:
                await wait_all_tasks_blocked()
            else:
                await gate.until_visited()
            assert thread.lane.current is not None
            assert thread.lane.current.phase is phase
            turn_id = None if thread.turn is None else thread.turn.id
            yield Busy(server, client, thread_id, start, turn_id, gate, holds, since)


def users(client: MemoryClient) -> list[str]:
    """What was said to the model, as it was shown."""
    return [item["text"] for item in client.items(kind="userMessage")]


async def saved_thread(folder: Path) -> str:
    """A thread of one turn, saved by a server that is gone."""
    async with open_memory(folder, *SCRIPT) as server:
        client = server.connect()
        thread_id = await client.start_thread(folder)
        server.give(thread_id, "wait", done)
        await client.run_turn(thread_id, "saved")
    return thread_id


async def ends_of(client: MemoryClient, thread_id: str) -> list[tuple[str, str]]:
    """Each stored turn: what its user said, and how it ended."""
    turns: list[Message] = (await client.request("thread/read", threadId=thread_id))["turns"]
    return [(turn["items"][0]["text"], turn["status"]) for turn in turns]


@pytest.mark.proves("ADMIT-003", "ADMIT-004")
@pytest.mark.parametrize("phase", STOPS, ids=lambda phase: phase.name.lower())
async def test_while_a_start_is_in_any_phase_a_second_one_is_refused_and_the_first_goes_on(
    tmp_path: Path, phase: Phase
) -> None:
    async with open_busy(tmp_path, phase) as busy:
        other = busy.server.connect()
        error = await other.refused("turn/start", threadId=busy.thread_id, text="second")
        assert error["code"] == "turnInProgress"
        assert error.get("data") == (None if busy.turn_id is None else {"turnId": busy.turn_id})
        await busy.let_go()
        assert (await busy.client.response(busy.start))["result"]["status"] == "started"
        assert users(busy.client) == ["first"]
        # Whoever is refused wanted to follow the thread all the same.
        await other.until_idle(busy.thread_id)
        assert len(other.notifications("turn/completed")) == (phase is not Phase.SETTLED)
        assert (await other.run_turn(busy.thread_id, "third"))["status"] == "completed"
        assert users(busy.client) == ["first", "third"]


@pytest.mark.proves("INTERRUPT-005")
@pytest.mark.rule("S1", "S10", "S20", "S22")
@pytest.mark.parametrize("phase", STOPS, ids=lambda phase: phase.name.lower())
async def test_an_interrupt_makes_of_a_start_what_its_phase_says_and_is_answered_at_once(
    tmp_path: Path, phase: Phase
) -> None:
    async with open_busy(tmp_path, phase) as busy:
        client, thread_id = busy.client, busy.thread_id
        for _ in range(3):
            assert await client.request("turn/interrupt", threadId=thread_id) == {}
        expected = PHASES[phase].interrupt
        if expected == "cancelled":
            answer = await client.response(busy.start)  # before anything lets the start go on
            assert answer["result"] == {"status": "cancelled", "threadId": thread_id}
        await busy.let_go()
        assert (await client.response(busy.start))["result"]["status"] == (
            "cancelled" if expected == "cancelled" else "started"
        )
        told = [[turn["turn"]["status"] for turn in client.notifications(method)] for method in ENDS]
        ends = {"cancelled": [], "interrupted": ["interrupted"], "stands": ["completed"]}[expected]
        assert told == [ends, ends]
        assert len(client.notifications("turn/started")) == len(ends)
        assert await ends_of(client, thread_id) == [("first", end) for end in ends]


@pytest.mark.rule("S10")
@pytest.mark.parametrize("saved", [False, True], ids=["loaded", "saved"])
@pytest.mark.parametrize("first", ["turn/start", "turn/interrupt"])
async def test_of_a_start_and_an_interrupt_in_one_write_the_first_one_decides(
    tmp_path: Path, first: str, saved: bool
) -> None:
    thread_id = await saved_thread(tmp_path) if saved else None
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        thread_id = thread_id or await client.start_thread(tmp_path)
        start = {"id": "s", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}}
        interrupt = {"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}}
        since = len(client.heard)
        client.send(*((start, interrupt) if first == "turn/start" else (interrupt, start)))
        await client.until_idle(thread_id, since=since)
        assert (await client.until(lambda one: one.get("id") == "i"))["result"] == {}
        status = (await client.until(lambda one: one.get("id") == "s"))["result"]["status"]
        told = [[turn["turn"]["status"] for turn in client.notifications(method)] for method in ENDS]
        if first == "turn/start":
            assert (status, told) == ("cancelled", [[], []])
            assert client.notifications("turn/started") == []
        else:
            assert (status, told) == ("started", [["completed"], ["completed"]])


@pytest.mark.proves("ADMIT-003")
async def test_of_two_starts_of_a_thread_that_is_not_loaded_the_second_is_refused(tmp_path: Path) -> None:
    thread_id = await saved_thread(tmp_path)
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        client.send(
            *(
                {"id": said, "method": "turn/start", "params": {"threadId": thread_id, "text": said}}
                for said in ("first", "second")
            )
        )
        refused = await client.until(lambda one: one.get("id") == "second")
        assert (refused["error"]["code"], refused["error"].get("data")) == ("turnInProgress", None)
        await client.until_idle(thread_id)
        assert (await client.until(lambda one: one.get("id") == "first"))["result"]["status"] == "started"
        assert await ends_of(client, thread_id) == [("saved", "completed"), ("first", "completed")]


@pytest.mark.parametrize(
    ("wrong", "code", "reason"),
    [
        ({"text": " "}, "invalidParams", "emptyInput"),
        ({"text": "look", "images": [{"path": "missing.png"}]}, "invalidParams", "badImage"),
        ({"text": "look", "images": [{"path": "/missing/a.png"}]}, "invalidParams", "badImage"),
        ({"text": "look", "images": [{"mimeType": "image/png", "data": "?"}]}, "invalidParams", "badImage"),
        ({"text": "no model"}, "authRequired", "noModel"),
    ],
    ids=str,
)
async def test_a_start_that_is_refused_gives_its_admission_back(
    tmp_path: Path, wrong: dict[str, Any], code: str, reason: str
) -> None:
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        model = thread.model
        if wrong["text"] == "no model":
            thread.model = None
        error = await client.refused("turn/start", threadId=thread_id, **wrong)
        assert (error["code"], error["data"]) == (code, {"reason": reason})
        thread.model = model
        assert (await client.run_turn(thread_id))["status"] == "completed"
        assert len(client.notifications("turn/started")) == 1


async def test_starts_of_a_thread_that_does_not_exist_are_all_told_so(tmp_path: Path) -> None:
    async with open_memory(tmp_path) as server:
        client = server.connect()
        starts = [client.begin("turn/start", threadId=one, text="go") for one in ("nobody", "nobody", "")]
        codes = [(await client.response(start))["error"]["code"] for start in starts]
        # The second one came while the first was looking; afterwards nothing is left of either.
        assert codes == ["threadNotFound", "turnInProgress", "threadNotFound"]
        assert (await client.refused("turn/start", threadId="nobody", text="go"))["code"] == "threadNotFound"


# --- holds -------------------------------------------------------------------------------------------


@pytest.mark.rule("S60")
async def test_a_start_goes_on_when_the_last_of_several_holds_has_ended(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        hold = server.host.manager.hold
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(hold(thread_id, "revert"))
            start = client.begin("turn/start", threadId=thread_id, text="go")
            await wait_all_tasks_blocked()
            second.enter_context(hold(thread_id, "settings"))
            first.close()  # the two overlap: the lane is never free in between
            await wait_all_tasks_blocked()
            assert client.notifications("turn/started") == []
            second.close()
            first.enter_context(hold(thread_id, "another revert"))  # before the start could take its chance
            await wait_all_tasks_blocked()
            assert client.notifications("turn/started") == []
        assert (await client.response(start))["result"]["status"] == "started"
        assert (await client.until_method("turn/completed"))["turn"]["status"] == "completed"


@pytest.mark.rule("S60")
@pytest.mark.parametrize("source", ["turn/start", "turn/queue/add", "a handler"])
async def test_whatever_would_begin_a_turn_waits_for_the_end_of_a_hold(tmp_path: Path, source: str) -> None:
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with server.host.manager.hold(thread_id, "revert"):
            if source == "a handler":
                server.thread(thread_id).turns.send(TurnInput("go"))
            else:
                client.begin(source, threadId=thread_id, text="go")
            await wait_all_tasks_blocked()
            assert client.notifications("turn/started") == []
        assert (await client.until_method("turn/completed"))["turn"]["status"] == "completed"
        assert users(client) == ["go"]


@pytest.mark.rule("S60")
async def test_a_hold_stops_no_turn_that_was_accepted_before_it(tmp_path: Path) -> None:
    async with open_busy(tmp_path, Phase.RUNNING) as busy:
        await busy.client.request("turn/queue/add", threadId=busy.thread_id, text="queued")
        with busy.server.host.manager.hold(busy.thread_id, "revert"):
            assert busy.turn_id is not None
            busy.open()
            assert (await busy.client.until_completed(busy.turn_id))["status"] == "completed"
            await wait_all_tasks_blocked()
            assert users(busy.client) == ["first"]
        await busy.let_go()
        assert users(busy.client) == ["first", "queued"]


@pytest.mark.rule("S5", "S60")
async def test_a_thread_that_is_held_before_it_is_loaded_loads_and_waits_then(tmp_path: Path) -> None:
    thread_id = await saved_thread(tmp_path)
    async with open_memory(tmp_path, [text("done")]) as server:
        client = server.connect()
        with server.host.manager.hold(thread_id, "revert"):
            start = client.begin("turn/start", threadId=thread_id, text="first")
            assert (await client.request("thread/resume", threadId=thread_id))["thread"]["id"] == thread_id
            await client.request("turn/interrupt", threadId=thread_id)
            assert (await client.response(start))["result"]["status"] == "cancelled"
            await client.until_idle(thread_id)
            start = client.begin("turn/start", threadId=thread_id, text="second")
            await client.request("thread/read", threadId=thread_id)
            assert client.notifications("turn/started") == []
        assert (await client.response(start))["result"]["status"] == "started"
        await client.until_method("turn/completed")
        assert users(client) == ["second"]


# --- what comes next ---------------------------------------------------------------------------------


@pytest.mark.proves("ADMIT-005")
@pytest.mark.rule("S31", "S32")
async def test_a_turn_that_settlement_began_has_the_admission_like_any_other(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("a")], [text("b")], [text("c")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:
            refusals: list[int] = []

            async def settles(turn: Settled) -> None:
                await trio.lowlevel.checkpoint()
                if not refusals:
                    thread.hooks.before_agent_start.add(gate.handler)
                    thread.turns.send(TurnInput("began by itself"))
                    refusals.append(client.begin("turn/start", threadId=thread_id, text="in the same step"))

            thread.hooks.agent_settled.add(settles)
            first = await client.start_turn(thread_id, "first", requestId="r")
            await client.request("turn/queue/add", threadId=thread_id, text="queued")
            await gate.until_visited()
            running = thread.turn
            assert running is not None
            assert running.id != first
            error = (await client.response(refusals[0]))["error"]
            assert (error["code"], error.get("data")) == ("turnInProgress", None)
            error = await client.refused("turn/start", threadId=thread_id, text="while it runs")
            assert (error["code"], error["data"]) == ("turnInProgress", {"turnId": running.id})
            gate.open()
            await client.until_idle(thread_id)
        assert users(client) == ["first", "began by itself", "queued"]
        assert [told.get("requestId") for told in client.notifications("turn/started")] == ["r", None, None]
        statuses = [told["status"]["type"] for told in client.notifications("thread/status/changed")]
        assert statuses == ["active", "idle"]


async def test_a_handler_of_settlement_that_fails_gives_the_admission_back(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("a")], [text("b")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)

        async def fails(_: Settled) -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("no")

        server.thread(thread_id).hooks.agent_settled.add(fails)
        for said in ("first", "second"):
            assert (await client.run_turn(thread_id, said))["status"] == "completed"


@pytest.mark.proves("ADMIT-004")
@pytest.mark.rule("S31")
async def test_in_settlement_a_steer_is_refused_and_queued_inputs_wait(tmp_path: Path) -> None:
    async with open_busy(tmp_path, Phase.SETTLED) as busy:
        client, thread_id = busy.client, busy.thread_id
        ended = await client.until_method("turn/completed")
        error = await client.refused(
            "turn/steer", threadId=thread_id, expectedTurnId=ended["turn"]["id"], text="late"
        )
        assert (error["code"], error.get("data")) == ("turnMismatch", None)
        for said in ("one", "two"):
            await client.request("turn/queue/add", threadId=thread_id, text=said)
        await wait_all_tasks_blocked()
        assert users(client) == ["first"]
        await busy.let_go()
        assert users(client) == ["first", "one", "two"]
