"""An interrupt, a second start and a steer in every phase of a start.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start", "Interrupts".
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from knightcode.agent.hooks import Handled, Input, Prompt, Settled
from knightcode.messages import ImageBlock
from knightcode.threads.turn import TurnInput
from tests.app_server.memory import MemoryClient, MemoryServer, open_memory
from tests.app_server.pipe import PATIENCE, Message, text, tool

REPLIES = [text("a")], [text("b")], [text("c")], [text("d")]


@attrs.define(eq=False)
class Stopped:
    """A handler that stops until the test lets it go."""

    reached: trio.Event = attrs.field(factory=trio.Event)
    let_go: trio.Event = attrs.field(factory=trio.Event)
    ended: bool = False
    then: Callable[[], object] = lambda: None

    async def __call__(self, value: Any) -> Any:
        if not self.let_go.is_set():
            self.reached.set()
            with trio.fail_after(PATIENCE):
                await self.let_go.wait()
            self.then()
            self.ended = True
        await trio.lowlevel.checkpoint()
        return None

    async def is_reached(self) -> None:
        with trio.fail_after(PATIENCE):
            await self.reached.wait()


def start_of(thread_id: str, text: str = "go", **more: Any) -> Message:
    return {"method": "turn/start", "params": {"threadId": thread_id, "text": text, **more}}


def users(client: MemoryClient) -> list[str]:
    """What users said, as it was shown."""
    return [
        params["item"]["text"]
        for params in client.notifications("item/completed")
        if params["item"]["type"] == "userMessage"
    ]


async def turns_of(client: MemoryClient, thread_id: str) -> list[Message]:
    turns: list[Message] = (await client.request("thread/read", threadId=thread_id))["turns"]
    return turns


@pytest.mark.proves("INTERRUPT-005", "INTERRUPT-006", "INTERRUPT-008", "INTERRUPT-009", "ADMIT-003")
@pytest.mark.rule("S1", "S6", "S7", "S8")
async def test_a_start_interrupted_in_its_input_handlers_is_cancelled_and_launches_nothing(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, stopped = server.thread(thread_id), Stopped()
        stopped.then = lambda: thread.turns.send(TurnInput("sent afterwards"))
        thread.hooks.input.add(stopped)
        start = client.begin("turn/start", threadId=thread_id, text="first")
        await stopped.is_reached()
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        assert (await client.response(start))["result"] == {"status": "cancelled", "threadId": thread_id}
        refused = await client.refused("turn/start", threadId=thread_id, text="second")
        assert (refused["code"], refused.get("data")) == ("turnInProgress", None)
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        since = len(client.heard)
        stopped.let_go.set()
        await client.until_idle(thread_id, since=since)
        assert stopped.ended
        assert client.notifications("turn/started") == []
        assert thread.session.path is None  # no marker, no item, nothing to be saved
        turn = await client.run_turn(thread_id, "third")
        assert turn["status"] == "completed"
        assert users(client) == ["third"]


@pytest.mark.rule("S4")
async def test_an_interrupt_during_a_load_cancels_the_start_and_not_the_load(tmp_path: Path) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
    async with open_memory(tmp_path, *REPLIES) as server:
        client, other = server.connect(), server.connect()
        since = len(client.heard)
        client.send({"id": "s", **start_of(thread_id)}, {"id": "i", "method": "turn/interrupt",
                                                          "params": {"threadId": thread_id}})  # fmt: skip
        resumed = await other.request("thread/resume", threadId=thread_id)
        assert resumed["thread"]["id"] == thread_id
        answers = {one["id"]: one["result"] for one in client.heard[since:] if "result" in one}
        assert answers["s"] == {"status": "cancelled", "threadId": thread_id}
        assert answers["i"] == {}
        await client.until_idle(thread_id)
        assert client.notifications("turn/started") == []
        assert (await client.run_turn(thread_id))["status"] == "completed"


@pytest.mark.proves("ADMIT-001")
@pytest.mark.rule("S5", "S60")
async def test_a_start_waits_while_its_lane_is_held_and_an_interrupt_ends_the_waiting_alone(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with server.host.manager.hold(thread_id, "revert"):
            start = client.begin("turn/start", threadId=thread_id, text="first")
            await client.request("thread/read", threadId=thread_id)
            assert [one for one in client.heard if one.get("id") == start] == []
            assert await client.request("turn/interrupt", threadId=thread_id) == {}
            assert (await client.response(start))["result"]["status"] == "cancelled"
            await client.until_idle(thread_id)
            again = client.begin("turn/start", threadId=thread_id, text="second")
            await client.request("thread/read", threadId=thread_id)
            assert [one for one in client.heard if one.get("id") == again] == []
        assert (await client.response(again))["result"]["status"] == "started"
        await client.until_method("turn/completed")
        assert users(client) == ["second"]


@pytest.mark.proves("ADMIT-001")
async def test_a_start_that_comes_after_a_settings_change_runs_with_it(tmp_path: Path) -> None:
    models = {"providers": {"box": {"api": "scripted", "baseUrl": "other.json", "models": [{"id": "m"}]}}}
    async with open_memory(tmp_path, [text("a")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
    agent = tmp_path / "home" / "agent"
    agent.mkdir(exist_ok=True)
    (agent / "models.json").write_text(json.dumps(models))
    (agent / "other.json").write_text('{"replies": [{"steps": [{"text": "from the other"}]}]}')
    async with open_memory(tmp_path, [text("a")]) as server:
        client = server.connect()
        model = {"provider": "box", "id": "m"}
        client.send(  # in one write, to a thread that has to be loaded first
            {
                "id": "u",
                "method": "thread/settings/update",
                "params": {"threadId": thread_id, "model": model},
            },
            {"id": "s", **start_of(thread_id)},
        )
        await client.until_method("turn/completed")
        said = [
            params["item"]["text"]
            for params in client.notifications("item/completed")
            if params["item"]["type"] == "agentMessage"
        ]
        assert said == ["from the other"]


@pytest.mark.rule("S9")
async def test_an_interrupt_in_the_last_step_before_acceptance_still_cancels(tmp_path: Path) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)

        async def interrupts(_: Input | Handled) -> None:
            await trio.lowlevel.checkpoint()
            client.send({"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})

        thread.hooks.input.add(interrupts)
        answer = await client.request("turn/start", threadId=thread_id, text="go")
        assert answer["status"] == "cancelled"
        await client.until_idle(thread_id)
        assert client.notifications("turn/started") == []


@pytest.mark.rule("S10")
@pytest.mark.parametrize("steps", range(12))
async def test_a_start_is_cancelled_or_started_and_never_both(tmp_path: Path, steps: int) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        start = client.begin("turn/start", threadId=thread_id, text="go")
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        interrupt = client.begin("turn/interrupt", threadId=thread_id)
        await client.until_idle(thread_id)
        status = (await client.response(start))["result"]["status"]
        assert (await client.response(interrupt))["result"] == {}
        ends = [params["turn"]["status"] for params in client.notifications("turn/completed")]
        if status == "cancelled":
            assert (client.notifications("turn/started"), ends) == ([], [])
        else:
            assert (status, len(ends)) == ("started", 1)


@pytest.mark.proves("INTERRUPT-011", "INTERRUPT-012")
@pytest.mark.rule("S1", "S12", "S13", "S22")
async def test_an_interrupt_before_the_run_waits_for_handlers_and_asks_no_model(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("never")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, stopped = server.thread(thread_id), Stopped()
        asked: list[object] = []

        async def changes(prompt: Prompt) -> Prompt:
            await stopped(prompt)
            return attrs.evolve(prompt, exact_prompt="ignored")

        async def asks(body: dict[str, Any]) -> None:
            await trio.lowlevel.checkpoint()
            asked.append(body)

        thread.hooks.before_agent_start.add(changes)
        thread.hooks.before_provider_request.add(asks)
        turn_id = await client.start_turn(thread_id, "hello", clientMessageId="m1")
        await stopped.is_reached()
        assert await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id) == {}
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        assert client.notifications("turn/completed") == []
        stopped.let_go.set()
        turn = await client.until_completed(turn_id)
        assert (turn["status"], stopped.ended, asked) == ("interrupted", True, [])
        shown = client.notifications("item/completed")
        assert [one["item"]["clientMessageId"] for one in shown] == ["m1"]
        (stored,) = await turns_of(client, thread_id)
        assert [item["text"] for item in stored["items"]] == ["hello"]
        assert len(client.notifications("turn/completed")) == 1


@pytest.mark.proves("ADMIT-004", "ADMIT-005", "INTERRUPT-002")
@pytest.mark.rule("S1", "S20", "S31", "S32")
async def test_settlement_keeps_the_admission_and_what_it_begins_comes_before_the_queue(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, stopped = server.thread(thread_id), Stopped()
        settled: list[str] = []

        async def settles(turn: Settled) -> None:
            settled.append(turn.status)
            if len(settled) == 1:
                await stopped(turn)
                thread.turns.send(TurnInput("deferred 1"))
                thread.turns.send(TurnInput("deferred 2"))

        thread.hooks.agent_settled.add(settles)
        turn_id = await client.start_turn(thread_id, "first")
        await stopped.is_reached()
        assert (await client.until_completed(turn_id))["status"] == "completed"
        since = len(client.heard)
        refused = await client.refused("turn/start", threadId=thread_id, text="too early")
        assert refused["code"] == "turnInProgress"
        late = await client.refused("turn/steer", threadId=thread_id, expectedTurnId=turn_id, text="late")
        assert late["code"] == "turnMismatch"
        assert (await client.refused("turn/interrupt", threadId=thread_id, turnId=turn_id))["code"] == (
            "turnMismatch"
        )
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        await client.request("turn/queue/add", threadId=thread_id, text="queued")
        stopped.let_go.set()
        await client.until_idle(thread_id, since=since)
        assert users(client) == ["first", "deferred 1", "deferred 2", "queued"]
        assert settled == ["completed"] * 4
        statuses = [params["status"]["type"] for params in client.notifications("thread/status/changed")]
        assert statuses == ["active", "idle"]
        stored = await turns_of(client, thread_id)
        assert [turn["status"] for turn in stored] == ["completed"] * 4


@pytest.mark.proves("TURN-004", "ITEM-004")
async def test_what_a_handler_begins_while_it_consumes_an_input_is_the_start_of_that_request(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)

        async def consumes(given: Input | Handled) -> Handled | None:
            await trio.lowlevel.checkpoint()
            if not isinstance(given, Input) or not given.text.startswith("/"):
                return None
            if given.text == "/twice":
                thread.turns.send(TurnInput("one"))
                thread.turns.send(TurnInput("two"))
            return Handled()

        thread.hooks.input.add(consumes)
        handled = await client.request("turn/start", threadId=thread_id, text="/nothing", requestId="r1")
        assert handled == {"status": "handled", "threadId": thread_id, "requestId": "r1"}
        await client.until_idle(thread_id)
        assert client.notifications("turn/started") == []
        since = len(client.heard)
        started = await client.request("turn/start", threadId=thread_id, text="/twice", requestId="r2")
        assert started == {"status": "started", "threadId": thread_id, "requestId": "r2"}
        await client.until_idle(thread_id, since=since)
        assert [params.get("requestId") for params in client.notifications("turn/started")] == ["r2", None]
        assert users(client) == ["one", "two"]


@pytest.mark.proves("TURN-013", "SUBSCRIBE-012")
@pytest.mark.rule("S17")
async def test_tries_stay_inside_their_turn_and_an_interrupt_ends_their_waiting(tmp_path: Path) -> None:
    (tmp_path / "home" / "agent").mkdir(parents=True)
    busy = {"error": "503 busy", "retryAfterMs": 50}
    replies = [busy], [busy], [text("there")], [{"error": "503 busy", "retryAfterMs": 60_000}]
    (tmp_path / "home" / "agent" / "settings.json").write_text('{"retry": {"baseDelayMs": 1}}')
    async with open_memory(tmp_path, *replies) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn = await client.run_turn(thread_id)
        assert turn["status"] == "completed"
        told = client.notifications("turn/retry")
        common = {"threadId": thread_id, "turnId": turn["id"]}
        waiting = {**common, "state": "waiting", "maxAttempts": 3, "delayMs": 50, "message": "503 busy"}
        assert told == [
            {**waiting, "attempt": 1},
            {**waiting, "attempt": 2},
            {**common, "state": "ended", "attempt": 2, "success": True},
        ]
        turn_id = await client.start_turn(thread_id)
        since = len(client.heard)
        await client.until(lambda one: one.get("params", {}).get("delayMs") == 60_000)
        await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
        interrupted = await client.until_completed(turn_id)
        assert (interrupted["status"], "error" in interrupted) == ("interrupted", False)
        (ended,) = [one for one in client.notifications("turn/retry", since=since) if one["state"] == "ended"]
        assert (ended["success"], ended["message"]) == (False, "Retry cancelled")
        assert other.notifications("turn/retry") == []
        assert [turn["status"] for turn in await turns_of(client, thread_id)] == ["completed", "interrupted"]


@pytest.mark.proves("TURN-026")
async def test_a_long_error_is_cut_in_summaries_and_whole_in_the_history(tmp_path: Path) -> None:
    long = "no such model " + "x" * 5_000
    async with open_memory(tmp_path, [{"error": long}]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn = await client.run_turn(thread_id)
        assert turn["error"]["message"] == long[:2_000]
        (stored,) = await turns_of(client, thread_id)
        assert stored["error"]["message"] == long


async def held(server: MemoryServer, thread_id: str, point: str) -> Stopped:
    """A handler at one of the thread's points."""
    stopped = Stopped()
    getattr(server.thread(thread_id).hooks, point).add(stopped)
    await trio.lowlevel.checkpoint()
    return stopped


