"""What an interrupt stops, what it drops, what it leaves alone, and what it is refused for.

Where a start is when the interrupt comes is the subject of test_phases.py and test_admission.py.

Source: App Server, "Threads and turns"; App Server notes, "Interrupts", "Steers and queue".
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.hooks import Settled
from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.messages import AssistantMessage, UserMessage
from knightcode.threads.turn import TurnInput
from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, call, open_memory
from tests.app_server.pipe import Message, text

SILENT = [text("so far"), {"silence": True}]


async def turns_of(client: MemoryClient, thread_id: str) -> list[Message]:
    turns: list[Message] = (await client.request("thread/read", threadId=thread_id))["turns"]
    return turns


async def ends_of(client: MemoryClient, thread_id: str) -> list[tuple[str, str]]:
    """Each stored turn: what its user said, and how it ended."""
    return [(turn["items"][0]["text"], turn["status"]) for turn in await turns_of(client, thread_id)]


def queues(client: MemoryClient, since: int = 0) -> list[tuple[list[str], list[str]]]:
    """Every `turn/queue/updated`: the steers, and the texts of the queued inputs."""
    told = client.notifications("turn/queue/updated", since=since)
    return [(each["steering"], [one["text"] for one in each["followUp"]]) for each in told]


def in_order(client: MemoryClient, *methods: str, since: int = 0) -> list[str]:
    """Which of these methods were heard, in order."""
    return [one["method"] for one in client.heard[since:] if one.get("method") in methods]


async def silent_turn(client: MemoryClient, thread_id: str, said: str = "first") -> str:
    """A turn in the middle of a reply that says nothing more; its id."""
    since = len(client.heard)
    turn_id = await client.start_turn(thread_id, said)
    await client.until_method("item/agentMessage/delta", since=since)
    return turn_id


# --- what it stops -----------------------------------------------------------------------------------


@pytest.mark.rule("S1", "S22", "S23")
async def test_a_turn_that_is_interrupted_many_times_has_one_end(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SILENT, [text("next")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await silent_turn(client, thread_id)
        since = len(client.heard)
        params = {"threadId": thread_id, "turnId": turn_id}
        client.send(*({"id": f"i{n}", "method": "turn/interrupt", "params": params} for n in range(20)))
        other.send(*({"id": f"o{n}", "method": "turn/interrupt", "params": params} for n in range(20)))
        await client.until_idle(thread_id, since=since)
        for one, sent in ((client, "i"), (other, "o")):
            answers = await one.until_all(lambda told: str(told.get("id")).startswith(sent), 20)  # noqa: B023
            assert answers == [{"id": f"{sent}{n}", "result": {}} for n in range(20)]
        ends = in_order(client, "turn/completed", "thread/turn/completed", "thread/status/changed")
        assert ends[-3:] == ["turn/completed", "thread/turn/completed", "thread/status/changed"]
        assert ends.count("turn/completed") == ends.count("thread/turn/completed") == 1
        completed = next(n for n, one in enumerate(client.heard) if one.get("method") == "turn/completed")
        later = [one for one in client.heard[completed + 1 :] if one.get("method") != "thread/turn/completed"]
        assert turn_id not in json.dumps(later)
        path = server.thread(thread_id).session.path
        assert path is not None
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        markers = [(entry["type"], entry.get("status")) for entry in entries if "turn_" in entry["type"]]
        assert markers == [("turn_start", None), ("turn_end", "interrupted")]
        assert (await client.run_turn(thread_id))["status"] == "completed"


POINTS = [
    ("message_end", UserMessage),
    ("context", tuple),
    ("before_provider_request", dict),
    ("after_provider_response", object),
    ("message_end", AssistantMessage),
    ("tool_call", object),
    ("tool_result", object),
    ("turn_end", object),
    ("agent_before_settle", bool),
]
"""Where handlers take part in a run, and the values that the test stops it at."""


@pytest.mark.proves("INTERRUPT-005")
@pytest.mark.rule("S1", "S22")
@pytest.mark.parametrize(("point", "kind"), POINTS, ids=lambda value: getattr(value, "__name__", value))
async def test_an_interrupt_at_any_point_of_a_run_asks_no_model_and_runs_no_tool_any_more(
    tmp_path: Path, point: str, kind: type
) -> None:
    calls = [call("work", "c1"), call("work", "c2")]
    replies = [calls, [text("never")]] if point != "agent_before_settle" else [[text("done")]]
    begun: list[str] = []

    async def asks(_: dict[str, Any]) -> None:
        begun.append("request")
        await trio.lowlevel.checkpoint()

    async def works(_: dict[str, Any], __: ToolContext) -> ToolResult:
        begun.append("tool")
        await trio.lowlevel.checkpoint()
        return ToolResult.of_text("done")

    async with open_memory(tmp_path, *replies) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "work", works)
        hooks = server.thread(thread_id).hooks
        hooks.before_provider_request.add(asks)
        with Gate() as gate:

            async def stops(value: object) -> None:
                if isinstance(value, kind):
                    await gate.handler(value)

            getattr(hooks, point).add(stops)
            turn_id = await client.start_turn(thread_id, "hello")
            await gate.until_visited()
            before = list(begun)
            assert await client.request("turn/interrupt", threadId=thread_id) == {}
            gate.open()
            assert (await client.until_completed(turn_id))["status"] == "interrupted"
        await client.until_idle(thread_id)
        assert begun == before
        assert await ends_of(client, thread_id) == [("hello", "interrupted")]
        begun_items = [params["item"]["id"] for params in client.notifications("item/started")]
        assert len(begun_items) == len(set(begun_items))
        assert set(begun_items) <= {item["id"] for item in client.items()}


@pytest.mark.rule("S21")
@pytest.mark.parametrize("error", ["400 no such model", "503 busy"])
async def test_a_failure_that_is_being_recorded_when_the_interrupt_comes_is_neither_told_nor_tried_again(
    tmp_path: Path, error: str
) -> None:
    async with open_memory(tmp_path, [{"error": error}], [text("again")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:

            async def stops(message: object) -> None:
                if isinstance(message, AssistantMessage):
                    await gate.handler(message)

            server.thread(thread_id).hooks.message_end.add(stops)
            turn_id = await client.start_turn(thread_id, "first")
            await gate.until_visited()
            (failed,) = gate.visitors
            assert (failed.stop_reason, failed.error_message) == ("error", error)
            await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
            gate.open()
            turn = await client.until_completed(turn_id)
        assert (turn["status"], "error" in turn) == ("interrupted", False)
        (told,) = client.notifications("thread/turn/completed")
        assert (told["turn"]["status"], "error" in told["turn"]) == ("interrupted", False)
        (stored,) = await turns_of(client, thread_id)
        assert (stored["status"], "error" in stored) == ("interrupted", False)
        assert client.notifications("turn/retry") == []


@pytest.mark.rule("S14")
async def test_of_a_reply_that_is_cut_off_words_and_thoughts_are_kept_and_its_calls_are_left_out(
    tmp_path: Path,
) -> None:
    steps = [
        {"thinking": "hm"},
        call("work", "whole"),
        text("so far"),
        call("work", "begun"),
        {"silence": True},
    ]
    async with open_memory(tmp_path, steps, [text("next")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "work", gate.tool)
            turn_id = await silent_turn(client, thread_id)
            await wait_all_tasks_blocked()
            await client.request("turn/interrupt", threadId=thread_id)
            assert (await client.until_completed(turn_id))["status"] == "interrupted"
            assert gate.visitors == []
        shown = [(item["type"], item["text"]) for item in client.items()]
        assert shown == [("userMessage", "first"), ("reasoning", "hm"), ("agentMessage", "so far")]
        assert await client.read_items(thread_id) == client.items()
        assert (await client.run_turn(thread_id, "next"))["status"] == "completed"


# --- what it drops -----------------------------------------------------------------------------------


@pytest.mark.proves("INTERRUPT-004")
@pytest.mark.rule("S30")
async def test_queued_inputs_are_dropped_with_the_turn_and_never_begin(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SILENT, [text("next")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await silent_turn(client, thread_id)
        ids = [
            (await client.request("turn/queue/add", threadId=thread_id, text=said))["queueId"]
            for said in ("one", "two")
        ]
        await client.request("turn/steer", threadId=thread_id, expectedTurnId=turn_id, text="steer")
        since = len(client.heard)
        await client.request("turn/interrupt", threadId=thread_id)
        await client.until_idle(thread_id, since=since)
        assert queues(client, since) == [([], [])]
        assert in_order(client, "turn/queue/updated", "turn/completed", "error", since=since) == [
            "turn/queue/updated",
            "turn/completed",
        ]
        for queue_id in ids:
            removed = await client.request("turn/queue/remove", threadId=thread_id, queueId=queue_id)
            assert removed == {"removed": False}
        resumed = await client.request("thread/resume", threadId=thread_id)
        assert resumed["queue"] == {"steering": [], "followUp": []}
        await client.run_turn(thread_id, "next")
        assert await ends_of(client, thread_id) == [("first", "interrupted"), ("next", "completed")]


@pytest.mark.rule("S2", "S30")
async def test_on_an_idle_thread_an_input_whose_image_is_still_being_read_is_answered_and_dropped(
    tmp_path: Path,
) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
    async with open_memory(tmp_path, [text("next")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        images = [{"mimeType": "image/png", "data": png}]
        add = {"threadId": thread_id, "text": "look", "images": images}
        client.send(
            {"id": "q", "method": "turn/queue/add", "params": add},
            {"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}},
        )
        assert (await client.until(lambda one: one.get("id") == "i"))["result"] == {}
        queued = await client.until(lambda one: one.get("id") == "q")
        assert set(queued["result"]) == {"queueId"}
        assert (await client.run_turn(thread_id, "next"))["status"] == "completed"
        assert await ends_of(client, thread_id) == [("next", "completed")]
        assert queues(client)[-1] == ([], [])


@pytest.mark.rule("S4", "S30")
async def test_interrupts_of_a_thread_that_loads_drop_what_waits_for_it_and_not_the_load(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [text("saved")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id, "saved")
    async with open_memory(tmp_path, [text("next")]) as server:
        client, other = server.connect(), server.connect()
        on = {"threadId": thread_id}
        resume = other.begin("thread/resume", **on)
        client.send(
            {"id": "s", "method": "turn/start", "params": {**on, "text": "never"}},
            {"id": "q", "method": "turn/queue/add", "params": {**on, "text": "neither"}},
            {"id": "x", "method": "turn/interrupt", "params": {**on, "turnId": "0badc0de"}},
            {"id": "i1", "method": "turn/interrupt", "params": on},
            {"id": "i2", "method": "turn/interrupt", "params": on},
        )
        resumed = (await other.response(resume))["result"]
        assert resumed["queue"] == {"steering": [], "followUp": []}
        assert "runningTurn" not in resumed
        await client.until_idle(thread_id)
        answers = {one["id"]: one for one in client.heard if one.get("id") in ("s", "q", "x", "i1", "i2")}
        assert answers["s"]["result"] == {"status": "cancelled", "threadId": thread_id}
        assert set(answers["q"]["result"]) == {"queueId"}
        assert answers["x"]["error"]["code"] == "turnMismatch"
        assert (answers["i1"]["result"], answers["i2"]["result"]) == ({}, {})
        assert (await client.run_turn(thread_id, "next"))["status"] == "completed"
        assert await ends_of(client, thread_id) == [("saved", "completed"), ("next", "completed")]


@pytest.mark.rule("S12", "S28", "S30")
async def test_a_steer_that_was_accepted_before_the_run_falls_with_its_turn(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("next")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.thread(thread_id).hooks.before_agent_start.add(gate.handler)
            turn_id = await client.start_turn(thread_id, "first")
            await gate.until_visited()
            steer = {"threadId": thread_id, "expectedTurnId": turn_id}
            assert await client.request("turn/steer", text="lost", **steer) == {}
            await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
            assert queues(client) == [(["lost"], []), ([], [])]
            error = await client.refused("turn/steer", text="too late", **steer)
            assert (error["code"], error["data"]) == ("invalidParams", {"reason": "steerCancelled"})
            gate.open()
            await client.until_completed(turn_id)
        (stored,) = await turns_of(client, thread_id)
        assert [item["text"] for item in stored["items"]] == ["first"]
        await client.run_turn(thread_id, "next")
        assert [item["text"] for item in client.items(kind="userMessage")] == ["first", "next"]


# --- what it leaves alone ----------------------------------------------------------------------------


@pytest.mark.rule("S20")
@pytest.mark.parametrize("status", ["completed", "failed", "interrupted"])
async def test_in_settlement_every_outcome_stands_and_what_handlers_begin_begins(
    tmp_path: Path, status: str
) -> None:
    first = {"completed": [text("done")], "failed": [{"error": "no such model"}], "interrupted": SILENT}
    async with open_memory(tmp_path, first[status], [text("next")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:

            async def settles(turn: Settled) -> None:
                if not gate.passed:
                    await gate.handler(turn)
                    thread.turns.send(TurnInput("sent by a handler"))

            thread.hooks.agent_settled.add(settles)
            turn_id = await client.start_turn(thread_id, "first")
            if status == "interrupted":
                await client.until_method("item/agentMessage/delta")
                await client.request("turn/interrupt", threadId=thread_id)
            await gate.until_visited()
            assert gate.visitors == [Settled(turn_id, status)]
            await client.request("turn/queue/add", threadId=thread_id, text="queued")
            error = await client.refused("turn/interrupt", threadId=thread_id, turnId=turn_id)
            assert (error["code"], error.get("data")) == ("turnMismatch", None)
            assert queues(client) == [([], ["queued"])]
            assert await client.request("turn/interrupt", threadId=thread_id) == {}
            assert queues(client) == [([], ["queued"]), ([], [])]
            gate.open()
            await client.until_idle(thread_id)
        assert await ends_of(client, thread_id) == [("first", status), ("sent by a handler", "completed")]
        turn = (await turns_of(client, thread_id))[0]
        assert turn.get("error") == (
            {"message": "no such model", "kind": "other"} if status == "failed" else None
        )


@pytest.mark.proves("INTERRUPT-002")
@pytest.mark.rule("S3")
async def test_a_turn_of_another_thread_is_not_stopped_and_stops_nothing(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SILENT) as server:
        client = server.connect()
        threads = [await client.start_thread(tmp_path) for _ in range(2)]
        turns = [await silent_turn(client, thread_id) for thread_id in threads]
        await client.request("turn/queue/add", threadId=threads[0], text="queued")
        error = await client.refused("turn/interrupt", threadId=threads[0], turnId=turns[1])
        assert (error["code"], error["data"]) == ("turnMismatch", {"runningTurnId": turns[0]})
        await wait_all_tasks_blocked()
        assert client.notifications("turn/completed") == []
        assert queues(client) == [([], ["queued"])]
        await client.request("turn/interrupt", threadId=threads[1], turnId=turns[1])
        assert (await client.until_completed(turns[1]))["status"] == "interrupted"
        assert [told["turn"]["id"] for told in client.notifications("turn/completed")] == [turns[1]]
        running = server.thread(threads[0]).turn
        assert running is not None
        assert running.id == turns[0]


async def test_whoever_interrupts_need_not_follow_the_thread_and_does_not_follow_it_then(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, SILENT) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await silent_turn(client, thread_id)
        assert await other.request("turn/interrupt", threadId=thread_id) == {}
        assert (await client.until_completed(turn_id))["status"] == "interrupted"
        await other.until_method("thread/turn/completed")
        assert other.notifications("turn/completed") == []


async def test_an_interrupt_loads_no_thread(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("saved")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        old = await client.run_turn(thread_id)
    async with open_memory(tmp_path, [text("next")]) as server:
        client = server.connect()
        since = len(client.heard)
        assert await client.request("turn/interrupt", threadId=thread_id) == {}
        error = await client.refused("turn/interrupt", threadId=thread_id, turnId=old["id"])
        assert (error["code"], error.get("data")) == ("turnMismatch", None)
        assert server.host.manager.counts() == (0, 0)
        assert [one for one in client.heard[since:] if "method" in one] == []


# --- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({}, "invalidParams"),
        ({"threadId": None}, "invalidParams"),
        ({"threadId": ["{thread}"]}, "invalidParams"),
        ({"turnId": "x"}, "invalidParams"),
        ({"threadId": "{thread}", "turnId": 7}, "invalidParams"),
        ({"threadId": "{thread}", "turnId": {"id": "x"}}, "invalidParams"),
        ({"threadId": "{thread}", "turnId": ""}, "turnMismatch"),
        ({"threadId": "{thread}", "turnId": "\u0000"}, "turnMismatch"),
        ({"threadId": ""}, "threadNotFound"),
        ({"threadId": "../{thread}"}, "threadNotFound"),
        ({"threadId": "nobody", "turnId": "x"}, "threadNotFound"),
    ],
    ids=str,
)
async def test_an_interrupt_that_is_wrong_is_refused_and_the_turn_goes_on(
    tmp_path: Path, wrong: dict[str, Any], code: str
) -> None:
    async with open_memory(tmp_path, [call("wait", "c")], [text("done")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "wait", gate.tool)
            turn_id = await client.start_turn(thread_id)
            await gate.until_visited()
            params = json.loads(json.dumps(wrong).replace("{thread}", thread_id))
            assert (await client.refused("turn/interrupt", **params))["code"] == code
            gate.open()
            assert (await client.until_completed(turn_id))["status"] == "completed"


async def test_no_turn_id_may_be_said_as_null(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SILENT) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await silent_turn(client, thread_id)
        assert await client.request("turn/interrupt", threadId=thread_id, turnId=None) == {}
        assert (await client.until_completed(turn_id))["status"] == "interrupted"
