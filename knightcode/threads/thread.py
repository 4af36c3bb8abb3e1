"""One loaded thread: its state, and the task that supervises all of its work.

State changes are plain functions that cannot be cancelled half-way. The supervisor task holds the
nursery of everything that runs for the thread, and ends it: `unload` asks for that, `ended` says
that it is over.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start",
"Ownership, loading, unloading".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Concatenate, Literal, ParamSpec

import attrs
import trio

from knightcode.agent.calls import ABANDON_AFTER
from knightcode.agent.hooks import Blocked, Hooks, PendingCall, SessionShutdown
from knightcode.agent.tools.base import Tool
from knightcode.gates.approvals import ApprovalMode, Verdict, question_for
from knightcode.messages import AssistantMessage, ThinkingLevel
from knightcode.models.model import Model
from knightcode.sessions.clock import iso
from knightcode.sessions.entries import CompactionEntry, Entry, MessageEntry
from knightcode.sessions.log import SessionLog
from knightcode.threads.admission import Lane
from knightcode.threads.asks import ApprovalAsk, AskTable
from knightcode.threads.items import Turn
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
    ThreadWarning,
    Usage,
    UsageChanged,
    Warned,
)
from knightcode.threads.services import Services
from knightcode.threads.settings import APPROVAL_MODE
from knightcode.threads.subscribers import Subscribers
from knightcode.threads.turn import RunningTurn
from knightcode.threads.turns import Turns
from knightcode.threads.usage import UsageTotals

log = logging.getLogger(__name__)

UNLOAD_GRACE = ABANDON_AFTER + 1.0
"""Seconds that running work has to settle when its thread ends: a call that ignores its cancellation is
abandoned first, and its turn then ends in good order."""

SHUTDOWN_GRACE = 4.0
"""The same when the whole server stops, which has ten seconds in all."""

HANDLERS_GRACE = 4.0
"""Seconds that handlers of `session_shutdown` have after that, together."""

IDLE_UNLOAD_SECONDS = 600.0
"""How long a thread stays in memory without a subscriber and without work."""

Why = Literal["unload", "shutdown"]
P = ParamSpec("P")


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

    hooks: Hooks = attrs.field(factory=Hooks, init=False)
    tools: dict[str, Tool] = attrs.field(init=False)
    turns: Turns = attrs.field(init=False)
    subscribers: Subscribers = attrs.field(factory=Subscribers, init=False)
    asks: AskTable = attrs.field(init=False)
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    status: Status = attrs.field(factory=Idle, init=False)
    _broken: str | None = attrs.field(default=None, init=False)
    _closing: Why | None = attrs.field(default=None, init=False)
    _unload_asked: trio.Event = attrs.field(factory=trio.Event, init=False)
    _tasks: int = attrs.field(default=0, init=False)
    _quiet: trio.Event = attrs.field(factory=trio.Event, init=False)
    _grace: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _idle_timer: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.tools = {tool.name: tool for tool in self.services.tools}
        self.turns = Turns(self, self.lane)
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

    @property
    def turn(self) -> RunningTurn | None:
        """The turn that runs now."""
        return self.turns.running

    def running_turn(self) -> Turn | None:
        """A snapshot of the turn that runs now."""
        return None if self.turn is None else self.turn.live.snapshot()

    def publish(self, notice: Notice) -> None:
        """Tell the subscribers."""
        self.services.publisher.to(self.subscribers.all(), notice)

    def publish_also(self, connection: ConnectionId, notice: Notice) -> None:
        """Tell the subscribers, and a connection that need not be one of them."""
        self.services.publisher.to({*self.subscribers.all(), connection}, notice)

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

    def announce_load(self) -> None:
        """Tell everyone that the thread is in memory: idle, or active when a start made it load."""
        before = self.status
        self.update_status()
        if self.status == before:
            self.services.publisher.to_all(StatusChanged(self.id, self.status))

    def work_changed(self) -> None:
        """What is admitted, or waits, is another than before."""
        self.update_status()
        self._wind_idle_timer()

    def broken(self, message: str) -> None:
        """Something that the thread cannot work without is gone."""
        log.error("thread broken", extra={"thread_id": self.id, "reason": message})
        self._broken = message
        self.update_status()

    def mended(self) -> None:
        """The session file takes entries again: what could not be written before has gone with it."""
        self._broken = None

    def _set_status(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            self.services.publisher.to_all(StatusChanged(self.id, status))

    # --- what a turn does ------------------------------------------------------------------------

    def store_approval_mode(self) -> None:
        """The branch says which mode its turns ran in, but opening a thread leaves its file alone."""
        if not self.mode_is_stored:
            self.session.append_custom(APPROVAL_MODE, {"mode": self.approval_mode})
            self.mode_is_stored = True

    def appended(self, entry: Entry) -> None:
        """Account for an entry of the running turn."""
        before = self.usage_totals
        self.usage_totals = before.plus(entry)
        billed = isinstance(entry, CompactionEntry) or (
            isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage)
        )
        if self.turn is not None and billed:
            self.publish(UsageChanged(self.id, self.turn.id, self.usage()))

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
        ask = ApprovalAsk(self.id, self.turn.id, call.call_id, question, call.parent_id)
        verdict = await self.asks.approval(ask)
        return None if verdict.runs else Blocked(verdict.blocked_reason())

    def subscribe(self, connection: ConnectionId) -> None:
        """The connection follows the thread from now on, unless it left while it waited for that."""
        if self.services.asker.reaches(connection):
            self.subscribers.add(connection)
            self._wind_idle_timer()

    def connection_left(self, connection: ConnectionId) -> bool:
        """The connection unsubscribed or is gone; whether it followed this thread."""
        followed = self.subscribers.remove(connection)
        self.asks.connection_left(connection)
        self._wind_idle_timer()
        return followed

    # --- the supervisor --------------------------------------------------------------------------

    def unload(self, why: Why) -> None:
        """Ask for the end. Returns at once; `ended` says when it is over."""
        if self._closing is None:
            self._closing = why
            # Questions first: nobody answers any more, and the turn that asked ends next.
            self.asks.withdraw_all()
            self.turns.stop(shutdown=why == "shutdown")
            self.work_changed()
            self._unload_asked.set()
            self._check_quiet()
        elif why == "shutdown":  # it unloads already, and has less time for it now
            self._closing = why
            self._grace.deadline = min(self._grace.deadline, trio.current_time() + SHUTDOWN_GRACE)

    def spawn(
        self, run: Callable[Concatenate["Thread", P], Awaitable[None]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a task in the thread's nursery."""
        assert self._nursery is not None
        self._tasks += 1

        async def counted() -> None:
            try:
                await run(self, *args, **kwargs)
            finally:
                self._tasks -= 1
                self._check_quiet()

        self._nursery.start_soon(counted, name=f"{getattr(run, '__name__', 'task')} in {self.id}")

    def _check_quiet(self) -> None:
        if self.closing and not self._tasks:
            self._quiet.set()

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
                await self._until_unload()
                shutdown = self._closing == "shutdown"
                self._grace.deadline = trio.current_time() + (SHUTDOWN_GRACE if shutdown else UNLOAD_GRACE)
                with self._grace:
                    await self._quiet.wait()
                nursery.cancel_scope.cancel(reason="unload")
            if self.hooks.session_shutdown:
                with trio.move_on_after(HANDLERS_GRACE):
                    await self.hooks.session_shutdown.run(SessionShutdown("quit"))
        finally:
            self._close()

    async def _until_unload(self) -> None:
        """Until somebody asks for the end, or the thread has been idle for long enough."""
        while not self.closing:
            with trio.CancelScope() as self._idle_timer:
                self._wind_idle_timer()
                await self._unload_asked.wait()
            # Between the timer's end and this step somebody may have come after all.
            if self._idle_timer.cancelled_caught and self._is_idle():
                log.info("thread unloaded", extra={"thread_id": self.id, "reason": "idle"})
                self.unload("unload")

    def _is_idle(self) -> bool:
        return self.lane.free and not self.subscribers.all()

    def _wind_idle_timer(self) -> None:
        timer = self._idle_timer
        if not self._is_idle():
            timer.deadline = float("inf")
        elif timer.deadline == float("inf"):
            timer.deadline = trio.current_time() + IDLE_UNLOAD_SECONDS

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
