"""Calls that tools make, and calls that end early, as clients see them."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from knightcode.agent.hooks import PendingCall
from knightcode.agent.tools.base import ToolContext, ToolResult
from tests.app_server.memory import MemoryClient, call, done, open_memory
from tests.app_server.pipe import PATIENCE, text

ITEM_LIFE = ("item/started", "item/completed", "item/removed")


def lives(client: MemoryClient) -> list[tuple[str, str]]:
    """What became of which item, in order, without the users' messages."""
    return [
        (one["method"].removeprefix("item/"), one["params"].get("itemId") or one["params"]["item"]["id"])
        for one in client.heard
        if one.get("method") in ITEM_LIFE and one["params"].get("item", {}).get("type") != "userMessage"
    ]


async def both(_: dict[str, Any], context: ToolContext) -> ToolResult:
    """A tool that makes two calls side by side."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(context.call, "inner", {"n": 1})
        nursery.start_soon(context.call, "inner", {"n": 2})
    return ToolResult.of_text("both")


@pytest.mark.proves("ITEM-016", "ITEM-022", "ITEM-023")
async def test_calls_of_a_tool_are_items_of_their_caller_that_exist_live_only(tmp_path: Path) -> None:
    """App Server: Threads and turns; a client that comes meanwhile sees them too."""
    may_end = trio.Event()

    async def inner(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.update(ToolResult.of_text("some"))
        await may_end.wait()
        return ToolResult.of_text(f"did {arguments['n']}")

    async with open_memory(tmp_path, [call("both", "c1")], [text("end")]) as server:
        client, late = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "both", both)
        server.give(thread_id, "inner", inner)
        turn_id = await client.start_turn(thread_id)
        await client.until_all(lambda one: one.get("method") == "item/toolCall/outputDelta", 2)
        running = (await late.request("thread/resume", threadId=thread_id))["runningTurn"]["items"]
        may_end.set()
        await client.until_completed(turn_id)
        read = await client.read_items(thread_id)
    assert [(one["id"], one.get("parentItemId"), one.get("index")) for one in running[1:]] == [
        ("c1", None, 1),
        ("c1/1", "c1", None),
        ("c1/2", "c1", None),
    ]
    nested = sorted((one for one in client.items() if "parentItemId" in one), key=lambda one: str(one["id"]))
    assert all(one.pop("startedAt") <= one.pop("completedAt") for one in nested)
    assert nested == [
        {
            "id": f"c1/{n}",
            "parentItemId": "c1",
            "type": "toolCall",
            "tool": "inner",
            "input": {"n": number},
            "status": "completed",
            "output": [{"type": "text", "text": f"did {number}"}],
        }
        for n, number in ((one["id"][-1], one["input"]["n"]) for one in nested)
    ]
    assert lives(client)[:3] == [("started", "c1"), ("started", "c1/1"), ("started", "c1/2")]
    assert sorted(lives(client)[3:5]) == [("completed", "c1/1"), ("completed", "c1/2")]
    assert lives(client)[5] == ("completed", "c1")
    assert [one["id"] for one in read] == [f"{turn_id}:0", "c1", f"{turn_id}:2:t0"]


async def test_two_nested_calls_ask_at_once_and_each_answer_is_for_its_own(tmp_path: Path) -> None:
    """App Server notes: The gate; nested calls pass it and name their parent."""
    ran: list[int] = []

    async def inner(arguments: dict[str, Any], _: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        ran.append(arguments["n"])
        return ToolResult.of_text("did it")

    results: list[tuple[bool, Any]] = []

    async def ask_both(_: dict[str, Any], context: ToolContext) -> ToolResult:
        async def one(n: int) -> None:
            result = await context.call("inner", {"n": n})
            results.append((result.is_error, result.details))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, 1)
            nursery.start_soon(one, 2)
        return ToolResult.of_text("both")

    async with open_memory(tmp_path, [call("both", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        server.give(thread_id, "both", ask_both)
        server.give(thread_id, "inner", inner)
        client.answer_approvals = lambda params: {"decision": "accept"} if params["tool"] == "both" else None
        turn_id = await client.start_turn(thread_id)
        questions = (await client.until_all(lambda one: one.get("params", {}).get("tool") == "inner", 2))[:2]
        assert ran == []
        asked = {one["params"]["input"]["n"]: one for one in questions}
        assert [
            {name: asked[n]["params"].get(name) for name in ("threadId", "turnId", "parentItemId")}
            for n in (1, 2)
        ] == [{"threadId": thread_id, "turnId": turn_id, "parentItemId": "c1"}] * 2
        client.answer(asked[2], {"decision": "decline", "message": "not two"})
        await client.until_item("item/completed", asked[2]["params"]["itemId"])
        assert ran == []
        client.answer(asked[1], {"decision": "accept"})
        await client.until_completed(turn_id)
    completed = {one["input"].get("n"): one for one in client.items(kind="toolCall")}
    assert [(completed[n]["status"], completed[n]["output"][0]["text"]) for n in (1, 2, None)] == [
        ("completed", "did it"),
        ("declined", "not two"),
        ("completed", "both"),
    ]
    assert ran == [1]
    assert results == [(True, {"blocked": True}), (False, None)]
    outer = [one["params"] for one in client.requests() if one["params"]["itemId"] == "c1"]
    assert len(outer) == 1 and "parentItemId" not in outer[0]


@pytest.mark.rule("S25")
async def test_an_interrupt_ends_nested_items_before_their_caller_and_takes_their_questions_back(
    tmp_path: Path,
) -> None:
    """App Server notes: Interrupts."""

    async def inner(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.sleep_forever()
        raise AssertionError

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(context.call, "inner", {"asks": False})
            await context.call("inner", {"asks": True})
        raise AssertionError

    async with open_memory(tmp_path, [call("outer", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        server.give(thread_id, "outer", outer)
        server.give(thread_id, "inner", inner)
        client.answer_approvals = lambda params: (
            None if params["input"].get("asks") else {"decision": "accept"}
        )
        turn_id = await client.start_turn(thread_id)
        question = await client.until(lambda one: one.get("params", {}).get("input") == {"asks": True})
        await client.until(lambda one: one.get("params", {}).get("input") == {"asks": False})
        with trio.fail_after(PATIENCE):
            await trio.testing.wait_all_tasks_blocked()
        await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
        turn = await client.until_completed(turn_id)
        read = await client.read_items(thread_id)
    statuses = {one["input"].get("asks"): one["status"] for one in client.items(kind="toolCall")}
    assert statuses == {False: "failed", True: "declined", None: "failed"}
    ends = [item_id for what, item_id in lives(client) if what == "completed"]
    assert sorted(ends[:2]) == ["c1/1", "c1/2"] and ends[2:] == ["c1"]
    assert client.notifications("serverRequest/cancelled") == [
        {"threadId": thread_id, "requestId": question["id"]}
    ]
    assert turn["status"] == "interrupted"
    assert [one["id"] for one in read] == [f"{turn_id}:0", "c1"]


@pytest.mark.rule("S15", "S23")
async def test_of_an_abandoned_tool_and_its_calls_nothing_appears_after_the_turn(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """App Server notes: Interrupts; a tool that ignores its cancellation has five seconds."""
    mock_clock.rate = 1
    deaf, released, over = trio.Event(), trio.Event(), trio.Event()

    async def inner(_: dict[str, Any], context: ToolContext) -> ToolResult:
        with trio.CancelScope(shield=True):
            deaf.set()
            await released.wait()
        context.update(ToolResult.of_text("late"))
        return ToolResult.of_text("late")

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            return await context.call("inner", {})
        finally:
            context.update(ToolResult.of_text("late"))
            over.set()

    async with open_memory(tmp_path, [call("outer", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "outer", outer)
        server.give(thread_id, "inner", inner)
        turn_id = await client.start_turn(thread_id)
        with trio.fail_after(PATIENCE):
            await deaf.wait()
        await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
        with trio.fail_after(PATIENCE):
            await trio.testing.wait_all_tasks_blocked()
        assert client.notifications("turn/completed") == []
        mock_clock.jump(5)
        turn = await client.until_completed(turn_id)
        await client.until_idle(thread_id)
        released.set()
        with trio.fail_after(PATIENCE):
            await over.wait()
            await trio.testing.wait_all_tasks_blocked()
    assert turn["status"] == "interrupted"
    ended = [(one["id"], one["status"]) for one in client.items(kind="toolCall")]
    assert ended == [("c1/1", "failed"), ("c1", "failed")]
    last = max(place for place, one in enumerate(client.heard) if turn_id in str(one))
    assert client.heard[last]["method"] == "thread/turn/completed"


@pytest.mark.rule("S16")
async def test_an_interrupted_batch_runs_none_of_its_calls_and_ends_all_their_items(tmp_path: Path) -> None:
    """App Server notes: Interrupts; the first is prepared, the second asks, the third is not reached."""
    ran: list[str] = []

    async def work(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        ran.append("ran")
        return ToolResult()

    script = [call("t", "c1"), call("t", "c2"), call("t", "c3")]
    async with open_memory(tmp_path, script, [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        server.give(thread_id, "t", work)
        client.answer_approvals = lambda params: {"decision": "accept"} if params["itemId"] == "c1" else None
        turn_id = await client.start_turn(thread_id)
        await client.until(lambda one: one.get("params", {}).get("itemId") == "c2")
        await client.request("turn/interrupt", threadId=thread_id, turnId=turn_id)
        turn = await client.until_completed(turn_id)
        read = await client.read_items(thread_id)
    assert ran == []
    assert [one["id"] for one in client.items("item/started")][1:] == ["c1", "c2"]
    ended = {one["id"]: one for one in client.items(kind="toolCall")}
    assert {name: one["status"] for name, one in ended.items()} == {
        "c1": "failed",
        "c2": "declined",
        "c3": "failed",
    }
    assert ended["c1"]["output"] == [{"type": "text", "text": "Operation aborted"}]
    assert ended["c3"]["output"] == [] and "startedAt" not in ended["c3"]
    assert turn["status"] == "interrupted"
    assert read[1:] == [ended["c1"], ended["c2"], ended["c3"]]


async def test_a_hook_sees_which_call_makes_a_nested_one(tmp_path: Path) -> None:
    """Extensions: Nested calls carry the parent id."""
    seen: list[tuple[str, str | None]] = []

    async def look(pending: Any) -> None:
        await trio.lowlevel.checkpoint()
        assert isinstance(pending, PendingCall)
        seen.append((pending.call_id, pending.parent_id))

    async with open_memory(tmp_path, [call("both", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "both", both)
        server.give(thread_id, "inner", done)
        server.thread(thread_id).hooks.tool_call.add(look)
        await client.run_turn(thread_id)
    assert sorted(seen) == [("c1", None), ("c1/1", "c1"), ("c1/2", "c1")]
