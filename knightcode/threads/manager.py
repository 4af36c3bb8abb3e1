"""All threads of a process: finding, loading once, starting, and ending them side by side.

Source: App Server, "Threads and turns", "Ownership, unloading, and shutdown".
"""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import trio

from knightcode.failures import first_leaf
from knightcode.messages import ImageBlock
from knightcode.sessions.listing import (
    ListingCost,
    listing_cost,
)
from knightcode.threads.admission import Lane
from knightcode.threads.images import read_images
from knightcode.threads.listing import Listing, ListPage
from knightcode.threads.notices import (
    Broken,
    ConnectionId,
    NotLoaded,
    Status,
    ThreadStarted,
)
from knightcode.threads.opening import Caller, NewThread, new_thread, open_thread
from knightcode.threads.phases import Phase
from knightcode.threads.queue import QueuedInput
from knightcode.threads.saved import SavedThread, find, read_saved, scan
from knightcode.threads.services import Services
from knightcode.threads.thread import Thread
from knightcode.threads.turn import (
    Cancelled,
    Start,
    SteerRequest,
    ThreadError,
    Work,
    shutting_down,
    turn_mismatch,
)
from knightcode.threads.turns import check_admission, drop_waiting

log = logging.getLogger(__name__)

CLOSE_ALL_GRACE = 8.0
"""Seconds for all threads to unload: each has four for its work and four for its handlers."""


