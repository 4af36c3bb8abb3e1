"""Every shape that a command's processes can take, under every end that a command can come to.

Beside each of them another thread runs a command that is hard to keep track of: it lives as long as its
own call does, and no longer.

Source: agent loop, "bash"; App Server notes, "Interrupts", "Shutdown"; reports of commands that outlive
a stop.
"""

import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from knightcode.app_server.host import HostConfig, open_host
from tests.app_server.pipe import (
    PATIENCE,
    Pipe,
    alive,
    environment,
    open_pipe,
    text,
    tool,
    until_dead,
    write_script,
)
from tests.torture.harness import connect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process table is Linux's")

DAEMON = "env -i setsid -f /bin/sh -c"
"""Leaves its session, loses its parent at once, and knows nothing of its environment."""

SHAPES = {
    "plain": "sleep 600 & echo $! > report; wait",
    "deaf": "trap '' TERM INT HUP; sleep 600 & echo $! > report; while :; do wait; done",
    "nohup": "nohup sleep 600 > nothing 2>&1 & echo $! > report; wait",
    "session": "setsid sh -c 'echo $$ > report; exec sleep 600' & wait",
    "daemon": "(setsid sh -c '(sleep 600 & echo $! > report) &' &); sleep 600",
    "daemon without environment": f"{DAEMON} '(sleep 600 & echo $! > report) &'; sleep 600",
    "deaf daemon without environment": (
        f"{DAEMON} \"trap '' TERM; echo \\$\\$ > report; sleep 600; sleep 600\"; sleep 600"
    ),
    "pipe holder": "(trap '' TERM; setsid -f sh -c 'echo $$ > report; sleep 600; sleep 600'); sleep 600",
    "stopped": (
        "sleep 600 & kill -STOP $!; until grep -q '^State:.T' /proc/$!/status; do :; done;"
        " echo $! > report; wait"
    ),
}
"""Commands; besides `$$` each reports one process that it started."""

BYSTANDER = SHAPES["daemon without environment"]


@attrs.define(eq=False)
class Report:
    """What a command tells of its processes, through a pipe in the folder where it runs."""

    _descriptor: int
    _words: bytes = b""

    async def pids(self) -> list[int]:
        """The shell, and the process that it started."""
        with trio.fail_after(PATIENCE):
            while self._words.count(b"\n") < 2:
                await trio.lowlevel.wait_readable(self._descriptor)
                self._words += os.read(self._descriptor, 4096)
        return [int(word) for word in self._words.split()]


@asynccontextmanager
async def open_report(folder: Path) -> AsyncIterator[Report]:
    """Make the folder, with the pipe `report` in it."""
    folder.mkdir()
    os.mkfifo(folder / "report")
    descriptor = os.open(folder / "report", os.O_RDWR | os.O_NONBLOCK)  # with a writer it never ends
    try:
        yield Report(descriptor)
    finally:
        os.close(descriptor)


@attrs.frozen
class Stage:
    """Two commands that run, each in a thread of its own; `pids` are the processes of the first."""

    thread_id: str
    pids: Sequence[int]
    others: Sequence[int]

    def check_first_gone(self) -> None:
        """Nothing of the first command runs, and all of the second."""
        assert [pid for pid in self.pids if alive(pid)] == []
        assert [pid for pid in self.others if not alive(pid)] == []


