"""Every change in what a thread works on. All of it is synchronous: each method is one step.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start",
"Steering, queue, interrupt".
"""

import logging
from typing import TYPE_CHECKING

import attrs

from knightcode.agent.hooks import Input
from knightcode.agent.steering import Steer, Steering
from knightcode.messages import ImageBlock, InputBlock, TextBlock, UserMessage
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import TurnError as StoredTurnError
from knightcode.sessions.errors import SessionFileError
from knightcode.threads.admission import Lane
from knightcode.threads.items import EndedStatus, TurnError
from knightcode.threads.live import LiveTurn
from knightcode.threads.notices import (
    InputDropped,
    QueueChanged,
    QueueRow,
    ThreadTurnCompleted,
    TurnCompleted,
    TurnStarted,
)
from knightcode.threads.phases import PHASES, Phase
from knightcode.threads.queue import QueuedInput, check_room
from knightcode.threads.starting import carry_out, intercept
from knightcode.threads.turn import (
    Cancelled,
    Compact,
    Outcome,
    RunningTurn,
    Start,
    Started,
    SteerRequest,
    ThreadError,
    TurnId,
    TurnInput,
    Work,
    shutting_down,
    steer_cancelled,
    takes_no_input,
    turn_mismatch,
)

if TYPE_CHECKING:
    from knightcode.threads.thread import Thread

log = logging.getLogger(__name__)

ERROR_LIMIT = 2_000
"""Characters of a turn's error in summaries; App Server, "Threads and turns"."""


