"""Server-sent events cut out of bytes as they arrive. Pure: no I/O, no clock, no JSON.

Source: models and providers, "Common".
"""

from typing import Final

from msgspec import Struct

EVENT_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""Larger than any reply; a server that never ends an event cannot fill the memory."""

_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True, gc=False):
    """One event: its data, lines joined by a line feed, and its name (empty if the server gave none)."""

    data: bytes
    name: bytes = b""


class EventTooLargeError(Exception):
    """An event is larger than the splitter may keep; nothing more can be read from this stream."""


class SseSplitter:
    """Splits a byte stream into events; any cut of the same bytes gives the same events.

    Lines end in LF, CRLF or CR. Comments, unknown fields and events without data are left out.
    """

    def __init__(self, limit_bytes: int = EVENT_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes, in order.

        Raises:
            EventTooLargeError: an event has more than `limit_bytes`.
        """
        if self._after_cr or b"\r" in data:
            data = self._line_feeds_only(data)
        if not data:
            return []
        ends_here = b"\n\n" in data or (data[0] == 10 and bool(self._pieces) and self._pieces[-1][-1] == 10)
        self._size += len(data)
        self._pieces.append(data)
        if not ends_here and not self._at_start:
            self._check(self._size)
            return []
        return self._cut()

    def close(self) -> list[SseEvent]:
        """The event that the end of the stream completes, if there is one."""
        rest = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        event = _parse(rest)
        return [] if event is None else [event]

    def _line_feeds_only(self, data: bytes) -> bytes:
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1] == 13
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _cut(self) -> list[SseEvent]:
        whole = b"".join(self._pieces)
        if self._at_start:
            if len(whole) < len(_BOM) and _BOM.startswith(whole):
                return []
            whole = whole.removeprefix(_BOM)
            self._at_start = False
        *records, rest = whole.split(b"\n\n")
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        self._check(max(map(len, records), default=0))
        self._check(self._size)
        events: list[SseEvent] = []
        for record in records:
            if record.startswith(b"data: ") and b"\n" not in record:  # what most servers send
                if len(record) > 6:
                    events.append(SseEvent(record[6:]))
            elif (event := _parse(record)) is not None:
                events.append(event)
        return events

    def _check(self, size: int) -> None:
        if size > self._limit:
            self._pieces, self._size = [], 0
            raise EventTooLargeError(f"an event of the stream is larger than {self._limit} bytes")


def _parse(record: bytes) -> SseEvent | None:
    """The event of one record, lines separated by LF; None when it has no data."""
    name = b""
    lines: list[bytes] = []
    for line in record.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    data = b"\n".join(lines)
    return SseEvent(data, name) if data else None
