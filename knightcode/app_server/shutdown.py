"""The end of a server: a sequence with marks on one clock, and an OS thread as the last resort.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Shutdown".
"""

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Literal, NoReturn

import attrs
import trio

ANSWER_BY = 9.0
"""Seconds after the stop began at which every accepted request has its answer."""

EXIT_BY = 10.0
"""Seconds after which the process is gone, whatever runs."""

Why = Literal["eof", "signal", "parent gone", "reader gone", "overflow", "lost"]


@attrs.define(eq=False)
class Stop:
    """Asked for once; the first reason counts. `asked` is when the marks begin to count."""

    asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    why: Why | None = attrs.field(default=None, init=False)
    _at: float = attrs.field(default=0.0, init=False)

    def ask(self, why: Why, seconds_ago: float = 0.0) -> None:
        """Begin the stop. Returns at once.

        Args:
            seconds_ago: when the reason was there, if the event loop hears of it late.
        """
        if self.why is None:
            self.why = why
            self._at = trio.current_time() - seconds_ago
            self.asked.set()

    def deadline(self, mark: float) -> float:
        """A mark, on trio's clock."""
        return self._at + mark


class Watchdog:
    """Ends the process when it does not end by itself.

    It is an OS thread because it must work when the event loop does not: blocked by an extension, or
    by a write that nobody reads. It waits from the server's start on, since whoever arms it may be a
    signal handler, which can neither start a thread nor take a lock.
    """

    def __init__(self, last_act: Callable[[], None], limit: float = EXIT_BY) -> None:
        self._last_act = last_act
        self._limit = limit
        self._told: queue.SimpleQueue[Literal["armed", "over"]] = queue.SimpleQueue()

    def start(self) -> None:
        """Stand by."""
        threading.Thread(target=self._run, name="exit watchdog", daemon=True).start()

    def arm(self) -> None:
        """Count from now; arming twice is once. May be called from anywhere, a signal handler included."""
        self._told.put("armed")  # of all queues and locks the one that may interrupt itself

    def disarm(self) -> None:
        """The process has ended what it had to; it may exit by itself."""
        self._told.put("over")

    def _run(self) -> None:
        if self._told.get() == "over":
            return
        end = time.monotonic() + self._limit
        while (left := end - time.monotonic()) > 0:
            try:
                if self._told.get(timeout=left) == "over":
                    return
            except queue.Empty:
                break
        exit_now(1, self._last_act)


def exit_now(code: int, last_act: Callable[[], None]) -> NoReturn:
    """Leave without any clean-up but `last_act`: above all, the children's end."""
    try:
        last_act()
    finally:
        os._exit(code)
