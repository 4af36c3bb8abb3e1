"""A child process and everything that comes from it: who is left, and how to signal them. Blocking.

On Linux the process table is read, which also shows those that left the child's group and session:
they carry the call's tag, or the marker variable in their environment. Elsewhere only the group can be
reached; who left it is named for the log.

Source: agent loop, "bash".
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import attrs

from knightcode.processes.table import Process, SharedTable, started_at
from knightcode.processes.tags import tag_of

_PS_SECONDS = 2.0
_TABLE = SharedTable()


class Family(Protocol):
    """The processes of one call."""

    def sweep(self, sig: int) -> tuple[int, ...]:
        """Signal all that live and return their ids.

        Any other signal than SIGKILL goes out once to each, and not to what a process starts afterwards.

        Raises:
            OSError: this process may open no more files, so nothing can be said.
        """


def has_table() -> bool:
    """Whether the process table can be read here."""
    return sys.platform == "linux" and os.path.exists("/proc/self/environ")


def signal_group(leader: int, sig: int) -> bool:
    """Signal a process group; False when nobody is in it."""
    if sys.platform == "win32":
        return False
    try:
        os.killpg(leader, sig)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member runs as somebody else; or, on macOS, only zombies are left
        return False
    return True


@attrs.define(eq=False)
class GroupFamily:
    """What POSIX alone can tell: the group. Its leader must be reaped for the group to be empty."""

    leader: int
    marker: str
    _told: set[int] = attrs.field(factory=set, init=False)

    def sweep(self, sig: int) -> tuple[int, ...]:
        repeated = sig in self._told and sig != signal.SIGKILL
        self._told.add(sig)
        alive = signal_group(self.leader, 0 if repeated else sig)
        if alive and not repeated:
            signal_group(self.leader, signal.SIGCONT)  # a stopped process hears nothing else
        return (self.leader,) if alive else ()

    def strays(self) -> tuple[str, ...]:
        """Those that carry the marker: `sweep` cannot reach them. Each as its id and command."""
        with suppress(OSError, subprocess.SubprocessError):
            # `e` shows the environment behind the command, for processes of this user.
            listing = subprocess.run(
                ["ps", "axeww", "-o", "pid=,command="],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PS_SECONDS,
                check=False,
            )
            lines = listing.stdout.decode(errors="replace").splitlines()
            return tuple(" ".join(line.split()[:3]) for line in lines if self.marker in line)
        return ()


@attrs.define(eq=False)
class TableFamily:
    """What Linux's process table tells: group, session, descendants, and all that carry tag or marker.

    Orphans become children of this process where it is the first of a container, or has asked for them:
    those of the family are reaped by `sweep`, and nobody else's child is.

    Attributes:
        leader: None for all that carry one of the markers, whatever started it; then nobody is reaped.
        read: the table; who must wait for nobody reads it alone.
    """

    leader: int | None
    markers: tuple[str, ...]
    read: Callable[[], Iterable[Process]] = _TABLE.read
    _told: set[tuple[int, int]] = attrs.field(factory=set, init=False)

    def sweep(self, sig: int) -> tuple[int, ...]:
        members = self._members()  # first: a dead parent does not show its children any more
        if sig == signal.SIGKILL and self.leader is not None:
            signal_group(self.leader, sig)  # all at one moment, so that none of it can start another
        # What a process starts after it was asked to end is tidying up for it, and may finish.
        spared = {member.pid for member in members if (member.pid, member.started) in self._told}
        _add_descendants(spared, members)
        for member in members:
            if sig == signal.SIGKILL or member.pid not in spared:
                self._told.add((member.pid, member.started))
                _signal(member, sig)
        return tuple(member.pid for member in members)

    def _members(self) -> list[Process]:
        everybody = list(self.read())
        table = [row for row in everybody if not row.ended]
        marks, tags = [marker.encode() for marker in self.markers], {tag_of(one) for one in self.markers}
        born = 0 if self.leader is None else started_at(self.leader)

        def belongs(row: Process) -> bool:
            # Who was told belongs to the call, also when the parent that showed it is gone.
            if self.leader in (row.pid, row.group, row.session) or (row.pid, row.started) in self._told:
                return True
            # Who is older than the leader has no mark of it. Reading an environment is the dear part.
            return row.started >= born and (row.tag() in tags or row.carries(marks))

        found = {row.pid for row in table if belongs(row)}
        found.discard(os.getpid())
        _add_descendants(found, table)
        if self.leader is not None:
            for row in everybody:
                if row.ended and row.parent == os.getpid() and row.pid != self.leader and belongs(row):
                    _reap(row.pid)
        return [row for row in table if row.pid in found]


def _add_descendants(found: set[int], table: Sequence[Process]) -> None:
    grew = True
    while grew:
        children = {row.pid for row in table if row.parent in found} - found
        found |= children
        grew = bool(children)


def _reap(pid: int) -> None:
    if sys.platform != "win32":
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _signal(process: Process, sig: int) -> None:
    """Signal exactly this process: its id may have a new owner since it was looked up."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        except OSError:  # a kernel or a sandbox without it
            if started_at(process.pid) == process.started:
                os.kill(process.pid, sig)
            return
        try:
            if started_at(process.pid) == process.started:
                signal.pidfd_send_signal(handle, sig)
                signal.pidfd_send_signal(handle, signal.SIGCONT)  # a stopped process hears nothing else
        finally:
            os.close(handle)
