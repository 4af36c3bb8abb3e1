"""Servers that are stopped: what runs in them, and what to look at afterwards."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from tests.app_server.pipe import PATIENCE, Pipe

SLEEPER = "sleep 600 & echo $! > pids; sleep 600 & echo $! >> pids; echo $$ >> pids; echo ready; wait"
DEAF = "trap 'echo stopping > ../told' TERM; echo $$ > pids; echo ready; while :; do sleep 0.05; done"
"""A command that says when it is told to end, and does not: the stop takes half a second longer."""


@contextmanager
def hearing_the_deaf(folder: Path) -> Iterator[int]:
    """A pipe in the file system, open for reading, by which a deaf command tells of itself."""
    os.mkfifo(folder / "told")
    descriptor = os.open(folder / "told", os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def pids_in(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def markers(file: Path) -> list[tuple[str, str | None]]:
    """The begins and ends of turns that a session file holds, with how they ended."""
    entries = [json.loads(line) for line in file.read_bytes().splitlines()]
    return [(entry["type"], entry.get("status")) for entry in entries if entry["type"].startswith("turn_")]


def statuses(pipe: Pipe, thread_id: str) -> list[str]:
    return [
        params["status"]["type"]
        for method, params in pipe.notifications(thread_id)
        if method == "thread/status/changed"
    ]


def session_file(home: Path, thread_id: str) -> Path:
    """Where a thread is saved."""
    (file,) = home.rglob(f"*{thread_id}.jsonl")
    return file


async def until_stopping(told: int) -> None:
    """Until a deaf command has been told to end."""
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(told)


async def until_ready(pipe: Pipe, said: str = "ready") -> None:
    """Until a command has written a word."""
    await pipe.until(
        lambda one: one.get("method") == "item/toolCall/outputDelta" and said in one["params"]["delta"]
    )


async def start_turn(pipe: Pipe, cwd: Path, words: str, mode: str = "fullAccess") -> str:
    """A new thread with a turn that has begun; its id."""
    cwd.mkdir()
    thread_id = await pipe.start_thread(cwd, approvalMode=mode)
    result = await pipe.call("turn/start", threadId=thread_id, text=words)
    assert result["status"] == "started"
    return thread_id


async def end(pipe: Pipe, ending: str) -> None:
    """Begin the stop, and read what comes until the output ends."""
    if ending == "EOF":
        await pipe.close()
        return
    pipe.process.send_signal(signal.Signals[ending])
    while await pipe.hear() is not None:
        pass
