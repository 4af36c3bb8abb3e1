"""The one place of a thread that admits work, and what waits for it.

Source: App Server notes, "Admission and the life of a start".
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from knightcode.threads.queue import InputQueue
from knightcode.threads.turn import Work


@attrs.define(eq=False)
class Lane:
    """The one admission of a thread and all that waits for it. It exists while the thread still loads.

    Attributes:
        current: the work that is admitted.
        follower: the one start that waits behind a compaction.
        deferred: what handlers of the settled turn began; it keeps the admission.
        queue: the inputs that wait for an idle thread.
    """

    current: Work | None = None
    follower: Work | None = None
    deferred: deque[Work] = attrs.field(factory=deque)
    queue: InputQueue = attrs.field(factory=InputQueue)
    _holds: list[str] = attrs.field(factory=list, init=False)
    _let_go: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    @property
    def free(self) -> bool:
        """Nothing is admitted, nothing waits, nobody holds it."""
        return (
            self.current is None
            and self.follower is None
            and not (self.deferred or self.queue or self._holds)
        )

    @contextmanager
    def hold(self, what: str) -> Iterator[None]:
        """Keep starts in `WAITING` while the block runs: a settings change, a revert, file accounting.

        It refuses nothing and stops nothing that has been accepted.
        """
        self._holds.append(what)
        try:
            yield
        finally:
            self._holds.remove(what)
            if not self._holds:
                self._let_go.unpark_all()

    async def unheld(self) -> None:
        """Wait until nobody holds the lane."""
        await trio.lowlevel.checkpoint()
        while self._holds:
            await self._let_go.park()
