"""A child process and everything that comes from it: who is left, and how to signal them. Blocking.

On Linux the process table is read, which also shows those that left the child's group and session:
they carry the marker variable in their environment. Elsewhere only the group can be reached; who left
it is named for the log.

Source: agent loop, "bash".
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import attrs

_PS_SECONDS = 2.0


class Family(Protocol):
    """The processes of one call."""

    def sweep(self, sig: int) -> tuple[int, ...]:
        """Signal all that live and return their ids.

        Any other signal than SIGKILL goes out once to each, and not to what a process starts afterwards.
        """


def family_of(leader: int, marker: str) -> Family:
    """The family of a child that leads its own session and carries `marker` in its environment."""
    if sys.platform == "linux" and os.path.exists("/proc/self/environ"):
        return TableFamily(leader, (marker,))
    return GroupFamily(leader, marker)


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


@attrs.frozen
class _Process:
    """One row of the process table; `started` tells two owners of one id apart."""

    pid: int
    parent: int
    group: int
    session: int
    started: int


@attrs.define(eq=False)
class TableFamily:
    """What Linux's process table tells: group, session, descendants, and all that carry a marker."""

    leader: int | None
    markers: tuple[str, ...]
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

    def _members(self) -> list[_Process]:
        table = list(_processes())
        marks = [marker.encode() for marker in self.markers]
        born = 0 if self.leader is None else _started(self.leader)
        found = {
            row.pid
            for row in table
            if self.leader in (row.pid, row.group, row.session)
            # Who was told belongs to the call, also when the parent that showed it is gone.
            or (row.pid, row.started) in self._told
            # Reading an environment is the dear part, and who is older than the leader has no mark of it.
            or (row.started >= born and _carries(row.pid, marks))
        }
        found.discard(os.getpid())
        _add_descendants(found, table)
        return [row for row in table if row.pid in found]


def _add_descendants(found: set[int], table: Sequence[_Process]) -> None:
    grew = True
    while grew:
        children = {row.pid for row in table if row.parent in found} - found
        found |= children
        grew = bool(children)


def _processes() -> Iterator[_Process]:
    """All processes that run; those that ended and wait to be reaped are left out."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            row = _row(int(name))
            if row is not None:
                yield row


def _row(pid: int) -> _Process | None:
    fields = _stat(pid)
    if fields is None or fields[0] in ("Z", "X", "x"):
        return None
    return _Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _started(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return 0 if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` from the state on; the name before may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:  # gone
        return None


def _carries(pid: int, marks: Iterable[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:  # gone, or somebody else's
        return False
    return any(mark in environment for mark in marks)


def _signal(process: _Process, sig: int) -> None:
    """Signal exactly this process: its id may have a new owner since it was looked up."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        try:
            handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        except OSError:  # a kernel or a sandbox without it
            if _started(process.pid) == process.started:
                os.kill(process.pid, sig)
            return
        try:
            if _started(process.pid) == process.started:
                signal.pidfd_send_signal(handle, sig)
                signal.pidfd_send_signal(handle, signal.SIGCONT)  # a stopped process hears nothing else
        finally:
            os.close(handle)