@attrs.define(eq=False)
class _Load:
    """One load, shared by all who wait for it."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    failure: ThreadError | None = None


@attrs.define(eq=False)
class _Slot:
    """What the manager knows of one thread id.

    Attributes:
        ending: the thread as it was loaded before and now unloads. It is given nothing any more: what
            comes meanwhile is for the next load, which waits for its end.
    """

    lane: Lane = attrs.field(factory=Lane)
    thread: Thread | None = None
    load: _Load | None = None
    ending: Thread | None = None

    @property
    def needless(self) -> bool:
        """Nothing is left to know."""
        return self.thread is None and self.load is None and self.ending is None and self.lane.free


@attrs.define(eq=False)
class ThreadManager:
    """Owns every loaded thread. Made by `open_thread_manager`."""

    services: Services
    _nursery: trio.Nursery
    _slots: dict[str, _Slot] = attrs.field(factory=dict, init=False)
    _broken: dict[str, Broken] = attrs.field(factory=dict, init=False)
    _closing: bool = attrs.field(default=False, init=False)
    _listing: Listing = attrs.field(factory=Listing, init=False)

    # --- new and saved threads -------------------------------------------------------------------

    async def start_thread(self, wanted: NewThread, caller: Caller) -> Thread:
        """Make a thread. The caller subscribes and announces it, in one step with its answer.

        A request that was accepted before the server's stop began gets its thread, which then ends
        with the others.

        Raises:
            ThreadError: `invalidParams` for the directory or the model, `authRequired`.
        """
        thread = new_thread(self.services, wanted, caller)
        slot = self._slots.setdefault(thread.id, _Slot(thread.lane))
        await self._begin(slot, thread)
        return thread

    def announce(self, thread: Thread) -> None:
        """Tell everyone of a new thread."""
        self.services.publisher.to_all(ThreadStarted(thread.info()))

    async def load(self, thread_id: str, caller: Caller) -> Thread:
        """The thread, loaded if it was not. Loads are shared: one at a time for each thread.

        Raises:
            ThreadError: `threadNotFound`, `invalidParams`, `shuttingDown`, `internal`.
        """
        self._refuse_when_closing()
        slot = self._slot(thread_id)
        while slot.thread is None:
            if slot.load is None:
                slot.load = _Load()
                self._nursery.start_soon(self._run_load, thread_id, slot, slot.load, caller)
            load = slot.load
            await load.ended.wait()
            if load.failure is not None:
                raise ThreadError(load.failure.code, load.failure.message, load.failure.data)
            self._refuse_when_closing()
            slot = self._slot(thread_id)
        return slot.thread

    def loaded(self, thread_id: str) -> Thread | None:
        """The thread if it is in memory and not on its way out."""
        slot = self._slots.get(thread_id)
        return None if slot is None or slot.thread is None or slot.thread.closing else slot.thread

    def in_memory(self, thread_id: str) -> Thread | None:
        """The thread as long as it is in memory, on its way out as well: to be looked at, not used."""
        slot = self._slots.get(thread_id)
        return None if slot is None else slot.thread or slot.ending

    def counts(self) -> tuple[int, int]:
        """How many threads are in memory, and how many are being loaded."""
        slots = self._slots.values()
        return sum(slot.thread is not None for slot in slots), sum(slot.load is not None for slot in slots)

    async def read(self, thread_id: str) -> SavedThread:
        """A thread's history without loading it.

        Raises:
            ThreadError: `threadNotFound`.
        """
        thread = self.in_memory(thread_id)
        if thread is not None:
            await trio.lowlevel.checkpoint()
            return SavedThread(thread.info(), thread.session)
        return await read_saved(self.services, await find(self.services, thread_id), self.status_of)

    async def list_threads(
        self, *, cwd: str | None, archived: bool, cursor: str | None, limit: int
    ) -> ListPage:
        """A page of threads, most recently updated first.

        Raises:
            ThreadError: `invalidCursor`.
        """
        filters = (None if cwd is None else os.path.abspath(os.path.expanduser(cwd)), archived)
        if cursor is None:
            rows = [] if archived else await scan(self.services, filters[0], self._threads, self.status_of)
            return self._listing.first(rows, filters, limit)
        await trio.lowlevel.checkpoint()
        return self._listing.more(cursor, filters, limit)

    def listing_cost(self) -> ListingCost:
        """What listings have read from disk so far."""
        return listing_cost()

    # --- turns -----------------------------------------------------------------------------------

    def begin(self, work: Work, caller: Caller) -> None:
        """Admit work; its outcome goes to `work.answer`. Synchronous.

        Raises:
            ThreadError: `turnInProgress`, `shuttingDown`. Who wants to start a turn is subscribed all
                the same when the thread is loaded.
        """
        self._refuse_when_closing()
        slot = self._slot(work.thread_id)
        thread = slot.thread
        if thread is not None and isinstance(work, Start):
            thread.subscribe(caller.connection)
        if not check_admission(slot.lane, work, None if thread is None else thread.turn):
            slot.lane.follower = work
        elif thread is not None:
            thread.turns.admit(work)
        else:
            slot.lane.current = work
            work.enter(Phase.LOADING)
            self._nursery.start_soon(self._load_and_begin, slot, work, caller)

    def interrupt(self, thread_id: str, turn_id: str | None) -> bool:
        """Stop what the thread is doing. Synchronous. False when the thread is not in memory.

        Raises:
            ThreadError: `turnMismatch`.
        """
        slot = self._slots.get(thread_id)
        if slot is None:
            return False
        ending = slot.ending or slot.thread
        if (
            turn_id is not None
            and ending is not None
            and ending.turn is not None
            and ending.turn.id == turn_id
        ):
            ending.turns.interrupt(turn_id)
        elif slot.thread is not None:
            slot.thread.turns.interrupt(turn_id)
        elif turn_id is not None:
            if slot.lane.free:
                return False
            raise turn_mismatch("turn/interrupt", turn_id, None)
        else:
            had_work = not slot.lane.free
            drop_waiting(slot.lane, Cancelled(thread_id))
            return had_work
        return True

    def steer(self, thread_id: str, steer: SteerRequest) -> bool:
        """Hand an input to the running turn. Synchronous. False when the thread is not in memory.

        Raises:
            ThreadError: `turnMismatch`, `invalidParams` `steerCancelled`, `shuttingDown`.
        """
        self._refuse_when_closing()
        slot = self._slots.get(thread_id)
        if slot is None or slot.thread is None:
            return False
        slot.thread.turns.steer(steer)
        return True

    def queue_input(
        self, thread_id: str, queued: QueuedInput, caller: Caller
    ) -> Callable[[], Awaitable[None]] | None:
        """Give an input its place in the thread's queue. Synchronous; what is returned, if anything has
        to be waited for, completes it.

        Raises:
            ThreadError: `invalidParams` when the queue is full, `shuttingDown`.
        """
        self._refuse_when_closing()
        slot = self._slot(thread_id)
        lane = slot.lane
        lane.queue.add(queued)
        if slot.thread is not None:
            if not queued.input.images:
                slot.thread.turns.queue_ready(queued, ())
                return None
            slot.thread.work_changed()

        async def complete() -> None:
            try:
                images: list[ImageBlock] = []
                with queued.waits.stops():
                    images = await read_images(queued.input.images)
                if queued.ready:  # an interrupt has answered and dropped it
                    return
                await self.load(thread_id, caller)
                thread = slot.thread
                if thread is not None and queued in lane.queue:  # else it was answered and dropped meanwhile
                    thread.turns.queue_ready(queued, tuple(images))
            finally:
                if not queued.ready:
                    lane.queue.withdraw(queued)
                    self._lane_changed(thread_id, slot)

        return complete

    def queue_remove(self, thread_id: str, queue_id: str) -> bool:
        """Take a waiting input out; whether it was there. Synchronous."""
        thread = self.loaded(thread_id)
        return thread is not None and thread.turns.queue_remove(queue_id)

    @contextmanager
    def hold(self, thread_id: str, what: str) -> Iterator[None]:
        """Keep starts of a thread, loaded or not, from going on while the block runs."""
        slot = self._slot(thread_id)
        try:
            with slot.lane.hold(what):
                if slot.thread is not None:
                    slot.thread.work_changed()
                yield
        finally:
            self._lane_changed(thread_id, slot)

    async def check_exists(self, thread_id: str) -> None:
        """Raises ThreadError `threadNotFound` unless the thread is in memory or in a file."""
        if self.in_memory(thread_id) is None:
            await find(self.services, thread_id)
        else:
            await trio.lowlevel.checkpoint()

    # --- connections and the end -----------------------------------------------------------------

    def unsubscribe(self, thread_id: str, connection: ConnectionId) -> bool:
        """The connection does not follow the thread any more, nor once it is loaded for a start of it.

        Synchronous; whether there was something to withdraw.
        """
        slot = self._slots.get(thread_id)
        if slot is None:
            return False
        followed = [one.connection_left(connection) for one in (slot.thread, slot.ending) if one is not None]
        if slot.thread is None:
            for work in (slot.lane.current, slot.lane.follower):
                if isinstance(work, Start) and work.initiator == connection and work.subscribes:
                    work.subscribes = False
                    followed.append(True)
        return any(followed)

    def connection_left(self, connection: ConnectionId) -> None:
        """The connection is gone: it follows nothing any more. What it started goes on."""
        for thread in self._threads():
            thread.connection_left(connection)

    def refuse_new_work(self) -> None:
        """Begin the end: nothing new starts, and every thread begins to unload at the same time."""
        self._closing = True
        for slot in tuple(self._slots.values()):
            if slot.thread is not None:
                slot.thread.unload("shutdown")
            else:
                drop_waiting(slot.lane, shutting_down())

    async def close_all(self) -> None:
        """Unload every thread, side by side; returns when the last one has ended."""
        self.refuse_new_work()
        await trio.lowlevel.checkpoint()
        while threads := self._threads():
            threads[0].unload("shutdown")
            await threads[0].ended.wait()
            await trio.lowlevel.checkpoint()

    # --- inside ----------------------------------------------------------------------------------

    def _slot(self, thread_id: str) -> _Slot:
        """Where new requests for a thread go; never to one that is on its way out."""
        slot = self._slots.get(thread_id)
        if slot is None or (slot.thread is not None and slot.thread.closing):
            ending = None if slot is None else slot.thread
            slot = self._slots[thread_id] = _Slot(ending=ending)
        return slot

    def _threads(self) -> list[Thread]:
        """Every thread in memory, those on their way out included."""
        found = [thread for slot in self._slots.values() for thread in (slot.thread, slot.ending)]
        return [thread for thread in found if thread is not None]

    def _lane_changed(self, thread_id: str, slot: _Slot) -> None:
        """Something that waited is gone: others may go on, or nothing is left to know."""
        if slot.thread is not None:
            slot.thread.turns.dispatch()
        self._forget(thread_id, slot)

    def _forget(self, thread_id: str, slot: _Slot) -> None:
        if slot.needless and self._slots.get(thread_id) is slot:
            del self._slots[thread_id]

    async def _begin(self, slot: _Slot, thread: Thread) -> None:
        try:
            await self._nursery.start(self._supervise, slot, thread)
        finally:
            if slot.thread is not thread:  # it never began, so nobody else closes its file
                thread.session.close()

    async def _supervise(
        self, slot: _Slot, thread: Thread, *, task_status: trio.TaskStatus[Thread] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await thread.run(lambda: self._supervised(slot, thread), task_status=task_status)
        except* Exception as group:
            # A mistake of ours in one thread must not take the others with it.
            log.error("thread ended by a fault", extra={"thread_id": thread.id}, exc_info=first_leaf(group))
            self._broken[thread.id] = Broken("The thread ended by a fault in the server; load it again")
        finally:
            slot.thread = None
            if isinstance(thread.status, Broken):
                self._broken[thread.id] = thread.status
            follower = self._slots.get(thread.id)
            if follower is not None and follower.ending is thread:
                follower.ending = None
                self._forget(thread.id, follower)
            self._forget(thread.id, slot)

    def _supervised(self, slot: _Slot, thread: Thread) -> None:
        """From this step on the thread is found, and can be given work."""
        slot.thread = thread
        if slot.load is not None:
            self._broken.pop(thread.id, None)
            thread.announce_load()
        if self._closing:
            thread.unload("shutdown")

    async def _run_load(self, thread_id: str, slot: _Slot, load: _Load, caller: Caller) -> None:
        try:
            if slot.ending is not None:
                await slot.ending.ended.wait()
            thread = await open_thread(self.services, await find(self.services, thread_id), slot.lane, caller)
            if self._closing:
                thread.session.close()
                load.failure = shutting_down()
                return
            await self._begin(slot, thread)
        except ThreadError as failure:
            load.failure = failure
        except Exception:
            log.exception("load failed", extra={"thread_id": thread_id})
            load.failure = ThreadError(
                "internal", "The thread could not be loaded; the server's log has the details"
            )
        finally:
            slot.load = None
            load.ended.set()
            self._forget(thread_id, slot)

    async def _load_and_begin(self, slot: _Slot, work: Work, caller: Caller) -> None:
        try:
            await self.load(work.thread_id, caller)
        except ThreadError as failure:
            lane = slot.lane
            lane.current = None
            work.resolve(failure)
            if lane.follower is not None:  # a load that fails for one fails for all of them
                follower, lane.follower = lane.follower, None
                follower.resolve(failure)
            if slot.thread is not None:
                slot.thread.turns.dispatch()
            self._forget(work.thread_id, slot)
            return
        thread = slot.thread
        if thread is None or thread.closing:  # it came and went while this waited; the work was answered
            slot.lane.current = None
            work.resolve(Cancelled(work.thread_id))
            return
        for one in (work, slot.lane.follower):
            if isinstance(one, Start) and one.initiator is not None and one.subscribes:
                thread.subscribe(one.initiator)
        thread.turns.admit(work)

    def status_of(self, thread_id: str) -> Status:
        """A thread's status, whether it is in memory or not."""
        thread = self.in_memory(thread_id)
        if thread is not None:
            return thread.status
        return self._broken.get(thread_id, NotLoaded())

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise shutting_down()


@asynccontextmanager
async def open_thread_manager(
    make_services: Callable[[trio.Nursery], Services],
) -> AsyncIterator[ThreadManager]:
    """Threads that live as long as the block. On exit all of them are unloaded, side by side.

    `make_services` is given the nursery of tool calls. It lies outside the threads' nursery, so that
    a call which ignores its cancellation keeps no thread from ending; the process's hard exit is
    what ends such a call.
    """
    async with trio.open_nursery() as calls, trio.open_nursery() as threads:
        manager = ThreadManager(make_services(calls), threads)
        try:
            yield manager
        finally:
            manager.refuse_new_work()
            # Every thread bounds its own unloading, so this ends; the bound here is for mistakes.
            with trio.move_on_after(CLOSE_ALL_GRACE, shield=True):
                await manager.close_all()
            threads.cancel_scope.cancel(reason="shutdown")
            calls.cancel_scope.cancel(reason="shutdown")
