"""The signals that ask for the stop, counted where no event loop is needed.

Must stay free of everything heavy, trio above all: signals come from the first moment on. A SIGHUP that
was ignored when the program was started stays ignored, as `nohup` and shells mean it.

Source: App Server notes, "Shutdown".
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


def _nothing() -> None:
    return None


def hangup_is_ignored() -> bool:
    """Whether this program was started to outlive its starter, as `nohup` does it."""
    return hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


class StopSignals:
    """Counts signals in the handler that Python runs between two bytecodes of the main thread.

    That works while the program loads, and while its event loop hangs in a busy loop or a sleep. The
    handler may have interrupted anything, so what it calls must take no lock and raise nothing.
    """

    def __init__(self) -> None:
        self._first_at: float | None = None
        self._first: Callable[[], None] = _nothing
        self._second: Callable[[int], object] = os._exit

    def install(self) -> None:
        """Take the signals over. Until somebody listens the first is kept, and the second exits at once."""
        for name in NAMES:
            if hasattr(signal, name) and not (name == "SIGHUP" and hangup_is_ignored()):
                signal.signal(getattr(signal, name), self._came)

    @contextmanager
    def listening(self, first: Callable[[], None], second: Callable[[int], object]) -> Iterator[None]:
        """Inside the block, the first signal calls `first`, a later one `second` with 128 + its number.

        A first signal that came before calls `first` now. Both must be fit for a signal handler.
        """
        before = self._first, self._second
        self._first, self._second = first, second
        if self._first_at is not None:
            first()
        try:
            yield
        finally:
            self._first, self._second = before

    def ignore(self) -> None:
        """Everything is over but the interpreter's own end, which would give signals their default again."""
        for name in NAMES:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)

    def seconds_ago(self) -> float:
        """How long ago the first signal came; 0 when none has."""
        return 0.0 if self._first_at is None else time.monotonic() - self._first_at

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if self._first_at is None:
            self._first_at = time.monotonic()
            self._first()
        else:
            self._second(128 + number)
