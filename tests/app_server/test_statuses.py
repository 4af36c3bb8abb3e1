"""What a thread's status says while people are asked and when its file cannot be written.

Source: App Server, "Threads and turns"; App Server notes, "Approvals and dialogs".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from knightcode.agent.tools.base import ToolContext, ToolResult
from tests.app_server.memory import APPROVAL, MemoryClient, MemoryServer, call, done, open_memory
from tests.app_server.pipe import Message, text


def statuses(client: MemoryClient, since: int = 0) -> list[Any]:
    """Every status that a client was told: what a person is asked for, or its type."""
    return [
        params["status"].get("waitingOn", params["status"]["type"])
        for params in client.notifications("thread/status/changed", since=since)
    ]


# --- two questions at once -----------------------------------------------------------------------


@attrs.define(eq=False)
class Asked:
    """A turn with two open questions: a call that may run makes two more, side by side."""

    server: MemoryServer
    client: MemoryClient
    thread_id: str
    turn_id: str
    questions: list[Message]
    since: int


@asynccontextmanager
async def open_asked(folder: Path) -> AsyncIterator[Asked]:
    async with open_memory(folder, [call("both", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(folder, approvalMode="ask")

        async def both(_: dict[str, Any], context: ToolContext) -> ToolResult:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(context.call, "own", {})
                nursery.start_soon(context.call, "own", {})
            return ToolResult.of_text("both")

        server.give(thread_id, "both", both)
        server.give(thread_id, "own", done)
        turn_id = await client.start_turn(thread_id)
        await client.until_method(APPROVAL)
        since = len(client.heard)
        client.answer(client.requests()[0], {"decision": "accept"})
        await client.until_all(lambda one: one.get("method") == APPROVAL, 2, since=since)
        yield Asked(server, client, thread_id, turn_id, client.requests()[1:], since)


@pytest.mark.proves("STATUS-010")
@pytest.mark.rule("S41")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_status_tells_of_the_first_question_that_opens_and_of_the_last_that_closes(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    async with open_asked(tmp_path) as asked:
        client = asked.client
        assert [one["params"]["parentItemId"] for one in asked.questions] == ["c1", "c1"]
        assert statuses(client, asked.since) == [[], ["approval"]]
        first, last = (asked.questions[place] for place in order)
        client.answer(first, {"decision": "decline"})
        await client.until_item("item/completed", first["params"]["itemId"])
        assert statuses(client, asked.since) == [[], ["approval"]]  # one is still open
        client.answer(last, {"decision": "accept"})
        await client.until_completed(asked.turn_id)
        await client.until_idle(asked.thread_id)
        assert statuses(client, asked.since) == [[], ["approval"], [], "idle"]
        shown = {item["id"]: item["status"] for item in client.items(kind="toolCall")}
        assert shown == {
            first["params"]["itemId"]: "declined",
            last["params"]["itemId"]: "completed",
            "c1": "completed",
        }


@pytest.mark.rule("S39", "S41")
@pytest.mark.parametrize("why", ["interrupt", "unload", "shutdown"])
async def test_whatever_ends_a_turn_withdraws_every_question_once_and_tells_it_once_in_the_status(
    tmp_path: Path, why: str
) -> None:
    async with open_asked(tmp_path) as asked:
        client = asked.client
        since = len(client.heard)
        if why == "interrupt":
            await client.request("turn/interrupt", threadId=asked.thread_id)
        elif why == "unload":
            asked.server.thread(asked.thread_id).unload("unload")
        else:
            asked.server.host.manager.refuse_new_work()
        turn = await client.until_completed(asked.turn_id)
        assert turn["status"] == "interrupted"
        withdrawn = client.notifications("serverRequest/cancelled", since=since)
        assert sorted(one["requestId"] for one in withdrawn) == sorted(one["id"] for one in asked.questions)
        order = [
            one["method"]
            for one in client.heard[since:]
            if one.get("method") in ("serverRequest/cancelled", "thread/status/changed", "turn/completed")
        ]
        expected = ["serverRequest/cancelled"] * 2 + ["thread/status/changed", "turn/completed"]
        assert order[:4] == expected
        assert statuses(client, since)[0] == []
        for question in asked.questions:
            client.answer(question, {"decision": "accept"})
        shown = {item["id"]: item["status"] for item in client.items(kind="toolCall")}
        asked_for = [shown[question["params"]["itemId"]] for question in asked.questions]
        assert set(asked_for) <= {"declined", "failed"}


@pytest.mark.rule("S39", "S37", "S41")
async def test_two_questions_move_on_together_and_the_status_stays(tmp_path: Path) -> None:
    async with open_asked(tmp_path) as asked:
        client, other = asked.client, asked.server.connect()
        await other.request("thread/resume", threadId=asked.thread_id)
        since = len(other.heard)
        await client.request("thread/unsubscribe", threadId=asked.thread_id)
        await other.until_all(lambda one: one.get("method") == APPROVAL, 2, since=since)
        assert [one["params"] for one in other.requests()] == [one["params"] for one in asked.questions]
        for question in other.requests():
            other.answer(question, {"decision": "accept"})
        assert (await other.until_completed(asked.turn_id))["status"] == "completed"
        await other.until_idle(asked.thread_id)
        assert statuses(other, since) == [[], "idle"]


# --- a file that cannot be written ---------------------------------------------------------------


def block(server: MemoryServer) -> Path:
    """Put a file where the folder of all sessions would be made; that file."""
    sessions = server.folder / "home" / "agent" / "sessions"
    sessions.parent.mkdir(parents=True, exist_ok=True)
    sessions.write_text("in the way")
    return sessions


@pytest.mark.proves("STATUS-006")
async def test_a_thread_whose_file_cannot_be_written_says_so_until_it_can(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("lost")], [text("kept")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        obstacle = block(server)
        since = len(other.heard)
        turn_id = await client.start_turn(thread_id)
        turn = await client.until_completed(turn_id)
        assert turn["status"] == "failed"
        await other.until(lambda one: "systemError" in str(one), since=since)
        server.drain()
        (first, broken) = other.notifications("thread/status/changed", since=since)
        assert first["status"] == {"type": "active", "waitingOn": []}
        assert set(broken["status"]) == {"type", "message"}
        assert broken["status"]["type"] == "systemError"
        assert str(obstacle) in broken["status"]["message"]
        for method in ("thread/read", "thread/resume"):
            shown = (await other.request(method, threadId=thread_id))["thread"]
            assert shown["status"] == broken["status"]
        obstacle.unlink()
        since = len(other.heard)
        assert (await client.run_turn(thread_id, "again"))["status"] == "completed"
        await other.until_idle(thread_id, since=since)
        told = statuses(other, since)
        assert (told[-1], "systemError" in told) == ("idle", False)


@pytest.mark.proves("STATUS-006")
async def test_a_broken_thread_stays_marked_after_it_was_unloaded_until_it_is_loaded_again(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [text("kept")], [text("lost")], [text("again")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
        thread = server.thread(thread_id)
        thread.session.close()  # as when its disk is gone
        since = len(other.heard)
        refused = await client.refused("turn/start", threadId=thread_id, text="lost")
        assert refused["code"] == "internal"
        await other.until(lambda one: "systemError" in str(one), since=since)
        thread.unload("unload")
        with trio.fail_after(5):
            await thread.ended.wait()
        server.drain()
        assert statuses(other, since)[-1] == "systemError"  # and no `notLoaded` after it
        (row,) = (await other.request("thread/list"))["threads"]
        assert (row["id"], row["status"]["type"]) == (thread_id, "systemError")
        read = (await other.request("thread/read", threadId=thread_id))["thread"]
        assert read["status"] == row["status"]
        since = len(other.heard)
        resumed = await other.request("thread/resume", threadId=thread_id)
        assert resumed["thread"]["status"] == {"type": "idle"}
        assert statuses(other, since) == ["idle"]
        assert (await client.run_turn(thread_id, "again"))["status"] == "completed"