Work = Callable[[], Awaitable[None]]


@pytest.mark.rule("S2", "S3")
async def test_an_interrupt_that_names_no_running_turn_changes_nothing(tmp_path: Path) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        old = await client.run_turn(thread_id)
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        for turn_id in (old["id"], "", "0badc0de"):
            refused = await client.refused("turn/interrupt", threadId=thread_id, turnId=turn_id)
            assert refused["code"] == "turnMismatch"
        stopped = await held(server, thread_id, "before_agent_start")
        turn_id = await client.start_turn(thread_id)
        await stopped.is_reached()
        await client.request("turn/queue/add", threadId=thread_id, text="queued")
        refused = await client.refused("turn/interrupt", threadId=thread_id, turnId=old["id"])
        assert refused["data"] == {"runningTurnId": turn_id}
        since = len(client.heard)
        stopped.let_go.set()
        await client.until_idle(thread_id, since=since)
        assert [turn["status"] for turn in await turns_of(client, thread_id)] == ["completed"] * 3
        unknown = await client.refused("turn/interrupt", threadId="nobody")
        assert unknown["code"] == "threadNotFound"
        for bad in ({}, {"threadId": 5}, {"threadId": thread_id, "turnId": 5}):
            assert (await client.refused("turn/interrupt", **bad))["code"] == "invalidParams"


