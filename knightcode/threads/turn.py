"""One start, from the request to the settled turn.

A `Start` is what somebody asked for; it is answered exactly once, and accepted or not. A
`RunningTurn` is the handle on an accepted one.

Source: App Server notes, "Admission and the life of a start".
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NewType

import attrs
import trio

from knightcode.agent.interrupt import Interrupt
from knightcode.messages import ImageBlock
from knightcode.threads.live import LiveTurn
from knightcode.threads.notices import ConnectionId

TurnId = NewType("TurnId", str)


class ThreadError(Exception):
    """A request that a thread refuses. `code` is one of the protocol's, `data` is for programs."""

    def __init__(self, code: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, dict(data or {})


@attrs.frozen
class Started:
    """The input began a turn."""

    thread_id: str


@attrs.frozen
class Handled:
    """Something consumed the input; no turn began."""

    thread_id: str


@attrs.frozen
class Cancelled:
    """Interrupted before it was accepted; nothing was launched."""

    thread_id: str


StartOutcome = Started | Handled | Cancelled | ThreadError


@attrs.frozen
class PathImage:
    """An image on the server's file system, not yet read."""

    path: str


@attrs.frozen
class TurnInput:
    """What the user sent."""

    text: str
    images: tuple[ImageBlock | PathImage, ...] = ()


@attrs.define(eq=False)
class Start:
    """One wish to begin a turn.

    Attributes:
        initiator: the connection that is asked first; None when the thread itself began.
        answer: called once, synchronously, with the outcome.
    """

    thread_id: str
    input: TurnInput
    answer: Callable[[StartOutcome], None]
    initiator: ConnectionId | None = None
    request_id: str | None = None
    client_message_id: str | None = None
    outcome: StartOutcome | None = attrs.field(default=None, init=False)

    def resolve(self, outcome: StartOutcome) -> None:
        """Answer; only the first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.answer(outcome)

    @property
    def cancelled(self) -> bool:
        """Interrupted before acceptance: it must not launch anything any more."""
        return isinstance(self.outcome, (Cancelled, ThreadError))


@attrs.define(eq=False)
class RunningTurn:
    """Handle on an accepted turn. The thread keeps it; connections never do."""

    id: TurnId
    live: LiveTurn
    interrupt: Interrupt = attrs.field(factory=Interrupt, init=False, repr=False)
    interrupted: bool = attrs.field(default=False, init=False)
    """Set by an interrupt, an unload or the shutdown; it outranks every other outcome."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False, repr=False)

    def stop(self, why: Literal["interrupt", "unload", "shutdown"]) -> None:
        """End the turn as interrupted; returns at once, `ended` says when it is over."""
        self.interrupted = True
        self.interrupt.throw(why)
