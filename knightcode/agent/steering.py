"""What is said to a turn while it runs, and waits to be delivered to the model.

Everything here is synchronous: a steer is either waiting, or delivered, or dropped, and each change
is one step.

Source: agent loop, "Queue modes"; App Server, "Threads and turns"; App Server notes, "Steering,
queue, interrupt".
"""

from collections.abc import Callable
from typing import Literal

import attrs

from knightcode.messages import UserMessage

SteeringMode = Literal["one-at-a-time", "all"]


def _nothing() -> None:
    return None


@attrs.define(eq=False)
class Steer:
    """One accepted input. `text` is what the user typed, whatever became of it in `message`."""

    message: UserMessage
    text: str


@attrs.define(eq=False)
class Steering:
    """The accepted steers of one turn that the agent has not delivered yet, oldest first.

    Attributes:
        changed: called after every change of `texts`.
    """

    mode: SteeringMode = "one-at-a-time"
    changed: Callable[[], None] = _nothing
    _waiting: list[Steer] = attrs.field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def texts(self) -> tuple[str, ...]:
        """What waits, as clients are shown it."""
        return tuple(steer.text for steer in self._waiting)

    def add(self, steer: Steer) -> None:
        """Accept a steer: from now on the turn cannot end before it is delivered or dropped."""
        self._waiting.append(steer)
        self.changed()

    def poll(self) -> list[Steer]:
        """What is to be delivered now. It goes on waiting until `take`."""
        return list(self._waiting if self.mode == "all" else self._waiting[:1])

    def take(self, steer: Steer) -> bool:
        """The steer is about to be stored; False when it was dropped meanwhile."""
        if steer not in self._waiting:
            return False
        self._waiting.remove(steer)
        self.changed()
        return True

    def drop(self) -> bool:
        """Forget all of them without a word, the caller tells; whether there was one."""
        had = bool(self._waiting)
        self._waiting.clear()
        return had
