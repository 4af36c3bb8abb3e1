"""Linux's process table, read once for all who ask at the same time. Blocking.

Whoever ends many calls at once looks many times a second, and each look costs as much as there are
processes on the machine.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator

import attrs

from knightcode.processes.tags import carried_tag

_MARK = b"KNIGHTCODE_CALL="
_FULL = (errno.EMFILE, errno.ENFILE)
"""Says nothing about a process, only that it cannot be looked at now."""


@attrs.define(eq=False)
class Process:
    """One row of the process table; `started` tells two owners of one id apart.

    Attributes:
        ended: it is a zombie, which waits for its parent to reap it.
    """

    pid: int
    parent: int
    group: int
    session: int
    started: int
    ended: bool
    _tag: tuple[int | None] | None = attrs.field(default=None, init=False)
    _environment: bytes | None = attrs.field(default=None, init=False)

    def tag(self) -> int | None:
        """What it carries where a tag would be; looked up once."""
        if self._tag is None:
            self._tag = (carried_tag(self.pid),)
        return self._tag[0]

    def carries(self, marks: Iterable[bytes]) -> bool:
        """Whether one of the markers is in its environment, which is read once."""
        if self._environment is None:
            self._environment = _environment(self.pid)
        return any(mark in self._environment for mark in marks)


class SharedTable:
    """The table as it is at a moment after the call; those who call meanwhile get the same reading."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._begun = self._done = 0
        self._running = False
        self._rows: list[Process] = []

    def read(self) -> list[Process]:
        """All processes, also those that ended and wait to be reaped.

        Raises:
            OSError: this process may open no more files.
        """
        with self._changed:
            wanted = self._begun + 1
            while self._running and self._done < wanted:
                self._changed.wait()
            if self._done >= wanted:
                return self._rows
            self._running = True
            self._begun += 1
        rows: list[Process] | None = None
        try:
            rows = list(processes())
        finally:
            with self._changed:
                self._running = False
                if rows is not None:
                    self._rows, self._done = rows, self._begun
                self._changed.notify_all()
        return rows


def processes() -> Iterator[Process]:
    """All processes, also those that ended and wait to be reaped."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            row = _row(int(name))
            if row is not None:
                yield row


def _row(pid: int) -> Process | None:
    fields = _stat(pid)
    if fields is None:
        return None
    ended = fields[0] in ("Z", "X", "x")
    return Process(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), ended)


def started_at(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is gone."""
    fields = _stat(pid)
    return 0 if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` from the state on; the name before may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError as error:  # gone
        if error.errno in _FULL:
            raise
        return None


def _environment(pid: int) -> bytes:
    """What a process's environment says of calls; empty for one that is gone, or somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError as error:
        if error.errno in _FULL:
            raise
        return b""
    return environment if _MARK in environment else b""
