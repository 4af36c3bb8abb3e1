"""The file under a session log: whole lines at the end, and nothing half-written.

Source: Session files, "Writing".
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs

from knightcode.config.paths import FILE_MODE, make_private_folder

WriteCall = Callable[[int, bytes | memoryview], int]
"""`os.write`, or what a test puts in its place."""


@attrs.define(eq=False)
class LineFile:
    """A file that grows by whole lines through one descriptor, which stays open until `close`.

    The writer is alone: whoever opens a session for use owns it. All methods raise OSError.
    """

    path: Path
    _write: WriteCall = attrs.field(default=os.write, alias="write")
    _descriptor: int | None = attrs.field(default=None, init=False)
    _torn: bool = attrs.field(default=False, init=False)  # the file does not end in a line's end

    def create(self, lines: bytes) -> None:
        """Make the file, and missing folders, with its first lines. Either all is there or no file.

        Only a crash between the two system calls can leave a file without lines. It has a name of
        its own, so it is in nobody's way, and it loads as an empty session.

        Raises:
            FileExistsError: the name is taken; nothing has been touched.
        """
        make_private_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            self._write_all(descriptor, lines)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise
        self._descriptor = descriptor

    def open(self) -> None:
        """Open a file that exists."""
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    def append(self, lines: bytes) -> None:
        """Put whole lines at the end, in one system call where the system takes them at once.

        When the write fails the file ends where it ended before. Should even that be impossible,
        the next append begins with a line end, so that the torn line costs no other.

        Raises:
            FileNotFoundError: the file has been deleted meanwhile.
        """
        descriptor = self._descriptor
        if descriptor is None:
            raise ValueError("the file is not open")
        before = os.fstat(descriptor)
        if before.st_nlink == 0:
            raise FileNotFoundError(2, "it has been deleted", str(self.path))
        try:
            self._write_all(descriptor, b"\n" + lines if self._torn else lines)
        except BaseException:
            self._cut_back(descriptor, before.st_size)
            raise
        self._torn = False

    def close(self) -> None:
        """Give the descriptor back; again is once."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _write_all(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self._write(descriptor, rest)
            if written <= 0:
                raise OSError(5, "nothing was written", str(self.path))
            rest = rest[written:]

    def _cut_back(self, descriptor: int, size: int) -> None:
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
        except OSError:
            self._torn = True


def replace_file(path: Path, data: bytes) -> None:
    """Put new content in place of a file's in one step, keeping its mode. Links are followed.

    Raises:
        OSError: the old content is still there.
    """
    real = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{real.name[:64]}.", suffix=".tmp", dir=real.parent)
    try:
        with open(descriptor, "wb") as file:
            os.chmod(name, stat.S_IMODE(real.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # the old content is the only copy
        os.replace(name, real)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
