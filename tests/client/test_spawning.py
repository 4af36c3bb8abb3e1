"""A server as a child of the client: what it may say, and how it ends."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from knightcode.client import AppServerClient, AppServerError, ConnectionLost, ServerProcess, spawn_app_server
from knightcode_protocol import params
from knightcode_protocol.notifications import TurnCompleted
from tests.app_server.pipe import PATIENCE, environment, text, write_script
from tests.client.transports import COMMAND, INFO, Listener

ANSWER_ALL = "for line in sys.stdin: say(id=json.loads(line)['id'], result={'models': []})"


def open_server(folder: Path, *arguments: str) -> AbstractAsyncContextManager[ServerProcess]:
    home = folder / "home"
    home.mkdir()
    return spawn_app_server(arguments, environ=environment(home), cwd=str(home), command=COMMAND)


def open_fake(*steps: str, **options: Any) -> AbstractAsyncContextManager[ServerProcess]:
    """A program in the server's place: `say` writes a message, `raw` writes bytes."""
    code = "\n".join(
        (
            "import json, signal, sys, time",
            "def raw(data): sys.stdout.buffer.write(data); sys.stdout.buffer.flush()",
            "def say(**message): raw(json.dumps(message).encode() + b'\\n')",
            *steps,
        )
    )
    command: Sequence[str] = (sys.executable, "-c", code)
    return spawn_app_server(command=command, **options)


@pytest.mark.proves("CLIENT-017")
async def test_leaving_the_block_during_a_turn_ends_the_turn_then_the_server(tmp_path: Path) -> None:
    """App Server: Ownership, unloading, and shutdown; the client hears the server out."""
    script = write_script(tmp_path / "script.json", [text("so far"), {"silence": True}])
    ends: list[str] = []
    with trio.fail_after(PATIENCE):
        async with open_server(tmp_path, "--scripted-model", str(script)) as server:
            server.client.on_notification(TurnCompleted, lambda note: ends.append(note.turn.status))
            listener = Listener(server.client)
            await server.client.initialize(INFO)
            await listener.start_turn(await listener.start_thread(tmp_path))
            await listener.until_method("item/agentMessage/delta")
            assert (server.exit_code, ends) == (None, [])
        assert (server.exit_code, ends) == (0, ["interrupted"])
        assert listener.methods()[-1] == "thread/status/changed"
        with pytest.raises(ConnectionLost):
            await server.client.model_list()
        assert await server.close() == 0


async def test_closing_delivers_what_was_sent_before(tmp_path: Path) -> None:
    """App Server: Ownership, unloading, and shutdown; requests in flight are answered."""
    async with open_server(tmp_path) as server:
        with trio.fail_after(PATIENCE):
            await server.client.initialize(INFO)
            counted: list[int] = []

            async def count_threads() -> None:
                listed = await server.client.thread_list(params.ThreadListParams())
                counted.append(len(listed.threads))

            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(count_threads)
                await trio.testing.wait_all_tasks_blocked()
                assert await server.close() == 0
    assert counted == [0] * 50


@pytest.mark.proves("CLIENT-019")
async def test_an_error_line_is_kept_exactly_as_it_was_sent() -> None:
    """App Server: Limits and client reference (AppServerError)."""
    data = {"recovery": {"kept": ["/a", "/b"], "n": 1.5, "none": None}, "\u00e9": [True]}
    message = "The \u2028 archive: 'x' conflicts"
    lines = [
        {"id": 1, "error": {"code": "archiveConflict", "message": message, "data": data}},
        {"id": 2, "error": {"code": "aCodeOfLaterTimes", "message": "", "more": 1}},
    ]
    steps = f"for line in {lines!r}: sys.stdin.readline(); say(**line)"
    async with open_fake(steps) as server:
        with trio.fail_after(PATIENCE):
            refusals = []
            for _ in lines:
                with pytest.raises(AppServerError) as refusal:
                    await server.client.model_list()
                refusals.append((refusal.value.code, refusal.value.message, refusal.value.data))
    assert refusals == [("archiveConflict", message, data), ("aCodeOfLaterTimes", "", None)]


