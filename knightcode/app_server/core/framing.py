"""Bytes to lines.

Source: app server notes, "Framing"; app server, "Limits and client reference".
"""

from typing import Final

from msgspec import Struct

from knightcode_protocol.limits import MAX_LINE_BYTES


class LineTooLong(Struct, frozen=True):
    """Stands for a line that was dropped; `size` is its length in bytes."""

    size: int


class LineSplitter:
    """Splits a byte stream into lines of at most `max_line` bytes, line end excluded.

    Lines end at LF and nowhere else; one CR before it belongs to the line end. Blank lines vanish.
    However the stream is cut into chunks, the lines are the same.
    """

    __slots__ = ("_max", "_pieces", "_size")

    def __init__(self, max_line: int = MAX_LINE_BYTES) -> None:
        self._max: Final = max_line
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """The lines that end in `data`, in order."""
        first, *others = data.split(b"\n")
        if not others:
            self._keep(first)
            return []
        rest = others.pop()
        events: list[bytes | LineTooLong] = []
        if self._size:
            self._keep(first)
            events += self._end_line()
        else:
            others.insert(0, first)
        for line in others:
            if line.endswith(b"\r"):
                line = line[:-1]  # noqa: PLW2901 -- ten thousand lines in one chunk pass here
            if len(line) > self._max:
                events.append(LineTooLong(len(line)))
            elif line and not line.isspace():
                events.append(line)
        self._keep(rest)
        return events

    def finish(self) -> list[bytes | LineTooLong]:
        """The last line, when the stream ended without a line end."""
        return self._end_line()

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._max + 1:  # the one more may be the CR
            self._pieces.append(piece)
        else:
            self._pieces = [piece[-1:]]  # memory stays bounded while the line is skipped

    def _end_line(self) -> list[bytes | LineTooLong]:
        line, size = b"".join(self._pieces), self._size
        self._pieces, self._size = [], 0
        if line.endswith(b"\r"):
            line, size = line[:-1], size - 1
        if size > self._max:
            return [LineTooLong(size)]
        return [line] if line and not line.isspace() else []
