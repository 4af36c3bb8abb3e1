"""Clients that come and go: what they hear, what they leave behind, and who is asked instead of them.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Approvals and dialogs",
"Subscriptions, unload, replacement", "Exactly one response".
"""

from pathlib import Path

import pytest
from trio.testing import wait_all_tasks_blocked

from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, call, done, open_memory
from tests.app_server.pipe import Message, text

TO_ALL = {"thread/started", "thread/status/changed", "thread/turn/completed", "thread/deleted"}


def waiting_on(client: MemoryClient) -> list[list[str] | None]:
    """What every status said that a person is asked for."""
    return [params["status"].get("waitingOn") for params in client.notifications("thread/status/changed")]


async def catch_up(client: MemoryClient) -> None:
    """Hear all that was said so far: an answer comes after it."""
    await client.request("model/list")


@pytest.mark.proves("SUBSCRIBE-013")
async def test_only_subscribers_hear_of_the_queue(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [call("gate", "c1")], [text("a")], [text("b")]) as server:
        client, follower, stranger = server.connect(), server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "gate", gate.tool)
            await follower.request("thread/resume", threadId=thread_id)
            turn_id = await client.start_turn(thread_id)
            await gate.until_visited()  # so that the steer is not delivered at once
            where = {"threadId": thread_id}
            await stranger.request("turn/steer", **where, expectedTurnId=turn_id, text="a steer")
            queued = await stranger.request("turn/queue/add", **where, text="gone")
            kept = await stranger.request("turn/queue/add", **where, text="kept")
            await stranger.request("turn/queue/remove", **where, queueId=queued["queueId"])
            gate.open()
            await client.until_idle(thread_id)
        await catch_up(follower)
        await catch_up(stranger)
        updates = client.notifications("turn/queue/updated")
        rows = [{"id": queued["queueId"], "text": "gone"}, {"id": kept["queueId"], "text": "kept"}]
        assert [(one["steering"], one["followUp"]) for one in updates] == [
            (["a steer"], []),
            (["a steer"], rows[:1]),
            (["a steer"], rows),
            (["a steer"], rows[1:]),
            ([], rows[1:]),
            ([], []),
        ]
        assert follower.notifications("turn/queue/updated") == updates
        heard = {one["method"] for one in stranger.heard if "method" in one}
        assert heard <= TO_ALL


async def unsubscribe(client: MemoryClient, thread_id: str) -> None:
    await client.request("thread/unsubscribe", threadId=thread_id)


async def disconnect(client: MemoryClient, thread_id: str) -> None:
    await wait_all_tasks_blocked()
    client.disconnect()


@pytest.mark.rule("S47", "S82")
@pytest.mark.parametrize("leave", [unsubscribe, disconnect])
@pytest.mark.parametrize("moment", ["in a tool", "in a reply", "in a handler", "between tries"])
async def test_a_turn_goes_on_to_its_end_when_its_only_client_leaves(
    tmp_path: Path, leave: object, moment: str
) -> None:
    assert callable(leave)
    (tmp_path / "home" / "agent").mkdir(parents=True)
    (tmp_path / "home" / "agent" / "settings.json").write_text('{"retry": {"baseDelayMs": 1}}')
    tool = [call("gate", "c1")]
    replies: list[list[Message]] = {
        "in a tool": [tool, [text("end")]],
        "in a reply": [[text("slow", chunk=1, delayMs=20)], [text("unused")]],
        "in a handler": [[text("end")]],
        "between tries": [[{"error": "503 busy", "retryAfterMs": 40}], [text("end")]],
    }[moment]
    async with open_memory(tmp_path, *replies) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "gate", gate.tool)
            if moment == "in a handler":
                server.thread(thread_id).hooks.before_agent_start.add(gate.handler)
            await client.start_turn(thread_id)
            if moment == "in a reply":
                await client.until_method("item/agentMessage/delta")
            elif moment == "between tries":
                await client.until_method("turn/retry")
            else:
                await gate.until_visited()
            await leave(client, thread_id)
            left_with = len(client.heard)
            gate.open()
            ended = await other.until_method("thread/turn/completed")
        assert ended["turn"]["status"] == "completed"
        turn = (await other.request("thread/read", threadId=thread_id))["turns"][-1]
        said = [item["text"] for item in turn["items"] if item["type"] == "agentMessage"]
        assert said == ["slow" if moment == "in a reply" else "end"]
        await other.until_idle(thread_id)
        server.drain()
        later = {one.get("method") for one in client.heard[left_with:]}
        assert later <= (set() if leave is disconnect else TO_ALL)


