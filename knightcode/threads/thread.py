"""One loaded thread: its state, and the task that supervises all of its work.

State changes are plain functions that cannot be cancelled half-way. The supervisor task holds the
nursery of everything that runs for the thread, and ends it: `unload` asks for that, `ended` says
that it is over.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start",
"Ownership, loading, unloading".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Literal

import attrs
import trio

from knightcode.agent.calls import ABANDON_AFTER
from knightcode.agent.hooks import Blocked, Hooks, PendingCall
from knightcode.gates.approvals import ApprovalMode, Verdict, question_for
from knightcode.messages import AssistantMessage, ThinkingLevel
from knightcode.models.model import Model
from knightcode.sessions.clock import iso, parse_iso
from knightcode.sessions.entries import Entry, MessageEntry
from knightcode.sessions.entries import TurnError as StoredTurnError
from knightcode.sessions.errors import SessionFileError
from knightcode.sessions.log import SessionLog
from knightcode.threads.asks import ApprovalAsk, AskTable
from knightcode.threads.items import EndedStatus, Turn, TurnError
from knightcode.threads.live import LiveTurn
from knightcode.threads.notices import (
    Active,
    Broken,
    ConnectionId,
    Idle,
    Notice,
    NotLoaded,
    SettingsChanged,
    Status,
    StatusChanged,
    ThreadDeleted,
    ThreadInfo,
    ThreadTurnCompleted,
    ThreadWarning,
    TurnCompleted,
    TurnStarted,
    Usage,
    UsageChanged,
    Warned,
)
from knightcode.threads.services import Services
from knightcode.threads.settings import APPROVAL_MODE
from knightcode.threads.subscribers import Subscribers
from knightcode.threads.turn import Cancelled, RunningTurn, Start, Started, ThreadError, TurnId
from knightcode.threads.usage import UsageTotals

log = logging.getLogger(__name__)

UNLOAD_GRACE = ABANDON_AFTER + 1.0
"""Seconds that running work has to settle when its thread ends: a call that ignores its cancellation is
abandoned first, and its turn then ends in good order."""

ERROR_LIMIT = 2_000
"""Characters of a turn's error in summaries; App Server, "Threads and turns"."""

Why = Literal["unload", "shutdown"]


@attrs.define(eq=False)
class Lane:
    """The one admission of a thread: it exists while the thread is still being loaded."""

    current: Start | None = None


