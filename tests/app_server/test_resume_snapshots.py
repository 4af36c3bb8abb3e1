"""What `thread/resume` answers, and that nothing is lost or told twice after it.

The strongest of these lets one more client resume at every step that the server takes. All of them
must come to the same view of the thread, message by message.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Subscriptions and
replacement", "Subscriptions, unload, replacement".
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.app_server.connection import PAUSE_BYTES
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.main import server_info
from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, MemoryServer, call, done, open_memory
from tests.app_server.mirror import Mirror
from tests.app_server.pipe import Message, text

ASKED = ("item/toolCall/requestApproval", "serverRequest/cancelled")
"""Said to one client alone."""


def listener(server: MemoryServer) -> MemoryClient:
    """A client that costs no task: it hears everything when it is drained."""
    core = ConnectionCore(server_info(), default_mode="desktop")
    client = MemoryClient(
        connection=server.host.connect(core, server.host.requests, in_process=True), host=server.host
    )
    client.begin("initialize", clientInfo={"name": "test", "version": "1"})
    client.send({"method": "initialized", "params": {}})
    return client


@attrs.define(eq=False)
class Everywhere(trio.abc.Instrument):
    """Lets another client resume after every step of a task, but for those that only listen or resume."""

    server: MemoryServer
    thread_id: str
    joined: list[tuple[MemoryClient, int]] = attrs.field(factory=list, init=False)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name != "thread/resume" and not task.name.endswith("pump"):
            self.join()

    def join(self) -> None:
        client = listener(self.server)
        self.joined.append((client, client.begin("thread/resume", threadId=self.thread_id)))


@contextmanager
def resuming_everywhere(server: MemoryServer, thread_id: str) -> Iterator[Everywhere]:
    """Resume at each step of what is done inside; at least once before it."""
    everywhere = Everywhere(server, thread_id)
    everywhere.join()
    trio.lowlevel.add_instrument(everywhere)
    try:
        yield everywhere
    finally:
        trio.lowlevel.remove_instrument(everywhere)


def view_of(client: MemoryClient, request_id: int) -> tuple[Message, list[Message]]:
    """The result of a resume, and all notifications after it."""
    while client.drain():
        pass
    answers = [place for place, one in enumerate(client.heard) if one.get("id") == request_id]
    assert len(answers) == 1
    (place,) = answers
    after = [one for one in client.heard[place + 1 :] if one["method"] not in ASKED]
    result: Message = client.heard[place]["result"]
    return result, after


def check_views(joined: list[tuple[MemoryClient, int]]) -> int:
    """All clients know the same, at every moment; at how many different moments they joined.

    The one that joined first is the measure. Each other one must have heard exactly the end of what
    that one heard, and its snapshot must be what that one knew just then.
    """
    views = [view_of(client, request_id) for client, request_id in joined]
    result, told = max(views, key=lambda view: len(view[1]))
    mirror = Mirror.of(result)
    states = [mirror.state()]
    for message in told:
        mirror.apply(message)
        states.append(mirror.state())
    moments = set()
    for snapshot, after in views:
        moment = len(told) - len(after)
        assert after == told[moment:]
        assert Mirror.of(snapshot).state() == states[moment], f"before {told[moment : moment + 1]}"
        moments.add(moment)
    assert states[-1]["running"] is None
    return len(moments)


# --- at every step -------------------------------------------------------------------------------


SMALL = {"contextWindow": 100_000, "maxTokens": 10_000}
FULL = {"input": 95_000, "output": 10}
BUSY: list[Any] = [
    {"steps": [{"thinking": "hm, hm"}, text("look at it"), call("noisy", "c1"), call("own", "c2")]},
    {"steps": [text("and now"), {"error": "503 busy"}]},
    {"steps": [text("second try"), call("own", "c3")], "usage": FULL},
    {"when": {"system": "You summarise"}, "steps": [text("in short")]},
    {"steps": [text("done with it")]},
    {"steps": [text("for the queue")]},
    {"steps": [text("cut off"), {"silence": True}]},
]


@pytest.mark.proves("RESUME-001", "RESUME-002", "RESUME-005")
@pytest.mark.rule("S49")
@pytest.mark.parametrize("order", range(3))
async def test_whoever_resumes_at_any_step_knows_what_everybody_knows(tmp_path: Path, order: int) -> None:
    """A stream, questions, nested calls, steers, a queue, settings, a retry, a compaction, an interrupt; and
    tasks that take their steps in another order each time.
    """
    agent = tmp_path / "home" / "agent"
    agent.mkdir(parents=True)
    settings = {"retry": {"baseDelayMs": 1}, "compaction": {"keepRecentTokens": 1}}
    (agent / "settings.json").write_text(json.dumps(settings))
    pace = {"chunk": 3, "delayMs": 1}
    async with open_memory(tmp_path, *BUSY, pace=pace, model=SMALL) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")

        async def noisy(_: dict[str, Any], context: ToolContext) -> ToolResult:
            """Output that grows, a call of its own, and output that replaces what was shown."""
            for said in ("one", "one two"):
                context.update(ToolResult.of_text(said))
                await trio.lowlevel.checkpoint()
            await context.call("own", {"n": 1})
            context.update(ToolResult.of_text("another"))
            await client.until(lambda one: one.get("params", {}).get("replace") is True)
            return ToolResult.of_text("another thing")

        server.give(thread_id, "noisy", noisy)
        server.give(thread_id, "own", done)
        where = {"threadId": thread_id}

        def says_more(question: Message) -> Message:
            if question["itemId"] == "c1":
                turn = {**where, "expectedTurnId": question["turnId"]}
                client.begin("turn/steer", **turn, text="a steer")
                client.begin("turn/queue/add", **where, text="queued")
                client.begin("thread/settings/update", **where, thinkingLevel="off", approvalMode="autoEdit")
                client.begin("turn/steer", **turn, text="another")
                client.begin("turn/queue/add", **where, text="the last")
            return {"decision": "accept"}

        client.answer_approvals = says_more
        with resuming_everywhere(server, thread_id) as everywhere:
            await client.request("turn/start", **where, text="go")
            await client.until_all(lambda one: one.get("method") == "turn/started", 3)
            since = len(client.heard)
            await client.until_method("item/agentMessage/delta", since=since)
            last = client.notifications("turn/started")[-1]["turn"]["id"]
            await client.request("turn/steer", **where, expectedTurnId=last, text="never")
            await client.request("turn/queue/add", **where, text="never")
            await client.request("turn/interrupt", **where)
            await client.until_idle(thread_id, since=since)
            await wait_all_tasks_blocked()
        kinds = {one["method"] for one in client.heard if "method" in one}
        assert kinds >= {"turn/retry", "item/toolCall/outputDelta", "thread/settings/updated"}
        assert len(client.items(kind="compaction")) == 1
        ends = [params["turn"]["status"] for params in client.notifications("turn/completed")]
        assert ends == ["completed", "completed", "interrupted"]
        # What the server says in one step cannot be told apart; the rest has been.
        assert check_views(everywhere.joined) > 30


@pytest.mark.proves("RESUME-001")
@pytest.mark.rule("S49")
async def test_whoever_resumes_while_a_thread_is_loaded_and_started_knows_what_everybody_knows(
    tmp_path: Path,
) -> None:
    replies: list[Any] = [[text("first")], [{"thinking": "hm"}, text("second")], [text("third")]]
    pace = {"chunk": 2, "delayMs": 1}
    async with open_memory(tmp_path, *replies, pace=pace) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.run_turn(thread_id)
    async with open_memory(tmp_path, *replies[1:], pace=pace) as server:
        client, where = server.connect(), {"threadId": thread_id}
        await client.request("model/list")
        with resuming_everywhere(server, thread_id) as everywhere:
            client.begin("turn/start", **where, text="go on")
            client.begin("turn/queue/add", **where, text="and on")
            client.begin("thread/settings/update", **where, approvalMode="ask")
            await client.until_all(lambda one: one.get("method") == "turn/completed", 2)
            await client.until_idle(thread_id)
            await wait_all_tasks_blocked()
        assert check_views(everywhere.joined) > 10


# --- what the answer holds -----------------------------------------------------------------------

NOTHING_WAITS: Message = {"steering": [], "followUp": []}


@pytest.mark.proves("RESUME-004", "RESUME-006")
async def test_a_thread_without_turns_has_an_empty_queue_and_no_usage_and_both_are_there(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        resumed = await other.request("thread/resume", threadId=thread_id)
        usage = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0.0}
        assert {**resumed["usage"], "contextWindow": 0} == {**usage, "contextWindow": 0}
        assert (resumed["queue"], resumed["turns"]) == (NOTHING_WAITS, [])
        assert "runningTurn" not in resumed
        # Twice is once: every later message comes one time.
        await other.request("thread/resume", threadId=thread_id)
        await client.request("thread/settings/update", threadId=thread_id, approvalMode="ask")
        await other.until_method("thread/settings/updated")
        assert len(other.notifications("thread/settings/updated")) == 1


@pytest.mark.proves("RESUME-005", "RESUME-006")
@pytest.mark.rule("S49")
async def test_a_resume_that_had_to_wait_tells_of_the_moment_in_which_it_is_answered(tmp_path: Path) -> None:
    async with open_memory(tmp_path, [text("a")], [call("gate", "c1")], [text("b")]) as server:
        client, late = server.connect(), listener(server)
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "gate", gate.tool)
            # The client is so far behind that its answers wait, after it has sent the request.
            resume = late.begin("thread/resume", threadId=thread_id)
            filler = json.dumps({"method": "filler", "params": {}}).encode()
            late.connection.core.outbox.post(filler + b" " * (PAUSE_BYTES + 1) + b"\n")
            await client.run_turn(thread_id)
            turn_id = await client.start_turn(thread_id, "again")
            await gate.until_visited()
            queued = await client.request("turn/queue/add", threadId=thread_id, text="later")
            used = client.notifications("thread/tokenUsage/updated")[-1]["usage"]
            while late.drain():
                pass
            await wait_all_tasks_blocked()
            while late.drain():
                pass
            result = (await late.response(resume))["result"]
            assert result["runningTurn"]["id"] == turn_id
            assert [item["type"] for item in result["runningTurn"]["items"]] == ["userMessage", "toolCall"]
            rows = [{"id": queued["queueId"], "text": "later"}]
            assert result["queue"] == {"steering": [], "followUp": rows}
            assert (result["usage"], used["output"] > 0) == (used, True)
            assert [turn["status"] for turn in result["turns"]] == ["completed"]


@pytest.mark.proves("RESUME-002", "RESUME-003")
async def test_a_resume_with_a_cursor_shows_older_turns_and_the_turn_of_now(tmp_path: Path) -> None:
    says = {"when": {"user": "say"}, "steps": [text("said")]}
    waits = {"when": {"user": "wait"}, "steps": [call("gate", "c1")]}
    async with open_memory(tmp_path, says, waits, [text("end")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            server.give(thread_id, "gate", gate.tool)
            saved = [(await client.run_turn(thread_id, f"say {n}"))["id"] for n in range(52)]
            turn_id = await client.start_turn(thread_id, "wait")
            await gate.until_visited()
            first = await other.request("thread/resume", threadId=thread_id)
            older = await other.request("thread/resume", threadId=thread_id, cursor=first["nextCursor"])
            shown = [turn["id"] for page in (older, first) for turn in page["turns"]]
            assert shown == saved
            assert (len(first["turns"]), "nextCursor" in older) == (50, False)
            for page in (first, older):
                assert page["runningTurn"]["id"] == turn_id
                assert page["queue"] == NOTHING_WAITS
                assert page["usage"] == first["usage"]
            gate.open()
            await other.until_completed(turn_id)


# --- cursors that are none -----------------------------------------------------------------------

BAD_CURSORS = ["", "x", "!!!", "bm90IGpzb24", "e30", "W10", "bnVsbA", "A" * 10_000]


def forged(cursor: str) -> list[str]:
    """The cursor with one member after the other made up: well formed, and of no place that exists."""
    place: Message = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    changed = [{**place, name: "0badc0de"} for name in place]
    return [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in changed]


def nothing_but_answers(client: MemoryClient, since: int) -> bool:
    return [one for one in client.heard[since:] if "method" in one] == []


@pytest.mark.proves("RESUME-007")
@pytest.mark.rule("S48")
@pytest.mark.parametrize("loaded", [True, False])
async def test_a_resume_with_a_bad_cursor_is_refused_and_nothing_else_happens(
    tmp_path: Path, loaded: bool
) -> None:
    says = {"when": {"user": ""}, "steps": [text("said")]}
    async with open_memory(tmp_path, says) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        other_id = await client.start_thread(tmp_path)
        for one in (thread_id, other_id):
            for _ in range(51):
                await client.run_turn(one)
        foreign = (await client.request("thread/resume", threadId=other_id))["nextCursor"]
        own = (await client.request("thread/resume", threadId=thread_id))["nextCursor"]
        (file,) = (tmp_path / "home").rglob(f"*{thread_id}.jsonl")
    assert own != foreign
    async with open_memory(tmp_path, says) as server:
        client, stranger = server.connect(), server.connect()
        if loaded:
            await client.request("thread/resume", threadId=thread_id)
        before, bytes_before = server.host.manager.counts(), file.read_bytes()
        since = len(stranger.heard)
        for cursor in (*BAD_CURSORS, foreign, *forged(own)):
            refused = await stranger.refused("thread/resume", threadId=thread_id, cursor=cursor)
            assert refused["code"] == "invalidCursor", cursor
            assert server.host.manager.counts() == before
        not_text: list[Any] = [5, [], {}, True]
        for wrong in not_text:
            refused = await stranger.refused("thread/resume", threadId=thread_id, cursor=wrong)
            assert refused["code"] == "invalidParams"
        assert nothing_but_answers(stranger, since)
        assert file.read_bytes() == bytes_before
        result = await stranger.request("thread/unsubscribe", threadId=thread_id)
        assert result == {"status": "notSubscribed"}
        await client.run_turn(thread_id)
        await stranger.request("model/list")  # its answer comes after all that was said
        heard = {one["method"] for one in stranger.heard[since:] if "method" in one}
        assert heard == {"thread/status/changed", "thread/turn/completed"}
        good = await stranger.request("thread/resume", threadId=thread_id, cursor=own)
        assert len(good["turns"]) == 1
