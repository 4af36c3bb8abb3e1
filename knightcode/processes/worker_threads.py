"""Worker threads for blocking calls, bounded by kind.

A bound belongs to one run of the event loop, as trio's own does: a thread that is abandoned when a run
ends never gives its place back, and the next run in the same process must not miss it.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class WorkerThreads:
    """At most `size` threads at once for one kind of work, so that kinds cannot starve each other."""

    def __init__(self, name: str, size: int) -> None:
        self._size = size
        self._limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar(name)

    async def run(
        self, function: Callable[[Unpack[Ts]], T], *arguments: *Ts, abandon_on_cancel: bool = False
    ) -> T:
        """Call `function` in a worker thread.

        Args:
            abandon_on_cancel: leave the thread to itself when cancelled, for work whose result nobody
                misses; else the thread is waited for, and its result counts.
        """
        return await trio.to_thread.run_sync(
            function, *arguments, limiter=self._current(), abandon_on_cancel=abandon_on_cancel
        )

    def _current(self) -> trio.CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = trio.CapacityLimiter(self._size)
            self._limiter.set(limiter)
            return limiter