@attrs.define(eq=False)
class Thread:
    """A conversation in memory. Made by the manager, ended by `unload`."""

    session: SessionLog
    services: Services
    lane: Lane
    connection_mode: Literal["desktop", "terminal"]
    model: Model | None
    thinking_level: ThinkingLevel
    approval_mode: ApprovalMode
    mode_is_stored: bool
    warnings: tuple[ThreadWarning, ...] = ()
    forked_from_id: str | None = None
    usage_totals: UsageTotals = attrs.field(factory=UsageTotals)

    turn: RunningTurn | None = attrs.field(default=None, init=False)
    hooks: Hooks = attrs.field(factory=Hooks, init=False)
    subscribers: Subscribers = attrs.field(factory=Subscribers, init=False)
    asks: AskTable = attrs.field(init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    status: Status = attrs.field(factory=Idle, init=False)
    _broken: str | None = attrs.field(default=None, init=False)
    _closing: Why | None = attrs.field(default=None, init=False)
    _unload_asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    _quiet: trio.Event = attrs.field(factory=trio.Event, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.asks = AskTable(self.subscribers, self.services.asker, self.update_status)
        self.hooks.tool_call.add(self._gate, last=True)

    # --- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self.session.id

    @property
    def closing(self) -> bool:
        """Unloading has begun; nothing new may start."""
        return self._closing is not None

    def info(self) -> ThreadInfo:
        """The thread as clients see it."""
        return ThreadInfo(
            id=self.id,
            cwd=self.session.cwd,
            name=self.session.title,
            status=self.status,
            created_at=self.session.created_at,
            updated_at=iso(self.session.updated_at_ms),
            approval_mode=self.approval_mode,
            thinking_level=self.thinking_level,
            model=self.model,
            forked_from_id=self.forked_from_id,
            session_file=None if self.session.path is None else str(self.session.path),
            mode=self.connection_mode,
        )

    def usage(self) -> Usage:
        """Cumulative usage, all branches included."""
        return self.usage_totals.usage(self.model)

    def running_turn(self) -> Turn | None:
        """A snapshot of the turn that runs now."""
        return None if self.turn is None else self.turn.live.snapshot()

    def publish(self, notice: Notice) -> None:
        """Tell the subscribers."""
        self.services.publisher.to(self.subscribers.all(), notice)

    def warn(self, warning: ThreadWarning) -> None:
        """Tell the subscribers, once in a load; who resumes later reads it in the result."""
        if warning not in self.warnings:
            self.warnings = (*self.warnings, warning)
            self.publish(Warned(self.id, warning))

    # --- settings --------------------------------------------------------------------------------

    def change_settings(
        self,
        *,
        model: Model | None = None,
        thinking_level: ThinkingLevel | None = None,
        approval_mode: ApprovalMode | None = None,
    ) -> None:
        """Apply checked settings, in this order. They hold from the next request and the next gate on."""
        before = (self.model, self.thinking_level, self.approval_mode)
        try:
            # Each is stored before it holds, so a full disk changes nothing that the file does not say.
            if model is not None and model != self.model:
                self.session.append_model_change(model.provider, model.id)
                self.model = model
            level = self.thinking_level if thinking_level is None else thinking_level
            if self.model is not None:
                level = self.model.clamp(level)
            if level != self.thinking_level:
                self.session.append_thinking_level_change(level)
                self.thinking_level = level
            if approval_mode is not None and approval_mode != self.approval_mode:
                self.session.append_custom(APPROVAL_MODE, {"mode": approval_mode})
                self.approval_mode, self.mode_is_stored = approval_mode, True
        finally:
            if before != (self.model, self.thinking_level, self.approval_mode):
                self.publish(SettingsChanged(self.id, self.model, self.thinking_level, self.approval_mode))

    # --- status ----------------------------------------------------------------------------------

    def update_status(self) -> None:
        """Derive the status from what is going on, and broadcast it if it changed."""
        waiting = self.asks.waiting_on()
        if self._broken is not None:
            self._set_status(Broken(self._broken))
        elif self.lane.current is not None or waiting:
            self._set_status(Active(waiting))
        else:
            self._set_status(Idle())

    def _set_status(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            self.services.publisher.to_all(StatusChanged(self.id, status))

    # --- turns -----------------------------------------------------------------------------------

    def accept(self, start: Start) -> RunningTurn:
        """The one step in which a start becomes a turn: marker, answer, `turn/started`.

        Raises:
            SessionWriteError: the marker could not be stored; nothing was answered.
        """
        self._store_approval_mode()
        marker = self.session.append_turn_start()
        live = LiveTurn(
            id=marker.id,
            thread_id=self.id,
            cwd=self.session.cwd,
            started_at_ms=parse_iso(marker.timestamp) or 0,
            publish=self.publish,
            now_ms=self.services.now_ms,
            client_message_id=start.client_message_id,
        )
        turn = self.turn = RunningTurn(TurnId(marker.id), live)
        if start.initiator is not None:
            self.subscribers.initiated(start.initiator)
        start.resolve(Started(self.id))
        self.publish(TurnStarted(live.turn("inProgress"), start.request_id))
        return turn

    def settle(self, turn: RunningTurn, status: EndedStatus, error: TurnError | None) -> None:
        """The one step in which a turn ends: open items, end marker, `turn/completed`."""
        self.turn = None
        turn.live.close()
        completed_at: int | None = None
        try:
            stored = None if error is None else StoredTurnError(message=error.message, kind=error.kind)
            marker = self.session.append_turn_end(turn.id, status, stored)
            completed_at = parse_iso(marker.timestamp)
            self._broken = None  # what could not be written before has gone with it
        except SessionFileError as failure:
            self.broken(str(failure))
        if error is not None and len(error.message) > ERROR_LIMIT:
            error = TurnError(error.message[:ERROR_LIMIT], error.kind)
        summary = turn.live.turn(status, completed_at_ms=completed_at, error=error)
        self.publish(TurnCompleted(summary))
        self.services.publisher.to_all(ThreadTurnCompleted(summary))
        turn.ended.set()

    def release(self, start: Start) -> None:
        """The start's work is over: the next one may come."""
        if self.lane.current is start:
            self.lane.current = None
            self.update_status()
            if self.closing:
                self._quiet.set()

    def interrupt(self, turn_id: str | None) -> None:
        """Stop what runs. Returns at once.

        Raises:
            ThreadError: `turnMismatch` when `turn_id` is not the running turn; nothing changes.
        """
        running = self.turn
        if turn_id is not None and (running is None or running.id != turn_id):
            raise turn_mismatch("turn/interrupt", turn_id, running)
        if running is not None:
            running.stop("interrupt")
            self.asks.withdraw_all()
        elif self.lane.current is not None:
            self.lane.current.resolve(Cancelled(self.id))

    def appended(self, entry: Entry) -> None:
        """Account for an entry of the running turn."""
        before = self.usage_totals
        self.usage_totals = before.plus(entry)
        if (
            self.turn is not None
            and isinstance(entry, MessageEntry)
            and isinstance(entry.message, AssistantMessage)
        ):
            self.publish(UsageChanged(self.id, self.turn.id, self.usage()))

    def broken(self, message: str) -> None:
        """Something that the thread cannot work without is gone."""
        log.error("thread broken", extra={"thread_id": self.id, "reason": message})
        self._broken = message
        self.update_status()

    # --- asking ----------------------------------------------------------------------------------

    async def _gate(self, call: PendingCall | Blocked) -> PendingCall | Blocked | None:
        """The approval gate, last of all `tool_call` handlers."""
        if isinstance(call, Blocked):
            return None
        question = question_for(self.approval_mode, call.tool, call.arguments)
        if question is None:
            return None
        if self.turn is None or self.turn.interrupted:
            # Asks were withdrawn when the turn was interrupted; one that opens later would wait for nobody.
            return Blocked(Verdict("cancel").blocked_reason())
        verdict = await self.asks.approval(ApprovalAsk(self.id, self.turn.id, call.call_id, question))
        return None if verdict.runs else Blocked(verdict.blocked_reason())

    def subscribe(self, connection: ConnectionId) -> None:
        """The connection follows the thread from now on, unless it left while it waited for that."""
        if self.services.asker.reaches(connection):
            self.subscribers.add(connection)

    def connection_left(self, connection: ConnectionId) -> bool:
        """The connection unsubscribed or is gone; whether it followed this thread."""
        followed = self.subscribers.remove(connection)
        self.asks.connection_left(connection)
        return followed

    # --- the supervisor --------------------------------------------------------------------------

    def unload(self, why: Why) -> None:
        """Ask for the end. Returns at once; `ended` says when it is over."""
        if self._closing is None:
            self._closing = why
            self._stop_work(why)
            self._unload_asked.set()

    def spawn(self, start: Start, run: Callable[["Thread", Start], Awaitable[None]]) -> None:
        """Run a start in the thread's nursery."""
        assert self._nursery is not None
        self._nursery.start_soon(run, self, start, name=f"start in {self.id}")

    async def run(
        self,
        ready: Callable[[], None],
        *,
        task_status: trio.TaskStatus["Thread"] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Supervise until `unload`; everything that runs for the thread has ended when this returns.

        `ready` is called in the step from which on work can be spawned.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                ready()
                task_status.started(self)
                await self._unload_asked.wait()
                with trio.move_on_after(UNLOAD_GRACE):
                    await self._quiet.wait()
                nursery.cancel_scope.cancel(reason="unload")
        finally:
            self._close()

    def _stop_work(self, why: Why) -> None:
        start = self.lane.current
        if self.turn is not None:
            self.turn.stop(why)
        elif start is not None:
            start.resolve(ThreadError("shuttingDown", "The thread is being closed; nothing was started"))
        self.asks.withdraw_all()
        if start is None:
            self._quiet.set()

    def _close(self) -> None:
        saved = self.session.path is not None
        try:
            self.session.close()
            if not isinstance(self.status, Broken):
                self._set_status(NotLoaded())
            if not saved:
                self.services.publisher.to_all(ThreadDeleted(self.id))
            self.subscribers.clear()
        finally:
            self.ended.set()

    def _store_approval_mode(self) -> None:
        """The branch says which mode its turns ran in, but opening a thread leaves its file alone."""
        if not self.mode_is_stored:
            self.session.append_custom(APPROVAL_MODE, {"mode": self.approval_mode})
            self.mode_is_stored = True


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