@pytest.mark.rule("S81")
async def test_a_start_behind_a_compaction_of_a_thread_that_cannot_be_loaded_is_answered_too(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        params = {"threadId": "nobody"}
        client.send(
            {"id": "c", "method": "thread/compact", "params": params},
            {"id": "s", "method": "turn/start", "params": {**params, "text": "go"}},
        )
        for name in ("c", "s"):
            answer = await client.until(lambda one, name=name: one.get("id") == name)  # type: ignore[misc]
            assert answer["error"]["code"] == "threadNotFound"


async def test_all_that_a_handler_sends_while_it_consumes_an_input_is_taken(tmp_path: Path) -> None:
    """App Server notes: Admission and the life of a start; what comes late as well."""
    async with open_memory(tmp_path, *REPLIES) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        pixel = (
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        )
        image = ImageBlock(data=pixel, mime_type="image/png")

        async def consumes(given: Input | Handled) -> Handled | None:
            await trio.lowlevel.checkpoint()
            if not isinstance(given, Input) or given.text != "/two":
                return None
            thread.turns.send(TurnInput("first", (image,)))
            thread.spawn(sends)
            return Handled()

        async def sends(_: object) -> None:
            await trio.lowlevel.checkpoint()
            thread.turns.send(TurnInput("second"))

        thread.hooks.input.add(consumes)
        await client.request("turn/start", threadId=thread_id, text="/two")
        await client.until_idle(thread_id)
        assert users(client) == ["first", "second"]


@pytest.mark.rule("S16", "S36")
async def test_a_call_that_comes_to_the_gate_after_an_interrupt_asks_nobody(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [tool("write", path="b.txt", content="b")], [text("never")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")

        async def interrupts(_: object) -> None:
            await trio.lowlevel.checkpoint()
            client.send({"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})

        server.thread(thread_id).hooks.tool_call.add(interrupts)
        turn = await client.run_turn(thread_id)
        assert (turn["status"], client.requests()) == ("interrupted", [])
        assert not (tmp_path / "b.txt").exists()
