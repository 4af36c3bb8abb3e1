"""The end of a server: a sequence with marks on one clock, and an OS thread as the last resort.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Shutdown".
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Literal

import attrs
import trio

ANSWER_BY = 9.0
"""Seconds after the stop began at which every accepted request has its answer."""

EXIT_BY = 10.0
"""Seconds after which the process is gone, whatever runs."""

Why = Literal["eof", "signal", "reader gone", "overflow"]


@attrs.define(eq=False)
class Stop:
    """Asked for once; the first reason counts. `asked` is when the marks begin to count."""

    asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    why: Why | None = attrs.field(default=None, init=False)
    _at: float = attrs.field(default=0.0, init=False)

    def ask(self, why: Why) -> None:
        """Begin the stop. Returns at once."""
        if self.why is None:
            self.why = why
            self._at = trio.current_time()
            self.asked.set()

    def deadline(self, mark: float) -> float:
        """A mark, on trio's clock."""
        return self._at + mark


class Watchdog:
    """Ends the process when it does not end by itself.

    It is an OS thread because it must work when the event loop does not: blocked by an extension, or
    by a write that nobody reads.
    """

    def __init__(self, last_act: Callable[[], None], limit: float = EXIT_BY) -> None:
        self._last_act = last_act
        self._limit = limit
        self._over = threading.Event()

    def start(self) -> None:
        """Count from now."""
        threading.Thread(target=self._run, name="exit watchdog", daemon=True).start()

    def disarm(self) -> None:
        """The process has ended what it had to; it may exit by itself."""
        self._over.set()

    def _run(self) -> None:
        if not self._over.wait(self._limit):
            exit_now(1, self._last_act)


def exit_now(code: int, last_act: Callable[[], None]) -> None:
    """Leave without any clean-up but `last_act`: above all, the children's end."""
    try:
        last_act()
    finally:
        os._exit(code)


async def watch_signals(
    stop: Stop,
    last_act: Callable[[], None],
    noted: Callable[[], bool],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The first signal asks for the stop, the second one exits at once with 128 + its number.

    `noted` tells whether one came before this began to listen.
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):
        signals.append(signal.SIGHUP)
    with trio.open_signal_receiver(*signals) as received:
        task_status.started()
        seen = noted()
        if seen:
            stop.ask("signal")
        async for number in received:
            if seen:
                exit_now(128 + number, last_act)
            seen = True
            stop.ask("signal")
