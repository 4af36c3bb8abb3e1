"""Facts about processes of others, read where the system keeps them; Linux."""

import os
from collections.abc import Callable
from pathlib import Path

import trio


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended: a zombie that nobody reaps does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def wait_for(fact: Callable[[], bool]) -> None:
    """Wait until something in another process is so; bound it with a deadline."""
    while not fact():
        await trio.lowlevel.checkpoint()
        await trio.to_thread.run_sync(os.sched_yield)  # the other process may need this processor


async def pids_in(folder: Path, count: int) -> list[int]:
    """The process ids that a command has written into `pids`, once there are `count` of them."""
    file = folder / "pids"
    await wait_for(lambda: file.exists() and len(file.read_text().split("\n")) > count)
    return [int(line) for line in file.read_text().split()]