@pytest.mark.rule("S82", "S47")
async def test_requests_of_a_client_that_is_gone_are_carried_out_and_answered_to_nobody(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [text("first")], [text("second")], [text("third")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        since = len(other.heard)
        with Gate() as gate:
            server.thread(thread_id).hooks.input.add(gate.handler)
            client.begin("turn/start", threadId=thread_id, text="one")
            await gate.until_visited()
            client.begin("turn/queue/add", threadId=thread_id, text="two")
            client.begin("thread/settings/update", threadId=thread_id, approvalMode="autoEdit")
            client.begin("thread/start", cwd=str(tmp_path), approvalMode="ask", name="a new one")
            client.disconnect()
            server.drain()
            left_with = len(client.heard)
            gate.open()
            await other.until_all(lambda one: one.get("method") == "thread/turn/completed", 2, since=since)
        read = await other.request("thread/read", threadId=thread_id)
        assert [turn["items"][0]["text"] for turn in read["turns"]] == ["one", "two"]
        assert read["thread"]["approvalMode"] == "autoEdit"
        started = [params["thread"]["name"] for params in other.notifications("thread/started")]
        assert started[1:] == ["a new one"]
        server.drain()
        assert len(client.heard) == left_with


@pytest.mark.rule("S47")
async def test_a_client_that_is_gone_follows_nothing_that_it_asked_for(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("first")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await other.start_thread(tmp_path)
        await other.run_turn(thread_id)
        server.thread(thread_id).unload("unload")
        gone = {"threadId": thread_id, "status": {"type": "notLoaded"}}
        await other.until(lambda one: one.get("params") == gone)
        client.begin("thread/resume", threadId=thread_id)
        client.disconnect()
        await other.until_idle(thread_id, since=len(other.heard))
        assert list(server.thread(thread_id).subscribers.all()) == []


@pytest.mark.rule("S37", "S86", "S40")
@pytest.mark.parametrize("late", ["accept", "decline"])
async def test_a_late_answer_of_the_client_that_was_asked_first_changes_nothing(
    tmp_path: Path, late: str
) -> None:
    decision = "decline" if late == "accept" else "accept"
    async with open_memory(tmp_path, [call("own", "c1")], [text("end")]) as server:
        second, first = server.connect(), server.connect()
        thread_id = await first.start_thread(tmp_path, approvalMode="ask")
        server.give(thread_id, "own", done)
        await second.request("thread/resume", threadId=thread_id)
        turn_id = await first.start_turn(thread_id)
        await first.until_method("item/toolCall/requestApproval")
        (question,) = first.requests()
        await first.request("thread/unsubscribe", threadId=thread_id)
        moved = await second.until_method("item/toolCall/requestApproval")
        assert moved == question["params"]
        assert second.requests()[0]["id"] == question["id"]  # each client has ids of its own
        first.answer(question, {"decision": late})
        await catch_up(first)
        assert [one["params"]["turn"]["id"] for one in ended(second)] == []
        withdrawn = first.notifications("serverRequest/cancelled")
        assert withdrawn == [{"threadId": thread_id, "requestId": question["id"]}]
        second.answer(second.requests()[0], {"decision": decision})
        assert (await second.until_completed(turn_id))["status"] == "completed"
        (shown,) = second.items(kind="toolCall")
        assert shown["status"] == ("completed" if decision == "accept" else "declined")
        await second.until_idle(thread_id)
        assert waiting_on(second)[-4:] == [[], ["approval"], [], None]
        assert second.notifications("serverRequest/cancelled") == []


def ended(client: MemoryClient) -> list[Message]:
    return [one for one in client.heard if one.get("method") == "turn/completed"]


@pytest.mark.rule("S38")
async def test_without_a_subscriber_a_call_is_cancelled_at_once_and_who_comes_later_is_not_asked(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, [call("own", "c1")], [call("gate", "c2")], [text("end")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        with Gate() as ran, Gate() as before:
            server.give(thread_id, "own", ran.tool)
            server.give(thread_id, "gate", ran.tool)
            server.thread(thread_id).hooks.before_agent_start.add(before.handler)
            await client.start_turn(thread_id)
            await before.until_visited()
            await client.request("thread/unsubscribe", threadId=thread_id)
            before.open()
            await other.until_idle(thread_id)
            (turn,) = (await other.request("thread/read", threadId=thread_id))["turns"]
            await client.request("thread/resume", threadId=thread_id)
            await catch_up(client)
            calls = [item for item in turn["items"] if item["type"] == "toolCall"]
            assert [one["status"] for one in calls] == ["declined", "declined"]
            assert (client.requests(), ran.visitors) == ([], [])
            assert client.notifications("serverRequest/cancelled") == []
            assert "approval" not in str(waiting_on(client))


@pytest.mark.rule("S81")
async def test_every_answer_goes_to_the_client_that_asked_whatever_the_ids(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("first")]) as server:
        clients = [server.connect() for _ in range(3)]
        threads = [await client.start_thread(tmp_path) for client in clients]
        for client in clients:
            client.send(
                *(
                    {"id": f"r{n}", "method": "thread/read", "params": {"threadId": thread_id}}
                    for n, thread_id in enumerate(threads[: clients.index(client) + 1])
                )
            )
        for client in clients:
            await catch_up(client)
        answers = [
            [
                (one["id"], one["result"]["thread"]["id"])
                for one in client.heard
                if "method" not in one and str(one["id"]).startswith("r")
            ]
            for client in clients
        ]
        expected = [(f"r{n}", thread_id) for n, thread_id in enumerate(threads)]
        assert [sorted(one) for one in answers] == [expected[:count] for count in (1, 2, 3)]


async def test_who_unsubscribes_from_a_thread_that_is_not_there_yet_does_not_follow_it_later(
    tmp_path: Path,
) -> None:
    """App Server: Subscriptions and replacement; requests take effect in the order in which they came."""
    async with open_memory(tmp_path, [text("a")], [text("b")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
    async with open_memory(tmp_path, [text("a")], [text("b")]) as server:
        client = server.connect()
        params = {"threadId": thread_id}
        client.send(
            {"id": "s", "method": "turn/start", "params": {**params, "text": "go"}},
            {"id": "u", "method": "thread/unsubscribe", "params": params},
        )
        await client.until_method("thread/turn/completed")
        left = await client.until(lambda one: one.get("id") == "u")
        assert left["result"] == {"status": "unsubscribed"}
        assert client.notifications("turn/started") == client.notifications("turn/completed") == []


async def test_who_unsubscribes_while_a_thread_unloads_hears_no_more_of_it(tmp_path: Path) -> None:
    """App Server: Subscriptions and replacement."""
    async with open_memory(tmp_path, [text("a")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate(deaf=True) as gate:
            thread.hooks.before_agent_start.add(gate.handler)
            await client.start_turn(thread_id)
            await gate.until_visited(1)
            thread.unload("unload")
            left = await client.request("thread/unsubscribe", threadId=thread_id)
            assert left == {"status": "unsubscribed"}
            gate.open()
            await other.until_method("thread/turn/completed")
        assert client.notifications("turn/completed") == []
