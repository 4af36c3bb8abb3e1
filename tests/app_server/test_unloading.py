"""A thread that leaves memory: in which order, and what becomes of requests that come meanwhile.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Subscriptions, unload,
replacement", "Shutdown".
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.agent.hooks import Handled, Input, SessionShutdown
from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.sessions.errors import SessionFileError
from knightcode.sessions.log import SessionLog
from knightcode.threads.thread import Thread
from tests.app_server.held import Gate, crawl, pass_time
from tests.app_server.memory import MemoryClient, MemoryServer, call, done, open_memory
from tests.app_server.pipe import PATIENCE, Message, text
from tests.app_server.stopping import markers


async def until_ended(thread: Thread) -> None:
    with trio.fail_after(PATIENCE):
        await thread.ended.wait()


def told(client: MemoryClient, since: int) -> list[tuple[str, Any]]:
    """What a client heard, each message by its name and by what matters of it here."""
    shown: list[tuple[str, Any]] = []
    for one in client.heard[since:]:
        method, params = one.get("method"), one.get("params", {})
        if method is None:
            shown.append(("answer", one["error"]["data"] if "error" in one else one["result"]))
        elif method == "thread/status/changed":
            shown.append((method, params["status"].get("waitingOn", params["status"]["type"])))
        elif method == "turn/queue/updated":
            shown.append((method, (params["steering"], params["followUp"])))
        elif method in ("turn/completed", "thread/turn/completed"):
            shown.append((method, params["turn"]["status"]))
        elif method in ("item/started", "item/completed"):
            shown.append((method, (params["item"]["id"], params["item"].get("status"))))
        else:
            shown.append((method, None))
    return shown


class Goodbye:
    """A handler of `session_shutdown` that looks around."""

    def __init__(self, client: MemoryClient, thread: Thread, since: int = 0) -> None:
        self.client, self.thread, self.since = client, thread, since
        self.told: list[tuple[str, Any]] = []
        self.markers: list[tuple[str, str | None]] = []
        thread.hooks.session_shutdown.add(self)

    async def __call__(self, shutdown: SessionShutdown) -> None:
        assert shutdown.reason == "quit"
        await trio.lowlevel.checkpoint()
        self.client.drain()
        self.told = told(self.client, self.since)
        path = self.thread.session.path
        self.markers = [] if path is None else markers(path)
        # The file still takes what a handler has to say.
        self.thread.session.append_custom("test.goodbye", {"said": True})


END = [("turn_start", None), ("turn_end", "interrupted")]
USAGE = ("thread/tokenUsage/updated", None)  # of the reply that the end of the turn has cut off
COMPLETED = [("turn/completed", "interrupted"), ("thread/turn/completed", "interrupted")]
LAST = [("thread/status/changed", "idle"), ("thread/status/changed", "notLoaded")]


@pytest.mark.rule("S43", "S39", "S41", "S35", "S28")
async def test_an_unload_withdraws_refuses_and_drops_then_settles_then_says_goodbye(tmp_path: Path) -> None:
    """With all that can be open: a question, a steer in its handlers, an accepted one, a queued input."""
    async with open_memory(tmp_path, [call("own", "c1"), call("own", "c2")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        server.give(thread_id, "own", done)
        thread, steers = server.thread(thread_id), Gate()

        async def steers_wait(given: Input | Handled) -> None:
            await trio.lowlevel.checkpoint()
            if isinstance(given, Input) and given.text == "in interception":
                await steers.handler(given)

        thread.hooks.input.add(steers_wait)
        turn_id = await client.start_turn(thread_id)
        await client.until_method("item/toolCall/requestApproval")
        where = {"threadId": thread_id, "expectedTurnId": turn_id}
        await client.request("turn/steer", **where, text="accepted")
        await client.request("turn/queue/add", threadId=thread_id, text="queued")
        client.begin("turn/steer", **where, text="in interception")
        await steers.until_visited()
        server.drain()
        since = len(client.heard)
        goodbye = Goodbye(client, thread, since)
        thread.unload("unload")
        assert await client.until_completed(turn_id)
        steers.open()
        await until_ended(thread)
        server.drain()
        settled: list[tuple[str, Any]] = [
            ("serverRequest/cancelled", None),
            ("thread/status/changed", []),
            ("answer", {"reason": "steerCancelled"}),
            ("turn/queue/updated", ([], [])),
            ("item/completed", ("c1", "declined")),
            USAGE,
            ("item/completed", ("c2", "failed")),
            *COMPLETED,
            LAST[0],
        ]
        assert goodbye.told == settled
        assert goodbye.markers == END
        assert told(client, since) == [*settled, LAST[1]]
        assert client.notifications("error") == []
        path = thread.session.path
        assert path is not None
        entries = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert [entry.get("customType") for entry in entries[-2:]] == [None, "test.goodbye"]


@pytest.mark.rule("S43")
async def test_an_unload_cancels_a_running_tool_and_waits_for_its_clean_up(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("look"), call("own", "c1")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, begun, cleaned = server.thread(thread_id), Gate(), trio.Event()

        async def cleans_up(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            try:
                return await begun.tool(arguments, context)
            finally:
                with trio.move_on_after(5, shield=True):
                    for _ in range(10):
                        await trio.lowlevel.checkpoint()
                cleaned.set()

        server.give(thread_id, "own", cleans_up)
        turn_id = await client.start_turn(thread_id)
        await begun.until_visited()
        server.drain()
        since = len(client.heard)
        goodbye = Goodbye(client, thread, since)
        thread.unload("unload")
        await client.until_completed(turn_id)
        assert cleaned.is_set()
        await until_ended(thread)
        server.drain()
        settled = [("item/completed", ("c1", "failed")), USAGE, *COMPLETED, LAST[0]]
        assert (goodbye.told, goodbye.markers) == (settled, END)
        assert told(client, since) == [*settled, LAST[1]]


@pytest.mark.rule("S43")
@pytest.mark.parametrize("phase", ["input", "before_agent_start", "agent_settled"])
async def test_an_unload_lets_the_handlers_of_a_start_run_to_their_end(tmp_path: Path, phase: str) -> None:
    async with open_memory(tmp_path, [text("said")], [text("never")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, gate = server.thread(thread_id), Gate()
        getattr(thread.hooks, phase).add(gate.handler)
        start = client.begin("turn/start", threadId=thread_id, text="go")
        await gate.until_visited()
        goodbye = Goodbye(client, thread)
        thread.unload("unload")
        if phase == "input":
            assert (await client.response(start))["result"]["status"] == "cancelled"
        await wait_all_tasks_blocked()
        assert (goodbye.told, thread.ended.is_set()) == ([], False)
        gate.open()
        await until_ended(thread)
        server.drain()
        assert gate.passed == 1
        ends = [params["turn"]["status"] for params in client.notifications("turn/completed")]
        expected = {"input": [], "before_agent_start": ["interrupted"], "agent_settled": ["completed"]}
        assert ends == expected[phase]
        statuses = [params["status"]["type"] for params in client.notifications("thread/status/changed")]
        assert statuses == ["active", "idle", "notLoaded"]


@pytest.mark.rule("S43", "S15")
async def test_a_tool_that_does_not_end_is_left_behind_after_five_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    crawl(mock_clock)
    async with open_memory(tmp_path, [call("deaf", "c1")]) as server:
        with Gate(deaf=True) as deaf:
            client = server.connect()
            thread_id = await client.start_thread(tmp_path)
            thread = server.thread(thread_id)
            server.give(thread_id, "deaf", deaf.tool)
            turn_id = await client.start_turn(thread_id)
            await deaf.until_visited()
            server.drain()
            since = len(client.heard)
            goodbye = Goodbye(client, thread, since)
            thread.unload("unload")
            await pass_time(mock_clock, 4)
            server.drain()
            assert told(client, since) == []
            await pass_time(mock_clock, 1)
            await client.until_completed(turn_id)
            await until_ended(thread)
            server.drain()
            heard = len(client.heard)
            settled = [("item/completed", ("c1", "failed")), USAGE, *COMPLETED, LAST[0]]
            assert (goodbye.told, goodbye.markers) == (settled, END)
            assert told(client, since) == [*settled, LAST[1]]
            deaf.open()
            await deaf.until_passed()
            await client.request("thread/list")
            assert len(client.heard) == heard + 1  # what it says afterwards appears nowhere


@pytest.mark.rule("S43")
async def test_goodbyes_that_do_not_end_are_cancelled_after_four_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    crawl(mock_clock)
    async with open_memory(tmp_path, [text("said")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
        thread, first, second = server.thread(thread_id), Gate(), Gate()
        thread.hooks.session_shutdown.add(first.handler)
        thread.hooks.session_shutdown.add(second.handler)
        thread.unload("unload")
        await first.until_visited()
        await pass_time(mock_clock, 2)
        first.open()
        await second.until_visited()
        await pass_time(mock_clock, 1)
        assert not thread.ended.is_set()
        await pass_time(mock_clock, 1)
        assert thread.ended.is_set()
        server.drain()
        assert told(client, len(client.heard) - 1) == [LAST[1]]
        assert second.passed == 0


@pytest.mark.rule("S43")
async def test_a_goodbye_that_fails_stops_neither_the_others_nor_the_unload(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("said")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
        thread = server.thread(thread_id)

        async def fails(_: SessionShutdown) -> None:
            await trio.lowlevel.checkpoint()
            raise ZeroDivisionError

        thread.hooks.session_shutdown.add(fails)
        goodbye = Goodbye(client, thread)
        thread.unload("unload")
        thread.unload("unload")  # asking twice changes nothing
        await until_ended(thread)
        assert goodbye.told
        assert len([one for one in told_of(server, client) if one == "notLoaded"]) == 1


def told_of(server: MemoryServer, client: MemoryClient) -> list[str]:
    """Every status that a client was told."""
    server.drain()
    return [params["status"]["type"] for params in client.notifications("thread/status/changed")]


# --- what comes meanwhile ------------------------------------------------------------------------


@asynccontextmanager
async def open_dying(
    tmp_path: Path, hold: str, *replies: list[Message]
) -> AsyncIterator[tuple[MemoryServer, MemoryClient, Thread, str, Gate]]:
    """A thread whose unload is held up by a tool or a goodbye; the id of its last turn, and what holds it."""
    async with open_memory(tmp_path, [call("slow", "c1")], [text("first")], *replies) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate(deaf=True) as gate:
            server.give(thread_id, "slow", gate.tool if hold == "a tool" else done)
            turn_id = await client.start_turn(thread_id)
            if hold == "a tool":
                await gate.until_visited()
                thread.unload("unload")
            else:
                await client.until_idle(thread_id)
                thread.hooks.session_shutdown.add(gate.handler)
                thread.unload("unload")
                await gate.until_visited()
            yield server, client, thread, turn_id, gate


@pytest.mark.rule("S45")
@pytest.mark.parametrize("hold", ["a tool", "a goodbye"])
async def test_what_comes_during_an_unload_waits_for_the_next_life_of_the_thread(
    tmp_path: Path, hold: str
) -> None:
    async with open_dying(tmp_path, hold, [text("second")], [text("third")]) as (
        server, _, thread, turn_id, gate,
    ):  # fmt: skip
        other, idler, where = server.connect(), server.connect(), {"threadId": thread.id}
        seen = Gate()
        seen.open()
        thread.hooks.input.add(seen.handler)
        thread.hooks.before_agent_start.add(seen.handler)
        # Those that change nothing, or refuse, wait for nothing.
        assert await other.request("turn/interrupt", **where) == {}
        steer = await other.refused("turn/steer", **where, expectedTurnId=turn_id, text="late")
        assert steer["code"] in ("turnMismatch", "invalidParams")
        read = await other.request("thread/read", **where)
        assert [turn["id"] for turn in read["turns"]] == [turn_id]
        assert [row["id"] for row in (await other.request("thread/list"))["threads"]] == [thread.id]
        # All others are for the next life.
        waiting = {
            "settings": other.begin("thread/settings/update", **where, approvalMode="ask"),
            "start": other.begin("turn/start", **where, text="a start"),
            "queue": other.begin("turn/queue/add", **where, text="queued"),
            "resume": idler.begin("thread/resume", **where),
        }
        again = await other.refused("turn/start", **where, text="one too many")
        assert again["code"] == "turnInProgress"
        await wait_all_tasks_blocked()
        server.drain()
        answered = {one["id"] for one in (*other.heard, *idler.heard) if "method" not in one}
        assert answered.isdisjoint({waiting["settings"], waiting["start"], waiting["queue"]})
        assert [one for one in idler.heard if one.get("id") == waiting["resume"]] == []
        assert not thread.ended.is_set()
        gate.open()
        await until_ended(thread)
        settings = (await other.response(waiting["settings"]))["result"]
        assert settings["thread"]["approvalMode"] == "ask"
        assert (await other.response(waiting["start"]))["result"]["status"] == "started"
        assert "queueId" in (await other.response(waiting["queue"]))["result"]
        assert (await idler.response(waiting["resume"]))["result"]["thread"]["id"] == thread.id
        await other.until_all(
            lambda one: one.get("method") == "thread/turn/completed", 2 + (hold == "a tool")
        )
        await other.until_idle(thread.id, since=len(other.heard) - 1)
        assert server.thread(thread.id) is not thread
        turns = (await other.request("thread/read", **where))["turns"]
        outcomes = [(turn["status"], turn["items"][0]["text"]) for turn in turns]
        first = "interrupted" if hold == "a tool" else "completed"
        assert outcomes == [(first, "go"), ("completed", "a start"), ("completed", "queued")]
        # Nothing of it reached the runtime that was on its way out.
        assert seen.visitors == []
        assert (thread.lane.free, thread.turn) == (True, None)


@pytest.mark.rule("S45", "S1")
async def test_an_interrupt_during_an_unload_reaches_what_waits_for_the_next_life(tmp_path: Path) -> None:
    async with open_dying(tmp_path, "a goodbye") as (_, client, thread, turn_id, gate):
        since = len(client.heard)
        start = client.begin("turn/start", threadId=thread.id, text="never")
        queue = client.begin("turn/queue/add", threadId=thread.id, text="never")
        refused = await client.refused("turn/interrupt", threadId=thread.id, turnId=turn_id)
        assert refused["code"] == "turnMismatch"
        assert await client.request("turn/interrupt", threadId=thread.id) == {}
        assert (await client.response(start))["result"]["status"] == "cancelled"
        assert "queueId" in (await client.response(queue))["result"]
        assert not thread.ended.is_set()
        gate.open()
        resumed = await client.request("thread/resume", threadId=thread.id)
        assert (resumed["queue"], len(resumed["turns"])) == ({"steering": [], "followUp": []}, 1)
        assert client.notifications("turn/started", since=since) == []


@pytest.mark.rule("S45")
async def test_a_thread_that_was_never_saved_is_gone_for_what_came_during_its_unload(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("never")]) as server:
        client, gate = server.connect(), Gate()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        thread.hooks.session_shutdown.add(gate.handler)
        thread.unload("unload")
        await gate.until_visited()
        where = {"threadId": thread_id}
        waiting = [
            client.begin("thread/resume", **where),
            client.begin("turn/start", **where, text="never"),
            client.begin("turn/queue/add", **where, text="never"),
            client.begin("thread/settings/update", **where, approvalMode="ask"),
        ]
        await wait_all_tasks_blocked()
        since = len(client.heard)
        gate.open()
        codes = [(await client.response(one))["error"]["code"] for one in waiting]
        assert codes == ["threadNotFound"] * 4
        gone = [one["method"] for one in client.heard[since:] if "method" in one]
        assert gone == ["thread/status/changed", "thread/deleted"]
        assert server.host.manager.counts() == (0, 0)


# --- afterwards ----------------------------------------------------------------------------------


@pytest.mark.rule("S46")
async def test_after_an_unload_another_host_can_go_on_with_the_file_at_once(tmp_path: Path) -> None:
    async with open_memory(tmp_path, {"when": {}, "steps": [text("said")]}) as first:
        client = first.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
        thread = first.thread(thread_id)
        path = thread.session.path
        assert path is not None
        thread.unload("unload")
        await client.until(lambda one: one.get("params", {}).get("status") == {"type": "notLoaded"})
        log = SessionLog.open(path, now_ms=lambda: 0)  # in the step in which the client hears of it
        log.append_custom("test.other", {"n": 1})
        log.close()
        with pytest.raises(SessionFileError):  # the runtime that is gone has let go of it
            thread.session.append_custom("test.late", {})
        async with open_memory(tmp_path, {"when": {}, "steps": [text("said")]}) as second:
            other = second.connect()
            assert (await other.run_turn(thread_id, "elsewhere"))["status"] == "completed"
        resumed = await client.request("thread/resume", threadId=thread_id)
    assert [turn["items"][0]["text"] for turn in resumed["turns"]] == ["go", "elsewhere"]
    assert ("test.other" in path.read_text(), "test.late" in path.read_text()) == (True, False)


# --- with the whole server -----------------------------------------------------------------------


@pytest.mark.rule("S69", "S70", "S68", "S35")
async def test_when_the_server_stops_tools_have_until_four_seconds_and_goodbyes_until_eight(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    crawl(mock_clock)
    async with open_memory(tmp_path, [call("deaf", "c1")], [text("never")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread, slow = server.thread(thread_id), Gate()
        with Gate(deaf=True) as deaf:
            server.give(thread_id, "deaf", deaf.tool)
            thread.hooks.session_shutdown.add(slow.handler)
            turn_id = await client.start_turn(thread_id)
            await client.request("turn/queue/add", threadId=thread_id, text="never")
            await deaf.until_visited()
            server.drain()
            since = len(client.heard)
            server.host.manager.refuse_new_work()
            await pass_time(mock_clock, 3)
            server.drain()
            assert told(client, since) == [("turn/queue/updated", ([], []))]
            await pass_time(mock_clock, 1)
            assert (await client.until_completed(turn_id))["status"] == "interrupted"
            await slow.until_visited()
            path = thread.session.path
            assert path is not None
            assert markers(path) == END
            await pass_time(mock_clock, 3)
            assert not thread.ended.is_set()
            await pass_time(mock_clock, 1)
            assert thread.ended.is_set()
            server.drain()
            assert told(client, since)[1:] == [("item/completed", ("c1", "failed")), *COMPLETED, *LAST]
            assert slow.passed == 0
