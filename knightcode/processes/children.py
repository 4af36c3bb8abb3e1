"""The only place that starts child processes and that ends them.

Every child leads a session and a process group of its own and carries a marker in its environment and,
on Linux, a tag, so that whatever comes from it can be found and ended with it. All running children
are registered, for the case that the process must leave in a hurry.

Source: agent loop, "bash"; models and providers, "Value syntax".
"""

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

import attrs
import trio

from knightcode.processes.exits import open_exit_handle
from knightcode.processes.families import Family, GroupFamily, TableFamily, has_table, signal_group
from knightcode.processes.table import processes
from knightcode.processes.tags import start_tagged
from knightcode.processes.worker_threads import WorkerThreads

log = logging.getLogger(__name__)

MARKER = "KNIGHTCODE_CALL"
TERM_GRACE_SECONDS = 0.5
"""From SIGTERM to SIGKILL: time to remove a lock file, but a person who pressed stop is waiting."""
KILL_SECONDS = 1.5
"""From SIGKILL to giving up: only a process stuck in the kernel survives it. With the grace before it
this stays well below the 5 seconds after which the loop abandons a call."""
_LAST_ACT_SECONDS = 0.5
"""For a forced exit to find those that are started while it kills."""
_FIRST_LOOK_SECONDS = 0.002
_LAST_LOOK_SECONDS = 0.05
_START_THREADS = WorkerThreads("threads that start children", 1)
_TABLE_THREADS = WorkerThreads("process table threads", 32)
"""They wait for the same reading of the table, so many cost little more than one."""

_live: dict[str, int | None] = {}
"""Marker to group of all running children, None while one is being started. Only whole-dict operations
read it, since a thread of the operating system does so as well."""
_left: dict[str, None] = {}
"""Markers of calls whose processes outlived the time for their ending."""


class _Started(Protocol):
    """What is needed of a process, whoever started it."""

    def poll(self) -> int | None:
        """Reap it if it has exited; its exit code, negative for a signal, or None while it runs."""


@attrs.define(eq=False)
class Child:
    """A running child process; made by `open_child`, which also ends it.

    Attributes:
        pid: also the id of its process group and session.
        output: stdout, and stderr unless it is dropped, in the order of their arrival. `open_child`
            closes it.
        exit_code: how it ended, as shells say it: 128 + n for signal n. None until `open_child` was
            left, and after that only for a process that nothing could end.
    """

    pid: int
    output: trio.abc.ReceiveStream
    exit_code: int | None = attrs.field(default=None, init=False)
    _process: _Started = attrs.field(alias="process", repr=False)
    _exited: Callable[[], Awaitable[object]] = attrs.field(alias="exited", repr=False)
    _family: Family = attrs.field(alias="family", repr=False)
    _handle: int | None = attrs.field(alias="handle", repr=False)

    async def wait_exited(self) -> None:
        """Wait for the child itself; what it started may still run.

        Where the system can tell without reaping, the child stays a zombie until `open_child` ends, so
        that nobody else can be given its id while the group is signalled by it.
        """
        await self._exited()

    async def _end(self, grace_seconds: float) -> None:
        if sys.platform == "win32":
            with suppress(OSError):
                await trio.run_process(
                    _taskkill(self.pid), check=False, capture_stdout=True, capture_stderr=True
                )
        else:
            with trio.move_on_after(grace_seconds) as patience:
                await self._sweep_until_gone(signal.SIGTERM)
            if patience.cancelled_caught:
                await self._sweep_until_gone(signal.SIGKILL)
        await self.wait_exited()
        if isinstance(self._family, GroupFamily):
            for stray in await _TABLE_THREADS.run(self._family.strays, abandon_on_cancel=True):
                log.warning("child_escaped", extra={"group": self.pid, "stray": stray})

    async def _sweep_until_gone(self, sig: int) -> None:
        pause = _FIRST_LOOK_SECONDS
        while True:
            if self._handle is None:
                self._process.poll()  # a group is not empty before its leader is reaped
            # An abandoned sweep can only signal processes that are this child's.
            try:
                if not await _TABLE_THREADS.run(self._family.sweep, sig, abandon_on_cancel=True):
                    return
            except OSError:  # no file can be opened now: the group is reached without one
                signal_group(self.pid, sig)
            await trio.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SECONDS)

    def _reap(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        code = self._process.poll()
        if code is not None:
            self.exit_code = code if code >= 0 else 128 - code


@asynccontextmanager
async def open_child(
    command: str | Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str],
    drop_errors: bool = False,
    grace_seconds: float = TERM_GRACE_SECONDS,
    use_table: bool = True,
) -> AsyncIterator[Child]:
    """Run a program without input, its output on one pipe; on exit nothing that it started is left.

    On leaving, however that happens, SIGTERM goes to all that still run and SIGKILL, after the grace,
    until the process table shows nobody any more. That is shielded and takes `grace_seconds` and
    `KILL_SECONDS` at most.

    Args:
        command: a program with its arguments, or one text for the system's shell.
        cwd: None for the working directory of this process.
        environment: complete; the marker is added to it.
        drop_errors: what the child writes to stderr goes nowhere, instead of into its output.
        use_table: False relies on the process group alone, as is done where no process table can be
            read: children that left the group are then named in the log instead of ended.
    Raises:
        OSError: the program could not be started.
        ValueError: the command holds a NUL character.
    """
    marker = secrets.token_hex(16)
    _live[marker] = None
    try:
        child = await _start(command, cwd, environment, marker, drop_errors=drop_errors, use_table=use_table)
        _live[marker] = child.pid
        try:
            yield child
        finally:
            with trio.move_on_after(grace_seconds + KILL_SECONDS, shield=True) as ending:
                await child._end(grace_seconds)
            with trio.move_on_after(KILL_SECONDS, shield=True):
                await trio.aclose_forcefully(child.output)
            if ending.cancelled_caught:
                log.warning("child_not_ended", extra={"group": child.pid})
                _left[marker] = None  # not forgotten: `end_left` and `kill_all_now` look for it again
    finally:
        # Before it is reaped: from then on its id may be somebody else's.
        group = _live.pop(marker)
        if group is not None:
            child._reap()


