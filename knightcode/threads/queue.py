"""Inputs that wait on the server until their thread is idle. Everything here is one step.

An input has its place from the moment its request arrives, whatever its images take to be read:
inputs start in the order in which they were sent.

Source: App Server, "Threads and turns"; App Server notes, "Steering, queue, interrupt", "Steers and queue".
"""

import secrets
from collections.abc import Callable, Sequence

import attrs

from knightcode.agent.interrupt import Interrupt
from knightcode.threads.notices import ConnectionId
from knightcode.threads.turn import ThreadError, TurnInput

QUEUE_LIMIT = 256
"""Waiting inputs of one thread, and waiting steers of one turn."""

QUEUE_CHARACTERS = 4 * 1024 * 1024
"""Of all texts that wait in one thread: each change of the lists sends all of them."""


@attrs.define(eq=False)
class QueuedInput:
    """One input.

    Attributes:
        accepted: called once, synchronously, when the input is in the queue for good: it is the answer.
        ready: checked and answered; clients see it.
    """

    input: TurnInput
    connection: ConnectionId
    accepted: Callable[[str], None]
    client_message_id: str | None = None
    id: str = attrs.field(factory=lambda: secrets.token_hex(8))
    ready: bool = attrs.field(default=False, init=False)
    waits: Interrupt = attrs.field(factory=Interrupt, init=False, repr=False)
    """Ends the reading of its images when nobody needs them any more."""

    @property
    def attachments(self) -> int:
        """How many images come with the text."""
        return len(self.input.images)


@attrs.define(eq=False)
class InputQueue:
    """Oldest first."""

    _inputs: list[QueuedInput] = attrs.field(factory=list, init=False)

    def __bool__(self) -> bool:
        return bool(self._inputs)

    def __contains__(self, queued: QueuedInput) -> bool:
        return queued in self._inputs

    def visible(self) -> tuple[QueuedInput, ...]:
        """What clients are shown."""
        return tuple(queued for queued in self._inputs if queued.ready)

    def add(self, queued: QueuedInput) -> None:
        """Give an input its place; it is neither shown nor started before `make_ready`.

        Raises:
            ThreadError: `invalidParams`, the queue is full.
        """
        check_room([one.input.text for one in self._inputs], queued.input.text)
        self._inputs.append(queued)

    def make_ready(self, queued: QueuedInput) -> None:
        """Answer its request; it may start when its turn comes."""
        queued.ready = True
        queued.accepted(queued.id)
        queued.waits.throw("answered")

    def withdraw(self, queued: QueuedInput) -> None:
        """Take an input out that was refused before it was ready."""
        if queued in self._inputs:
            self._inputs.remove(queued)

    def remove(self, queue_id: str) -> bool:
        """Take a waiting input out, by its id; False when none is known under it."""
        for queued in self._inputs:
            if queued.ready and queued.id == queue_id:
                self._inputs.remove(queued)
                return True
        return False

    def take(self) -> QueuedInput | None:
        """The oldest input, if it may start."""
        if not self._inputs or not self._inputs[0].ready:
            return None
        return self._inputs.pop(0)

    def drop(self) -> bool:
        """Forget all of them; whether there was one. Requests that still wait are answered first."""
        had = bool(self._inputs)
        for queued in tuple(self._inputs):
            if not queued.ready:
                self.make_ready(queued)
        self._inputs.clear()
        return had


def check_room(waiting: Sequence[str], text: str) -> None:
    """Raises ThreadError `invalidParams` when one more text is too much to wait with the others."""
    if len(waiting) >= QUEUE_LIMIT or sum(map(len, waiting)) + len(text) > QUEUE_CHARACTERS:
        raise ThreadError(
            "invalidParams",
            f"{len(waiting)} inputs wait already, of at most {QUEUE_LIMIT} with together "
            f"{QUEUE_CHARACTERS} characters; wait until some are taken, or remove one",
            {"reason": "queueFull"},
        )
