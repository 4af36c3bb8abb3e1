"""Output that waits to be written, counted in bytes.

Source: app server, "Limits and client reference": a client that does not read must not cost memory
without bound, and must not hold up anything else.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from knightcode_protocol.limits import MAX_PENDING_OUTPUT_BYTES


def _nothing() -> None:
    return None


class Outbox:
    """A queue of whole lines between everything that speaks and the one task that writes.

    Attributes:
        wake: called when the first line comes in and when the outbox closes; replaced by whoever
            writes, who may wait only after a `take` that found nothing.
        taken: called when there is less to write than before; replaced by whoever waits for that.
    """

    __slots__ = ("_being_written", "_limit", "_lines", "_waiting", "closed", "overflowed", "taken", "wake")

    def __init__(self, limit: int = MAX_PENDING_OUTPUT_BYTES) -> None:
        self._limit: Final = limit
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._being_written = 0
        self.closed = False
        """Nothing is taken in any more."""
        self.overflowed = False
        """More than `limit` bytes were pending: the connection must be aborted."""
        self.wake: Callable[[], None] = _nothing
        self.taken: Callable[[], None] = _nothing

    @property
    def pending_bytes(self) -> int:
        """Bytes that are not written yet, those of the last `take` included."""
        return self._waiting + self._being_written

    def post(self, line: bytes) -> None:
        """Queue a line. Dropped when the outbox is closed; too much closes it for good."""
        if self.closed:
            return
        self._lines.append(line)
        self._waiting += len(line)
        if self.pending_bytes > self._limit:
            self.overflowed = True
            self.close()
        elif len(self._lines) == 1:
            self.wake()  # for the lines behind it this is not over: the writer takes until none is left

    def take(self, max_bytes: int) -> bytes:
        """The next whole lines, joined: up to `max_bytes`, but one line at least; empty when none wait.

        Asking for more says that what was taken before has been written.
        """
        lines = self._lines
        size = 0
        batch: list[bytes] = []
        while lines and (not batch or size + len(lines[0]) <= max_bytes):
            line = lines.popleft()
            batch.append(line)
            size += len(line)
        self._waiting -= size
        self._being_written = size
        self.taken()
        return batch[0] if len(batch) == 1 else b"".join(batch)

    def close(self) -> None:
        """Drop what waits and take nothing more."""
        self.closed = True
        self._lines.clear()
        self._waiting = 0
        self.wake()
        self.taken()
