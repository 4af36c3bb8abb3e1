"""The tools' way to files: bounded worker threads, one writer per file, writes in place.

Source: agent loop, "edit", "write", and the points it leaves open on atomic writes and lock paths.
"""

import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import attrs
import trio

from knightcode import regular_file
from knightcode.agent.tools.base import ToolError
from knightcode.agent.truncation import format_size
from knightcode.processes.worker_threads import WorkerThreads

FILE_THREADS = WorkerThreads("file threads", 8)
"""Threads for file work, so that a slow disk cannot use up those of git, search and processes."""


@attrs.define(eq=False)
class FileLocks:
    """One lock per real path: reading, changing and writing one file back is one step for the others."""

    _locks: WeakValueDictionary[str, trio.Lock] = attrs.field(factory=WeakValueDictionary, init=False)
    """Each lives as long as somebody holds it or waits for it."""

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncIterator[None]:
        """Be the only one who changes `path`, an absolute path. Leaving is no checkpoint.

        Files are told apart by their real path, so a link and its target share a lock. Waiting can be
        cancelled; who waits longest goes first.
        """
        lock = self._locks.setdefault(os.path.realpath(path), trio.Lock())
        async with lock:
            yield


FILE_LOCKS = FileLocks()
"""The locks of this process: two threads that work in one folder share them."""


def open_regular(path: str) -> int:
    """A descriptor for reading a regular file; the caller closes it.

    Raises:
        ToolError: a folder, a pipe, a device: reading those could wait forever or never end.
        OSError: missing, not permitted.
    """
    try:
        return regular_file.open_regular(path)
    except IsADirectoryError:
        raise ToolError(f"{path} is a folder, not a file") from None
    except regular_file.NotRegularError:
        raise ToolError(f"{path} is not a regular file") from None


def require_regular(mode: int, path: str) -> None:
    """Raises ToolError unless `mode` is that of a regular file."""
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is not a regular file")


def read_whole(path: str, *, max_bytes: int) -> bytes:
    """The content of a regular file. Raises as `open_regular` does, ToolError also for a larger file."""
    with open(open_regular(path), "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ToolError(f"{path} is larger than {format_size(max_bytes)}")
    return data


def write_in_place(path: str, data: bytes, *, before: bytes | None, created: bool = False) -> None:
    """Make `data` the content of `path`, which keeps its mode, owner and links; blocking.

    A write that fails, on a full disk say, puts back what was there.

    Args:
        before: what a failed write puts back; None for nothing.
        created: the file did not exist, so a failed write removes it.
    Raises:
        OSError: the file is as it was, unless putting it back failed as well.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _NONBLOCK | _BINARY, 0o666)
    try:
        require_regular(os.fstat(descriptor).st_mode, path)
        try:
            _overwrite(descriptor, data)
        except OSError:
            with suppress(OSError):
                if created:
                    os.unlink(path)
                elif before is not None:
                    _overwrite(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, data: bytes) -> None:
    """Cuts the file only at the end, so that a failure leaves room for what it held before."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.ftruncate(descriptor, len(data))


def file_error(path: str, doing: str, error: OSError | ValueError) -> ToolError:
    """What a model is told when the system refuses; `path` as the model wrote it."""
    number = getattr(error, "errno", None)
    if number == errno.ENOENT:
        return ToolError(f"{path} does not exist")
    reason = os.strerror(number) if isinstance(number, int) else str(error)
    return ToolError(f"{path} could not be {doing}: {reason}")


_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