async def _start(
    command: str | Sequence[str],
    cwd: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    marker: str,
    *,
    drop_errors: bool,
    use_table: bool,
) -> Child:
    outer = environment.get(MARKER)
    options: dict[str, Any] = {
        "shell": isinstance(command, str),
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL if drop_errors else subprocess.STDOUT,
        "cwd": cwd,
        # A child of a child of this program belongs to both calls.
        "env": {**environment, MARKER: f"{outer},{marker}" if outer else marker},
        **_own_group(),
    }
    if use_table and has_table():
        return await _start_tagged(command, marker, options)
    process = await trio.lowlevel.open_process(
        command if isinstance(command, str) else list(command), stdout=subprocess.PIPE, **options
    )
    assert process.stdout is not None
    return Child(
        pid=process.pid,
        output=process.stdout,
        process=process,
        exited=process.wait,
        family=GroupFamily(process.pid, marker),
        handle=None,
    )


async def _start_tagged(command: str | Sequence[str], marker: str, options: dict[str, Any]) -> Child:
    output, theirs = os.pipe()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=theirs, **options)

    try:
        process = await _START_THREADS.run(start_tagged, marker, start)
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(theirs)
    handle = open_exit_handle(process.pid)
    look, wait = partial(_look_for_exit, process), trio.lowlevel.wait_readable
    return Child(
        pid=process.pid,
        output=trio.lowlevel.FdStream(output),
        process=process,
        exited=look if handle is None else partial(wait, handle),
        family=TableFamily(process.pid, (marker,)),
        handle=handle,
    )


async def _look_for_exit(process: _Started) -> None:
    pause = _FIRST_LOOK_SECONDS
    while process.poll() is None:
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK_SECONDS)
    await trio.lowlevel.checkpoint()


def live_groups() -> tuple[int, ...]:
    """The process groups of all running children. May be called from any thread."""
    return tuple(group for group in _live.copy().values() if group is not None)


async def end_left() -> None:
    """Kill what outlived the ending of its call, if anything did. The last step of a clean end."""
    if _left and has_table():
        with trio.move_on_after(KILL_SECONDS):
            family = TableFamily(None, tuple(_left))
            while True:
                if not await _TABLE_THREADS.run(family.sweep, signal.SIGKILL):
                    _left.clear()
                    return
                await trio.sleep(_LAST_LOOK_SECONDS)
    else:
        await trio.lowlevel.checkpoint()


def kill_all_now() -> None:
    """Kill all running children with all that they started, without waiting for them.

    The last act before a forced exit. May be called from any thread, also while the event loop hangs.
    """
    live = _live.copy()
    if sys.platform == "win32":
        for pid in live.values():
            if pid is not None:
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run(_taskkill(pid), check=False, capture_output=True, timeout=KILL_SECONDS)
        return
    for group in live.values():
        if group is not None:
            signal_group(group, signal.SIGKILL)
    markers = (*live, *_left.copy())
    if markers and has_table():
        family, end = TableFamily(None, markers, processes), time.monotonic() + _LAST_ACT_SECONDS
        with suppress(OSError):
            while family.sweep(signal.SIGKILL) and time.monotonic() < end:
                time.sleep(_FIRST_LOOK_SECONDS)


def _own_group() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _taskkill(pid: int) -> list[str]:
    return ["taskkill", "/F", "/T", "/PID", str(pid)]
