"""What a thread is asked to do, and the turn that comes of it.

`Work` is what somebody asked for: it is answered exactly once, and accepted or not. A `RunningTurn`
is the handle on accepted work.

Source: App Server notes, "Admission and the life of a start".
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NewType

import attrs
import trio

from knightcode.agent.interrupt import Interrupt
from knightcode.agent.steering import Steering
from knightcode.messages import ImageBlock
from knightcode.threads.live import LiveTurn
from knightcode.threads.notices import ConnectionId
from knightcode.threads.phases import PHASES, Phase

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
    """Interrupted: an input before it was accepted, so that nothing was launched, or a compaction."""

    thread_id: str


@attrs.frozen
class Compacted:
    """A compaction that was asked for has been written."""


Outcome = Started | Handled | Cancelled | Compacted | ThreadError


@attrs.frozen
class PathImage:
    """An image on the server's file system, not yet read."""

    path: str


@attrs.frozen
class TurnInput:
    """What the user sent."""

    text: str
    images: tuple[ImageBlock | PathImage, ...] = ()


@attrs.define(eq=False, kw_only=True)
class Work:
    """One wish that takes the admission of its thread.

    Attributes:
        initiator: the connection that is asked first; None when the thread itself began.
        answer: called once, synchronously, with the outcome.
        waits: ends the waits before acceptance that nobody needs any more.
    """

    thread_id: str
    answer: Callable[[Outcome], None]
    initiator: ConnectionId | None = None
    phase: Phase = attrs.field(default=Phase.ADMITTED, init=False)
    waits: Interrupt = attrs.field(factory=Interrupt, init=False, repr=False)
    outcome: Outcome | None = attrs.field(default=None, init=False)

    def enter(self, phase: Phase) -> None:
        """Go on to a later phase."""
        assert phase >= self.phase, f"{phase.name} comes before {self.phase.name}"
        self.phase = phase

    def resolve(self, outcome: Outcome) -> None:
        """Answer; only the first outcome counts."""
        if self.outcome is None:
            self.outcome = outcome
            if not self.accepted:
                self.waits.throw("answered")
            self.answer(outcome)

    @property
    def accepted(self) -> bool:
        """It has become a turn."""
        return PHASES[self.phase].accepted

    def is_cancelled(self) -> bool:
        """Interrupted or refused before acceptance: it must not launch anything any more."""
        return isinstance(self.outcome, (Cancelled, ThreadError)) and not self.accepted


@attrs.define(eq=False, kw_only=True)
class Start(Work):
    """An input that is to begin a turn.

    Attributes:
        sent: what `input` handlers began instead; the first of them takes the start's place.
        subscribes: whether its initiator follows the thread once it is loaded.
    """

    input: TurnInput
    request_id: str | None = None
    client_message_id: str | None = None
    sent: list[TurnInput] = attrs.field(factory=list, init=False)
    subscribes: bool = attrs.field(default=True, init=False)


@attrs.define(eq=False, kw_only=True)
class Compact(Work):
    """A compaction that was asked for: a turn of its own."""

    instructions: str | None = None


@attrs.define(eq=False, kw_only=True)
class SteerRequest:
    """An input for a running turn, until it is accepted, refused or cancelled.

    Attributes:
        answer: called once, synchronously; None is the success.
        after: the steer before it in the same turn, whose fate is decided first.
    """

    expected_turn_id: str
    input: TurnInput
    connection: ConnectionId
    answer: Callable[[ThreadError | None], None]
    after: "SteerRequest | None" = attrs.field(default=None, init=False)
    decided: trio.Event = attrs.field(factory=trio.Event, init=False, repr=False)
    waits: Interrupt = attrs.field(factory=Interrupt, init=False, repr=False)

    def resolve(self, outcome: ThreadError | None) -> None:
        """Answer; only the first outcome counts."""
        if not self.decided.is_set():
            self.decided.set()
            self.after = None
            self.waits.throw("answered")
            self.answer(outcome)


def steer_cancelled() -> ThreadError:
    """The refusal of a steer whose turn ended first."""
    return ThreadError(
        "invalidParams",
        "The turn ended before this input was accepted, so it was not delivered; send it as a new turn",
        {"reason": "steerCancelled"},
    )


def takes_no_input() -> ThreadError:
    """The refusal of a steer to a turn that could never deliver it."""
    return ThreadError(
        "invalidParams",
        "The running turn is a compaction, which takes no input; queue it, or start a turn with it",
        {"reason": "compacting"},
    )


@attrs.define(eq=False)
class RunningTurn:
    """Handle on an accepted turn. The thread keeps it; connections never do."""

    id: TurnId
    live: LiveTurn
    steering: Steering = attrs.field(factory=Steering)
    takes_input: bool = True
    """False in a turn that asks no model for a reply: a compaction that was asked for."""
    steers: list[SteerRequest] = attrs.field(factory=list, init=False)
    """Those that wait in interception, in the order in which they came."""
    interrupt: Interrupt = attrs.field(factory=Interrupt, init=False, repr=False)
    interrupted: bool = attrs.field(default=False, init=False)
    """Set by an interrupt, an unload or the shutdown; it outranks every other outcome."""
    ended: trio.Event = attrs.field(factory=trio.Event, init=False, repr=False)

    def stop(self, why: Literal["interrupt", "unload", "shutdown"]) -> None:
        """End the turn as interrupted; returns at once, `ended` says when it is over."""
        self.interrupted = True
        self.interrupt.throw(why)

    def refuse_steers(self, refusal: ThreadError) -> None:
        """Steers that are not accepted yet never will be."""
        for steer in tuple(self.steers):
            steer.resolve(refusal)


def turn_mismatch(method: str, expected: str, running: RunningTurn | None) -> ThreadError:
    """The refusal of a request that names a turn which is not the running one."""
    if running is None:
        return ThreadError(
            "turnMismatch", f"{method} named turn {expected}, but no turn is running; leave it be"
        )
    return ThreadError(
        "turnMismatch",
        f"{method} named turn {expected}, but turn {running.id} is running; name that one",
        {"runningTurnId": running.id},
    )


def shutting_down() -> ThreadError:
    """The refusal of everything once the server's stop has begun."""
    return ThreadError("shuttingDown", "The server is shutting down; nothing new can be started")
