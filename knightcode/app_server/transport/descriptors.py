"""The process's standard descriptors. Needs nothing heavy: it runs before anything is loaded.

At start the protocol moves to descriptors of its own. Descriptor 1 then leads to stderr and 0 to
nothing, so neither a `print` nor a child can reach, or take from, the protocol.

Source: App Server, "Starting"; architecture, "transport".
"""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

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
        """Take descriptors 0 and 1. A closed one is taken as an end of input, or as a reader that is gone."""
        reading = _copy(0, os.O_RDONLY)
        writing = _copy(1, os.O_WRONLY)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0, inheritable=True)
        if nothing != 0:
            os.close(nothing)
        try:
            os.dup2(2, 1, inheritable=True)
        except OSError:  # stderr is closed: whatever is printed goes nowhere
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 1, inheritable=True)
            os.dup2(sink, 2, inheritable=True)
            os.close(sink)
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


def _copy(descriptor: int, flags: int) -> int:
    try:
        copy = os.dup(descriptor)
    except OSError:
        copy = os.open(os.devnull, flags)
    # Above the standard three, so that pointing those elsewhere cannot hit it.
    while copy <= 2:
        copy = os.dup(copy)
    os.set_inheritable(copy, False)
    return copy


@contextmanager
def kept_blocking_mode(*descriptors: int) -> Iterator[None]:
    """Restore on exit whether the descriptors block: the mode is shared with whoever else has them open."""
    before = (
        [(descriptor, os.get_blocking(descriptor)) for descriptor in descriptors]
        if os.name == "posix"
        else []
    )
    try:
        yield
    finally:
        for descriptor, blocking in before:
            try:
                os.set_blocking(descriptor, blocking)
            except OSError:
                continue