@attrs.define(eq=False)
class Turns:
    """The work of one thread: what is admitted, what runs, what waits."""

    thread: "Thread"
    lane: Lane
    running: RunningTurn | None = attrs.field(default=None, init=False)

    # --- admission -------------------------------------------------------------------------------

    def admit(self, work: Work) -> None:
        """Give work the admission, which is free, and run it."""
        assert self.lane.current is None or self.lane.current is work
        self.lane.current = work
        self.thread.work_changed()
        self.thread.spawn(carry_out, work)

    def accept(self, work: Work) -> RunningTurn:
        """The one step in which work becomes a turn: marker, answer, `turn/started`.

        Raises:
            SessionFileError: the marker could not be stored; nothing was answered.
        """
        thread, start = self.thread, work if isinstance(work, Start) else None
        thread.store_approval_mode()
        marker = thread.session.append_turn_start()
        live = LiveTurn(
            id=marker.id,
            thread_id=thread.id,
            cwd=thread.session.cwd,
            started_at_ms=parse_iso(marker.timestamp) or 0,
            publish=thread.publish,
            now_ms=thread.services.now_ms,
            client_message_id=None if start is None else start.client_message_id,
        )
        steering = Steering(thread.services.steering_mode, self._show_queue)
        turn = self.running = RunningTurn(TurnId(marker.id), live, steering, takes_input=start is not None)
        work.enter(Phase.COMPACTING)
        if work.initiator is not None:
            thread.subscribers.initiated(work.initiator)
        if start is not None:
            start.resolve(Started(self.thread.id))
        self.thread.publish(TurnStarted(live.turn("inProgress"), None if start is None else start.request_id))
        return turn

    def settle(self, work: Work, turn: RunningTurn, status: EndedStatus, error: TurnError | None) -> None:
        """The one step in which a turn ends: open items, end marker, `turn/completed`."""
        self.running = None
        work.enter(Phase.SETTLED)
        turn.refuse_steers(steer_cancelled())
        if turn.steering.drop():  # the run broke off; nothing else leaves an accepted steer behind
            self._show_queue()
        turn.live.close()
        completed_at: int | None = None
        try:
            stored = None if error is None else StoredTurnError(message=error.message, kind=error.kind)
            marker = self.thread.session.append_turn_end(turn.id, status, stored)
            completed_at = parse_iso(marker.timestamp)
            self.thread.mended()
        except SessionFileError as failure:
            self.thread.broken(str(failure))
        if error is not None and len(error.message) > ERROR_LIMIT:
            error = TurnError(error.message[:ERROR_LIMIT], error.kind)
        summary = turn.live.turn(status, completed_at_ms=completed_at, error=error)
        self.thread.publish(TurnCompleted(summary))
        self.thread.services.publisher.to_all(ThreadTurnCompleted(summary))
        turn.ended.set()

    def release(self, work: Work) -> None:
        """The work is over: what comes next is admitted in the same step."""
        if self.lane.current is work:
            self.lane.current = None
            self.dispatch()

    def dispatch(self) -> None:
        """Admit what has waited longest, if the admission is free: what handlers began comes first."""
        lane = self.lane
        if lane.current is None and not self.thread.closing:
            if lane.deferred:
                self.admit(lane.deferred.popleft())
            elif lane.follower is not None:
                follower, lane.follower = lane.follower, None
                self.admit(follower)
            elif (queued := lane.queue.take()) is not None:
                self._show_queue()
                self.admit(self._start_of(queued))
        self.thread.work_changed()

    # --- interrupt -------------------------------------------------------------------------------

    def interrupt(self, turn_id: str | None) -> None:
        """Stop what runs, and drop what waits. Returns at once.

        Raises:
            ThreadError: `turnMismatch` when `turn_id` is not the running turn; nothing changes.
        """
        running = self.running
        if turn_id is not None and (running is None or running.id != turn_id):
            raise turn_mismatch("turn/interrupt", turn_id, running)
        changed = drop_waiting(self.lane, Cancelled(self.thread.id), with_follower=turn_id is None)
        if running is not None:
            changed = running.steering.drop() or changed
            running.refuse_steers(steer_cancelled())
            running.stop("interrupt")
            self.thread.asks.withdraw_all()
        if changed:
            self._show_queue()
        self.thread.work_changed()

    def stop(self, shutdown: bool) -> None:
        """The thread ends: what runs is interrupted, what waits is dropped without an `error`."""
        refusal = shutting_down() if shutdown else None
        changed = drop_waiting(self.lane, refusal or Cancelled(self.thread.id))
        self.lane.deferred.clear()
        if self.running is not None:
            changed = self.running.steering.drop() or changed
            self.running.refuse_steers(refusal or steer_cancelled())
            self.running.stop("shutdown" if shutdown else "unload")
        if changed:
            self._show_queue()

    # --- steering --------------------------------------------------------------------------------

    def steer(self, steer: SteerRequest) -> None:
        """Hand an input to the running turn.

        Raises:
            ThreadError: `turnMismatch`; `invalidParams`: `steerCancelled` when the turn is being stopped,
                `compacting` when it is a compaction.
        """
        running = self.running
        if running is None or running.id != steer.expected_turn_id:
            raise turn_mismatch("turn/steer", steer.expected_turn_id, running)
        if not running.takes_input:
            raise takes_no_input()
        if running.interrupted:
            raise steer_cancelled()
        waiting = [*running.steering.texts(), *(one.input.text for one in running.steers)]
        check_room(waiting, steer.input.text)
        if not (running.steers or steer.input.images or self.thread.hooks.input):
            self.accept_steer(running, steer, Input(steer.input.text))
            return
        steer.after = running.steers[-1] if running.steers else None
        running.steers.append(steer)
        self.thread.spawn(intercept, running, steer)

    def accept_steer(self, turn: RunningTurn, steer: SteerRequest, given: Input) -> None:
        """The one step in which a steer counts: the answer, then what clients see."""
        content: list[InputBlock] = [TextBlock(text=given.text), *given.images]
        said = UserMessage(timestamp=self.thread.services.now_ms(), content=content)
        self.thread.subscribers.initiated(steer.connection)
        steer.resolve(None)
        turn.steering.add(Steer(said, steer.input.text))

    # --- the queue -------------------------------------------------------------------------------

    def queue_ready(self, queued: QueuedInput, images: tuple[ImageBlock, ...]) -> None:
        """A queued input is whole: answer it, show it, and begin it if the thread is idle."""
        queued.input = TurnInput(queued.input.text, images)
        self.lane.queue.make_ready(queued)
        self._show_queue()
        self.dispatch()

    def queue_remove(self, queue_id: str) -> bool:
        """Take a waiting input out; whether it was there."""
        removed = self.lane.queue.remove(queue_id)
        if removed:
            self._show_queue()
            self.dispatch()
        return removed

    def queue_rows(self) -> QueueChanged:
        """Both lists as they are now."""
        return QueueChanged(
            self.thread.id,
            () if self.running is None else self.running.steering.texts(),
            tuple(QueueRow(one.id, one.input.text, one.attachments) for one in self.lane.queue.visible()),
        )

    def _show_queue(self) -> None:
        self.thread.publish(self.queue_rows())

    def _start_of(self, queued: QueuedInput) -> Start:
        def answer(outcome: Outcome) -> None:
            if isinstance(outcome, ThreadError) and outcome.code != "shuttingDown":
                self.thread.publish_also(
                    queued.connection,
                    InputDropped(
                        thread_id=self.thread.id,
                        queue_id=queued.id,
                        code=outcome.code,
                        message=f"A queued input was dropped: {outcome.message}",
                        client_message_id=queued.client_message_id,
                        data=outcome.data,
                    ),
                )

        return Start(
            thread_id=self.thread.id,
            input=queued.input,
            answer=answer,
            initiator=queued.connection,
            client_message_id=queued.client_message_id,
        )

    # --- what the thread itself begins -------------------------------------------------------------

    def send(self, given: TurnInput) -> None:
        """Begin a turn that no client asked for: a handler of ours, later an extension, sends an input.

        While a start is in its `input` handlers, the input takes the start's place; during a turn and
        its settlement it waits for the end, ahead of the queue. A start that was cancelled launches
        nothing, so what its handlers send is dropped; so is everything once the thread is closing.
        """
        current = self.lane.current
        if self.thread.closing or (current is not None and current.is_cancelled()):
            log.info("input dropped", extra={"thread_id": self.thread.id, "reason": "nothing may begin now"})
            return
        if isinstance(current, Start) and current.phase is Phase.INPUT:
            current.sent.append(given)
            return
        self.lane.deferred.append(Start(thread_id=self.thread.id, input=given, answer=self._log_refusal))
        self.dispatch()

    def _log_refusal(self, outcome: Outcome) -> None:
        if isinstance(outcome, ThreadError):
            log.warning("input refused", extra={"thread_id": self.thread.id, "reason": outcome.message})


def drop_waiting(lane: Lane, outcome: Cancelled | ThreadError, *, with_follower: bool = True) -> bool:
    """Answer what is admitted but no turn yet, and drop what waits; whether a queued input was dropped."""
    current = lane.current
    if current is not None and PHASES[current.phase].interrupt == "cancelled":
        current.resolve(outcome)
    if lane.follower is not None and with_follower:
        follower, lane.follower = lane.follower, None
        follower.resolve(outcome)
    return lane.queue.drop()


def check_admission(lane: Lane, work: Work, running: RunningTurn | None) -> bool:
    """Whether the work may take the admission now; False when it is to wait behind a compaction.

    Raises:
        ThreadError: `turnInProgress`.
    """
    if lane.current is None:
        return True
    if isinstance(work, Start) and isinstance(lane.current, Compact) and lane.follower is None:
        return False
    raise ThreadError(
        "turnInProgress",
        "The thread is busy with another turn; wait for its end, or interrupt it",
        {} if running is None else {"turnId": running.id},
    )
