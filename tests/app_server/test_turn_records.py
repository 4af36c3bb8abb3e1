"""Starts that begin no turn, the summary of one that ended, and the record of one that did not.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start".
"""

import json
from pathlib import Path

import pytest
import trio

from knightcode.agent.hooks import Handled, Hooks, Input
from knightcode.app_server.host import Host
from knightcode_protocol import params, results
from knightcode_protocol.notifications import ThreadStatusChanged
from tests.app_server.pipe import PATIENCE, Message, Pipe, open_pipe, text, tool, write_script
from tests.client.transports import Listener, open_clients, open_scripted_host


def told_since(listener: Listener, since: int) -> list[str]:
    """What was told from `since` on, with the status in place of its notification's name."""
    return [
        told.status.__class__.__name__ if isinstance(told, ThreadStatusChanged) else method
        for method, told in listener.heard[since:]
    ]


def hooks_of(host: Host, thread_id: str) -> Hooks:
    thread = host.manager.loaded(thread_id)
    assert thread is not None
    return thread.hooks


@pytest.mark.proves("TURN-004")
async def test_an_input_that_a_handler_consumes_is_handled_and_begins_no_turn(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 1) as (ana,):
        thread_id = await ana.start_thread(tmp_path)
        await ana.until_method("thread/started")
        since = len(ana.heard)

        async def consume(given: Input | Handled) -> Handled | None:
            await trio.lowlevel.checkpoint()
            return Handled() if given == Input("ping") else None

        hooks_of(host, thread_id).input.add(consume)
        wanted = params.TurnStartParams(thread_id=thread_id, text="ping", request_id="r1")
        with trio.fail_after(PATIENCE):
            answer = await ana.client.turn_start(wanted)
        assert answer == results.TurnStartResult(status="handled", thread_id=thread_id, request_id="r1")
        await ana.until_idle(since=since)
        await ana.catch_up()
        assert told_since(ana, since) == ["StatusActive", "StatusIdle"]
        await ana.run_turn(thread_id, "go")  # what it leaves alone begins a turn


@pytest.mark.proves("TURN-005")
@pytest.mark.rule("S6")
async def test_a_start_that_is_interrupted_before_it_is_accepted_is_cancelled(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    entered, leave = trio.Event(), trio.Event()

    async def wait(_: Input | Handled) -> None:
        entered.set()
        await leave.wait()

    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 1) as (ana,):
        thread_id = await ana.start_thread(tmp_path)
        await ana.until_method("thread/started")
        since = len(ana.heard)
        forget = hooks_of(host, thread_id).input.add(wait)
        answers: list[results.TurnStartResult] = []

        async def start() -> None:
            answers.append(
                await ana.client.turn_start(params.TurnStartParams(thread_id=thread_id, text="go"))
            )

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await entered.wait()
                await ana.client.turn_interrupt(params.TurnInterruptParams(thread_id=thread_id))
        assert answers == [results.TurnStartResult(status="cancelled", thread_id=thread_id)]
        leave.set()
        await ana.until_idle(since=since)
        await ana.catch_up()
        assert told_since(ana, since) == ["StatusActive", "StatusIdle"]
        forget()
        await ana.run_turn(thread_id, "go")


@pytest.mark.proves("TURN-022")
async def test_the_end_of_a_turn_is_told_without_its_items_however_many_they_are(tmp_path: Path) -> None:
    calls = [tool("read", path="note.txt") for _ in range(20)]
    (tmp_path / "note.txt").write_text("x" * 10_000)
    script = write_script(tmp_path / "script.json", [text("I look."), *calls], [text("Done. " * 1000)])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        completed = await pipe.run_turn(thread_id)
        (turn,) = (await pipe.call("thread/read", threadId=thread_id))["turns"]
    told = [params for method, params in pipe.notifications() if method == "thread/turn/completed"]
    summary = {name: value for name, value in turn.items() if name != "items"}
    assert len(turn["items"]) == 23 and len(json.dumps(completed)) < 1_000
    assert (completed, told) == ({"threadId": thread_id, "turn": summary}, [{"turn": summary}])


async def two_turns(pipe: Pipe, cwd: Path) -> str:
    """A thread with a turn behind it, and one that has begun to answer."""
    await pipe.handshake()
    thread_id = await pipe.start_thread(cwd)
    await pipe.run_turn(thread_id)
    await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "stay"}})
    return thread_id


async def read_turns(pipe: Pipe, thread_id: str) -> list[Message]:
    await pipe.handshake()
    turns: list[Message] = (await pipe.call("thread/read", threadId=thread_id))["turns"]
    return turns


@pytest.mark.proves("TURN-020", "TURN-021")
async def test_a_turn_that_died_with_its_server_reads_as_interrupted_and_without_an_end(
    tmp_path: Path,
) -> None:
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "stay"}, "steps": [text("I st"), {"silence": True}]},
        {"when": {}, "steps": [text("Hello")]},
    )
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        thread_id = await two_turns(pipe, tmp_path)
        begun = (await pipe.until_method("turn/started"))["turn"]
        await pipe.until_method("item/agentMessage/delta")
        pipe.process.kill()
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        whole, broken = await read_turns(pipe, thread_id)
        assert (whole["status"], "completedAt" in whole) == ("completed", True)
        assert {name: broken[name] for name in set(broken) - {"items"}} == {
            "id": begun["id"],
            "threadId": thread_id,
            "status": "interrupted",
            "startedAt": begun["startedAt"],
        }
        assert [item["text"] for item in broken["items"]] == ["stay"]
        resumed = await pipe.call("thread/resume", threadId=thread_id)
        assert (resumed["turns"], resumed.get("runningTurn")) == ([whole, broken], None)
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"


@pytest.mark.proves("TURN-020", "TURN-021")
async def test_a_turn_whose_end_is_cut_off_its_file_reads_as_interrupted(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("Hello")]})
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        thread_id = await two_turns(pipe, tmp_path)
        await pipe.until_idle()
        thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
        first, second = (await pipe.call("thread/read", threadId=thread_id))["turns"]
    session = Path(thread["sessionFile"])
    *lines, end = session.read_bytes().splitlines(keepends=True)
    assert json.loads(end)["type"] == "turn_end"
    session.write_bytes(
        b"".join(lines) + end[: len(end) // 2]
    )  # as a crash in the middle of a write leaves it
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        turns = await read_turns(pipe, thread_id)
    del second["completedAt"]
    assert turns == [first, {**second, "status": "interrupted"}]
