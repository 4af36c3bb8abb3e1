"""The process's standard descriptors. Needs nothing heavy: it runs before anything is loaded.

At start the protocol moves to descriptors of its own. Descriptor 1 then leads to stderr and 0 to
nothing, so neither a `print` nor a child can reach, or take from, the protocol.

Source: App Server, "Starting"; architecture, "transport".
"""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

EARLY_LINE_LIMIT = 2048
"""Bytes of a first line that is answered before trio is loaded: far below what a pipe takes at once."""


class Pipes:
    """The two descriptors that carry the protocol, not inherited by any child."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing
        self.ahead = b""
        """What was read already and is still to be handled."""

    @classmethod
    def claim(cls) -> "Pipes":
        """Take descriptors 0 and 1. A closed one gives an end of input, or swallows what is written."""
        _open_closed_ones()
        reading, writing = os.dup(0), os.dup(1)  # neither is inherited by children
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0, inheritable=True)
        os.close(nothing)
        os.dup2(2, 1, inheritable=True)
        return cls(reading, writing)

    def first_line(self) -> bytes | None:
        """A short first line if it is there already; never waits.

        What follows the line stays in `ahead`.
        """
        if os.name != "posix" or not select.select([self.reading], [], [], 0)[0]:
            return None
        try:
            data = os.read(self.reading, 65536)
        except OSError:
            return None
        line, newline, rest = data.partition(b"\n")
        if not newline or len(line) > EARLY_LINE_LIMIT:
            self.ahead = data
            return None
        self.ahead = rest
        return line + newline

    def write_early(self, data: bytes) -> bytes:
        """Write what the pipe takes without waiting; returns what it did not take."""
        if data and len(data) <= select.PIPE_BUF and select.select([], [self.writing], [], 0)[1]:
            try:
                return data[os.write(self.writing, data) :]
            except OSError:
                return data
        return data


def _open_closed_ones() -> None:
    """Let each standard descriptor that is closed lead to nothing.

    Otherwise the next file to be opened gets its number, and what is printed would go there.
    """
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(lowest, True)
    os.close(lowest)


@contextmanager
def kept_blocking_mode(*descriptors: int) -> Iterator[Callable[[], None]]:
    """Restore on exit whether the descriptors block: the mode is shared with whoever else has them open.

    The descriptors may be closed inside. Yields the restoring for those who leave without unwinding.
    """
    if os.name != "posix":
        yield lambda: None
        return
    # Both modes are read before either changes: a terminal is one open file behind two descriptors.
    before = [(os.dup(descriptor), os.get_blocking(descriptor)) for descriptor in descriptors]

    def restore() -> None:
        for copy, blocking in before:
            with suppress(OSError):
                os.set_blocking(copy, blocking)

    try:
        yield restore
    finally:
        restore()
        for copy, _ in before:
            os.close(copy)