async def test_lines_that_mean_nothing_are_passed_over() -> None:
    """A newer server may say more than this client knows; a broken one must not break the client."""
    steps = [
        'raw(b\'\\n\\xff\\xfe\\n[1, 2]\\n{"id": {}}\\n"text"\\n\')',
        "say(method='no/such', params={'a': 1})",
        "say(method='turn/completed', params={'turn': 5})",
        "say(id=77, result={'models': []})",
        "say(id=None, error={'code': 'internal', 'message': 'for nobody'})",
        "say(method='serverRequest/cancelled', params={'threadId': 't', 'requestId': 's9'})",
        "say(jsonrpc='2.0', id='s1', method='no/such/question', params={})",
        "answer = json.loads(sys.stdin.readline())",
        "assert answer['id'] == 's1' and answer['error']['code'] == 'methodNotFound', answer",
        "say(method='thread/deleted', params={'threadId': 't', 'more': 1})",
        ANSWER_ALL,
    ]
    async with open_fake(*steps) as server:
        listener = Listener(server.client)
        await listener.until_method("thread/deleted")
        with trio.fail_after(PATIENCE):
            assert (await server.client.model_list()).models == ()
            assert await server.close() == 0
    assert listener.methods() == ["serverRequest/cancelled", "thread/deleted"]


async def test_a_server_that_ends_without_a_word_loses_whoever_waits_and_whoever_comes() -> None:
    """Its exit code is told; half a line at the end is no answer."""
    async with open_fake('sys.stdin.readline(); raw(b\'{"id":1,"result":{}\'); sys.exit(3)') as server:
        with trio.fail_after(PATIENCE):
            with pytest.raises(ConnectionLost):
                await server.client.model_list()
            assert await server.close() == 3
            with pytest.raises(ConnectionLost):
                await server.client.model_list()
    assert server.exit_code == 3


async def test_a_server_that_does_not_read_holds_up_nobody_who_gives_up(tmp_path: Path) -> None:
    """A request is sent whole or not at all: one that was begun goes on when its sender has left."""
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    wait = f"open({str(go_on)!r}).read()"
    large = params.ThreadStartParams(cwd="x" * 1_000_000)
    async with open_fake(wait, ANSWER_ALL) as server:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for _ in range(2):  # one is being written, one waits for its turn
                    nursery.start_soon(server.client.thread_start, large)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await trio.to_thread.run_sync(go_on.write_text, "now", abandon_on_cancel=True)
            assert (await server.client.model_list()).models == ()


@pytest.mark.parametrize("deaf", [False, True], ids=["to the end of input", "to everything"])
async def test_a_server_that_does_not_end_is_told_to_stop_and_then_killed(deaf: bool) -> None:
    """App Server: Ownership, unloading, and shutdown; nothing is left behind."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "pass"
    told = "say(method='thread/deleted', params={'threadId': 't'})"
    steps = (ignore, told, "while True: time.sleep(60)")
    with trio.fail_after(PATIENCE):
        async with open_fake(*steps, grace_seconds=0.2) as server:
            await Listener(server.client).until_method("thread/deleted")
    assert server.exit_code == (-9 if deaf else -15)


async def test_an_answer_that_came_right_before_the_end_counts() -> None:
    """App Server notes: In-process client and host; the answer and the end are heard in one step."""
    heard: list[str] = []

    async def send(_: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        client = AppServerClient(send=send, nursery=nursery)

        async def ask() -> None:
            heard.append(type(await client.thread_list(params.ThreadListParams())).__name__)

        async def ask_again() -> None:
            with pytest.raises(ConnectionLost):
                await client.thread_list(params.ThreadListParams())
            heard.append("lost")

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(ask_again)
        await trio.testing.wait_all_tasks_blocked()
        client.receive(b'{"id":1,"result":{"threads":[]}}')
        client.lost()
    assert sorted(heard) == ["ThreadListResult", "lost"]
