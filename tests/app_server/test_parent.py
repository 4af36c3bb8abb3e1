"""A server whose starter is gone: nobody needs it any more, although its input is still open."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.app_server.parent import LOOK_SECONDS, wait_parent_gone
from tests.app_server.pipe import INIT, PATIENCE, Pipe, alive, open_pipe, text, tool, write_script

KEEPER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # who loses its parent below becomes a child of this program
starter = os.fork()
if starter == 0:
    server = os.fork()
    if server == 0:
        with open("pids", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()}")
        if sys.argv[1] == "nohup":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.argv[2], sys.argv[2:])
    signal.pause()
os.waitpid(starter, 0)
server = int(open("pids").read().split()[0])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]))
"""
"""Starts a starter that starts the server, keeps the input open, and exits as the server does."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="the death of a parent is asked of Linux")


@attrs.frozen
class Orphanage:
    """A server that has a starter, and somebody else who holds its input open."""

    pipe: Pipe
    folder: Path

    @property
    def server(self) -> int:
        return self._pids()[0]

    def kill_starter(self) -> None:
        os.kill(self._pids()[1], signal.SIGKILL)

    def _pids(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    async def rest(self) -> None:
        """Hear everything until the output ends."""
        while await self.pipe.hear() is not None:
            pass


@asynccontextmanager
async def open_orphanage(
    folder: Path, *arguments: str, how: Literal["plain", "nohup"] = "plain"
) -> AsyncIterator[Orphanage]:
    """A server that its starter's death reaches; its exit code is that of `pipe.process`."""
    server = (sys.executable, "-m", "knightcode", "app-server")
    command = (sys.executable, "-c", KEEPER, how, *server)
    async with open_pipe(folder / "home", *arguments, command=command, cwd=folder) as pipe:
        yield Orphanage(pipe, folder)


@linux
@pytest.mark.rule("S70", "S72")
async def test_a_server_whose_starter_dies_stops_in_order_although_its_input_stays_open(
    tmp_path: Path,
) -> None:
    """Reports: hundreds of servers without a client."""
    command = "sleep 600 & echo $! $$ > called; echo ready; wait"
    script = write_script(tmp_path / "script.json", [text("so far"), tool("bash", command=command)])
    async with open_orphanage(tmp_path, "--scripted-model", str(script)) as started:
        pipe = started.pipe
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        await pipe.call("turn/start", threadId=thread_id, text="go")
        await pipe.until(lambda one: "ready" in one.get("params", {}).get("delta", ""))
        children = [int(pid) for pid in (tmp_path / "called").read_text().split()]
        assert [alive(pid) for pid in children] == [True, True]
        started.kill_starter()
        await started.rest()
        assert await pipe.exit_code() == 0
    assert [alive(pid) for pid in children] == [False, False]
    ends = [
        params["turn"]["status"]
        for method, params in pipe.notifications(thread_id)
        if method == "turn/completed"
    ]
    assert ends == ["interrupted"]
    assert pipe.notifications(thread_id)[-1] == (
        "thread/status/changed",
        {"threadId": thread_id, "status": {"type": "notLoaded"}},
    )


@linux
async def test_a_starter_that_dies_while_the_server_still_loads_is_noticed_too(tmp_path: Path) -> None:
    """Reports: hundreds of servers without a client; the first answer comes before all is loaded."""
    async with open_orphanage(tmp_path) as started:
        await started.pipe.send(INIT[0])
        assert "result" in (await started.pipe.hear() or {})
        started.kill_starter()
        assert await started.pipe.exit_code() == 0


@linux
async def test_a_server_started_to_outlive_its_starter_does_so_and_ignores_a_hangup(tmp_path: Path) -> None:
    """Reports: hundreds of servers without a client; `nohup` says that this one shall stay."""
    async with open_orphanage(tmp_path, how="nohup") as started:
        pipe = started.pipe
        await pipe.handshake()
        started.kill_starter()
        os.kill(started.server, signal.SIGHUP)
        for _ in range(5):
            assert "models" in await pipe.call("model/list")
        await pipe.close()
        assert await pipe.exit_code() == 0


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def open_sleeper() -> AsyncIterator[trio.Process]:
    """A process that does nothing; ended on exit if it still runs."""
    process = await trio.lowlevel.open_process(["sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        with trio.fail_after(PATIENCE, shield=True):
            await process.wait()


@linux
async def test_a_parent_that_ended_before_anybody_looked_is_gone() -> None:
    async with open_sleeper() as other:
        pass
    before = descriptors()
    with trio.fail_after(PATIENCE):
        await wait_parent_gone(other.pid)
    assert descriptors() == before


@linux
async def test_another_process_with_the_parents_id_is_not_taken_for_it() -> None:
    async with open_sleeper() as stranger:
        before = descriptors()
        with trio.fail_after(PATIENCE):
            await wait_parent_gone(stranger.pid, current=lambda: 1)
        assert descriptors() == before


@linux
async def test_the_end_of_a_parent_is_heard_without_looking_for_it() -> None:
    looks: list[int] = []
    async with open_sleeper() as parent:

        def current() -> int:
            looks.append(parent.pid)
            return parent.pid

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(wait_parent_gone, parent.pid, current=current))
                await wait_all_tasks_blocked()
                parent.kill()
    assert looks == [parent.pid]


@linux
async def test_a_wait_for_a_living_parent_can_be_cancelled_and_keeps_no_descriptor() -> None:
    before = descriptors()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_parent_gone, os.getppid())
            await wait_all_tasks_blocked()
            assert len(descriptors()) == len(before) + 1
            nursery.cancel_scope.cancel()
    assert descriptors() == before


async def test_where_the_system_does_not_tell_the_parent_is_looked_for_each_second(
    autojump_clock: MockClock,
) -> None:
    answers = iter([7, 7, 7, 1])
    await wait_parent_gone(7, current=lambda: next(answers), open_handle=lambda pid: None)
    assert (trio.current_time(), list(answers)) == (3 * LOOK_SECONDS, [])