def marked(home: Path) -> list[str]:
    """What runs with the mark of a call in its environment, for a server with this home."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"HOME={home}".encode() in words and any(word.startswith(b"KNIGHTCODE_CALL=") for word in words):
            found.append(name)
    return found


def script_of(folder: Path, shape: str) -> Path:
    def reply(user: str, command: str) -> dict[str, Any]:
        command = f"echo $$ > report; {command}"
        return {"when": {"user": user}, "steps": [tool("bash", command=command)]}

    replies = [reply("first", SHAPES[shape]), reply("second", BYSTANDER)]
    return write_script(
        folder / "script.json", *replies, {"when": {"toolResult": "bash"}, "steps": [text("ah")]}
    )


Play = Callable[[Pipe, Stage], Awaitable[None]]


async def run_in_a_child(folder: Path, shape: str, play: Play) -> Stage:
    """Run both commands in a server process and play an end; then the server stops, if it has not."""
    home = folder / "home"
    async with (
        open_report(folder / "first") as first,
        open_report(folder / "second") as second,
        open_pipe(home, "--scripted-model", str(script_of(folder, shape))) as pipe,
    ):
        await pipe.handshake()
        threads = []
        for name in ("first", "second"):
            threads.append(await pipe.start_thread(folder / name, approvalMode="fullAccess"))
            await pipe.call("turn/start", threadId=threads[-1], text=name)
        stage = Stage(threads[0], await first.pids(), await second.pids())
        assert all(map(alive, (*stage.pids, *stage.others)))
        await play(pipe, stage)
    return stage


async def interrupt(pipe: Pipe, stage: Stage) -> None:
    await pipe.call("turn/interrupt", threadId=stage.thread_id)
    await completed(pipe, stage, "interrupted")


async def shell_dies(pipe: Pipe, stage: Stage) -> None:
    """The command comes to its end by itself, and leaves all the rest."""
    os.kill(stage.pids[0], signal.SIGKILL)
    await completed(pipe, stage, "completed")


async def completed(pipe: Pipe, stage: Stage, status: str) -> None:
    """The turn ends so, and at that moment nothing of its command runs."""
    params = await pipe.until_method("turn/completed")
    assert (params["threadId"], params["turn"]["status"]) == (stage.thread_id, status)
    stage.check_first_gone()


async def end_of_input(pipe: Pipe, stage: Stage) -> None:
    await pipe.close()
    assert await pipe.exit_code() == 0


async def terminate(pipe: Pipe, stage: Stage) -> None:
    pipe.process.terminate()
    while await pipe.hear() is not None:
        pass
    assert await pipe.exit_code() == 0


async def force(pipe: Pipe, stage: Stage) -> None:
    """It finds both signals at once, and goes before it has ended anything in order."""
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        pipe.process.send_signal(number)
    assert await pipe.exit_code() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    for pid in (*stage.pids, *stage.others):
        await until_dead(pid)


async def run_in_this_process(folder: Path, shape: str) -> Stage:
    """Run both commands in a host of this process, and unload the first one's thread."""
    home = folder / "home"
    home.mkdir()
    config = HostConfig(environment(home), folder, scripted=script_of(folder, shape))
    async with (
        open_report(folder / "first") as first,
        open_report(folder / "second") as second,
        trio.open_nursery() as nursery,
    ):
        async with open_host(config) as host:
            door = connect(host, nursery)
            threads = []
            for name in ("first", "second"):
                params = {"cwd": str(folder / name), "approvalMode": "fullAccess"}
                door.send(id=name, method="thread/start", params=params)
                threads.append((await door.answer_to(name))["result"]["thread"]["id"])
                door.send(
                    id=f"go {name}", method="turn/start", params={"threadId": threads[-1], "text": name}
                )
            stage = Stage(threads[0], await first.pids(), await second.pids())
            thread = host.manager.loaded(stage.thread_id)
            assert thread is not None
            thread.unload("unload")
            with trio.fail_after(PATIENCE):
                await thread.ended.wait()
            stage.check_first_gone()
        nursery.cancel_scope.cancel()
    return stage


ENDS: dict[str, Play | None] = {
    "interrupt": interrupt,
    "its shell dies": shell_dies,
    "unload": None,
    "EOF": end_of_input,
    "SIGTERM": terminate,
    "forced exit": force,
}
SOME = tuple(zip(random.Random(7).sample(tuple(SHAPES), len(ENDS)), ENDS, strict=True))


async def check_case(folder: Path, shape: str, end: str) -> None:
    """Nothing is left: neither of the processes that were reported, nor one that carries a mark."""
    folder.mkdir()
    play = ENDS[end]
    if play is None:
        stage = await run_in_this_process(folder, shape)
    else:
        stage = await run_in_a_child(folder, shape, play)
    assert [pid for pid in (*stage.pids, *stage.others) if alive(pid)] == []
    assert marked(folder / "home") == []


@pytest.mark.rule("S78")
@pytest.mark.parametrize(("shape", "end"), SOME)
async def test_no_process_of_a_command_outlives_its_end(tmp_path: Path, shape: str, end: str) -> None:
    """Each end once, with shapes that are always the same."""
    await check_case(tmp_path / "case", shape, end)


@pytest.mark.torture
@pytest.mark.rule("S78")
@pytest.mark.parametrize("end", ENDS)
async def test_no_process_of_a_command_outlives_its_end_whatever_its_shape(
    tmp_path: Path, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them."""
    for number, shape in enumerate(SHAPES):
        await check_case(tmp_path / str(number), shape, end)
    with capsys.disabled():
        sys.stdout.write(f"\n{len(SHAPES)} shapes of processes have come to an end by: {end}\n")
