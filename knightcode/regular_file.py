"""Opening a file of which only the name is known: a folder, a pipe or a device under it blocks nobody.

Source: agent loop, "read"; Session files, "Loading and damaged files".
"""

import errno
import os
import stat
from pathlib import Path

_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)  # without it the opening of a pipe waits for its writer
    | getattr(os, "O_NOCTTY", 0)  # a terminal must not become this process's own
    | getattr(os, "O_BINARY", 0)
)


class NotRegularError(OSError):
    """What has the name is a pipe, a socket or a device."""


def open_regular(path: str | Path) -> int:
    """A descriptor for reading a regular file, at its beginning; the caller closes it. Links are followed.

    Raises:
        IsADirectoryError: a folder has the name.
        NotRegularError: something else that is no file has it.
        OSError: missing, not permitted, or no name that the system takes.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a NUL, or half a surrogate pair
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), repr(str(path))) from error
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | Path) -> bytes:
    """The whole content of a regular file. Raises as `open_regular` does."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def _require_regular(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise NotRegularError(errno.EINVAL, "It is not a regular file", str(path))
