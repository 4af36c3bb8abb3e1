"""One initialized pipe, and all of them together.

A connection runs the core over whatever carries its bytes: it starts what the core accepts, in
order, and knows what the client was asked.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Framing", "Routing".
"""

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping

import attrs
import msgspec
import trio

from knightcode.app_server.core.connection import Accepted, Action, ConnectionCore
from knightcode.app_server.core.messages import UNREADABLE
from knightcode.app_server.core.pending import Call
from knightcode.app_server.core.server_requests import ServerAnswer
from knightcode.app_server.wire.threads import notice_to_wire
from knightcode.failures import first_leaf
from knightcode.threads.asks import ApprovalAsk
from knightcode.threads.manager import ThreadManager
from knightcode.threads.notices import ConnectionId, Notice
from knightcode.threads.opening import Caller
from knightcode.threads.turn import ThreadError
from knightcode_protocol.limits import MAX_PENDING_OUTPUT_BYTES
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import NOTIFICATION_OF
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams
from knightcode_protocol.wire import Wire, present

log = logging.getLogger(__name__)

PAUSE_BYTES = MAX_PENDING_OUTPUT_BYTES // 4
"""With more output than this waiting, requests of `WEIGHTY` methods wait too: a burst of them must not
cost the connection. Far above what a client leaves unread for a moment, far below what aborts it."""

WEIGHTY = frozenset({"model/list", "thread/list", "thread/read", "thread/resume"})
"""Methods with large answers, which change nothing. All others start at once and in their order."""

HELD_REQUESTS = 1_000
"""With more requests than this held, nothing further is read."""

APPROVAL = "item/toolCall/requestApproval"

Later = Callable[[], Awaitable[Wire | None]]
"""The part of a handler that waits: run in a task of the request; what it returns is the answer."""


@attrs.define(eq=False)
class Connection:
    """One client. Its requests are tasks of `nursery`, which outlives the reading."""

    id: ConnectionId
    core: ConnectionCore
    manager: ThreadManager
    handlers: Mapping[str, "Handler"]
    nursery: trio.Nursery
    in_process: bool = False
    _held: deque[Accepted] = attrs.field(factory=deque, init=False)
    _room: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)
    _answers: dict[str, Callable[[object], None]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.core.outbox.taken = self._output_taken

    def caller(self) -> Caller:
        """The connection as threads know it."""
        return Caller(self.id, self.core.mode, self.in_process)

    def receive(self, data: bytes) -> None:
        """Handle a chunk. Every request in it is admitted, in order, but for those of `WEIGHTY` methods
        while much output waits: they are held, in their order.

        Raises nothing, whatever the client sends: who reads for one client reads for the process.
        """
        for action in self.core.receive(data):
            self._take(action)

    async def receive_at_pace(self, data: bytes) -> None:
        """Handle a chunk, and wait while too many requests are held."""
        self.receive(data)
        while len(self._held) > HELD_REQUESTS:
            await self._room.park()

    def finish(self) -> None:
        """The input has ended: handle a last line without its end, and everything that is held."""
        for action in self.core.finish():
            self._take(action)
        self.start_all()

    def start_all(self) -> None:
        """Start everything that is held, whatever waits to be read: nothing more will come."""
        while self._held:
            self._start(self._held.popleft())
        self._room.unpark_all()

    async def room(self) -> None:
        """Wait while much output waits to be read. What is said meanwhile is said all the same."""
        while self.is_full():
            await self._room.park()

    def is_full(self) -> bool:
        """Much output waits to be read."""
        outbox = self.core.outbox
        return outbox.pending_bytes > PAUSE_BYTES and not outbox.closed

    def _output_taken(self) -> None:
        while self._held and not self.is_full():
            self._start(self._held.popleft())
        if self._room and not self.is_full():
            self._room.unpark_all()

    def _take(self, action: Action) -> None:
        if isinstance(action, Accepted) and action.call.method in WEIGHTY and (self._held or self.is_full()):
            self._held.append(action)
        else:
            self._begin(action)

    def _begin(self, action: Action) -> None:
        if isinstance(action, Accepted):
            self._start(action)
        elif isinstance(action, ServerAnswer):
            self._answered(action)
        else:
            log.error(
                "line failed",
                extra={"connection": self.id, "bytes": action.line_bytes},
                exc_info=action.error,
            )

    def _start(self, request: Accepted) -> None:
        """Run a request's synchronous part; what waits goes into a task."""
        call = request.call
        try:
            params = METHODS[call.method].decode_params(request.params)
        except UNREADABLE as error:
            call.fail("invalidParams", f"{call.method}: {error}")
            return
        try:
            outcome = self.handlers[call.method](self, call, params)
            if callable(outcome):
                self.nursery.start_soon(self._finish, call, outcome, name=call.method)
            elif outcome is not None:
                call.answer(outcome)
        except ThreadError as failure:
            fail(call, failure)
        except Exception:
            self._broke(call)

    async def _finish(self, call: Call, later: Later) -> None:
        try:
            try:
                result = await later()
                if result is not None:
                    if call.method in WEIGHTY:
                        await self.room()
                    call.answer(result)
            except* ThreadError as group:
                failure = first_leaf(group)
                assert isinstance(failure, ThreadError)
                fail(call, failure)
            except* Exception:
                self._broke(call)
        finally:
            # Only a cancelled request is still unanswered here, and only the shutdown cancels.
            call.fail("shuttingDown", "The server is shutting down; the request did not finish")

    def _broke(self, call: Call) -> None:
        log.exception("handler failed", extra={"method": call.method, "connection": self.id})
        call.fail("internal", f"{call.method} failed inside the server; its log has the details")

    # --- what the client is asked ----------------------------------------------------------------

    def ask(self, method: str, params: Wire, answered: Callable[[object], None]) -> str:
        """Send a server request; `answered` gets its result, None for an error response.

        A result that cannot be read counts as an error response.
        """
        request_id = self.core.send_request(method, params)
        self._answers[request_id] = answered
        return request_id

    def withdraw(self, thread_id: str, request_id: str) -> None:
        """Take a request back; a later answer is ignored."""
        if self._answers.pop(request_id, None) is not None:
            self.core.withdraw(request_id, thread_id=thread_id)

    def _answered(self, answer: ServerAnswer) -> None:
        answered = self._answers.pop(answer.request_id, None)
        if answered is None:
            return
        try:
            answered(self._result_of(answer))
        except Exception:
            log.exception("answer failed", extra={"method": answer.method, "connection": self.id})

    def _result_of(self, answer: ServerAnswer) -> object:
        if answer.result is None:
            return None
        try:
            return msgspec.json.decode(answer.result)
        except UNREADABLE as error:
            log.warning(
                "unreadable answer",
                extra={"method": answer.method, "connection": self.id, "reason": str(error)},
            )
            return None


Handler = Callable[[Connection, Call, "object"], Wire | Later | None]
"""The synchronous part of a method. It returns the answer, or what waits for it, or None when it has
taken the call and answers itself."""


def fail(call: Call, failure: ThreadError) -> None:
    """Answer a call with a refusal of the domain."""
    call.fail(failure.code, failure.message, failure.data or msgspec.UNSET)  # type: ignore[arg-type]


@attrs.define(eq=False)
class Connections:
    """Every connection of the process: publishes notices to them and puts questions to one."""

    _open: dict[ConnectionId, Connection] = attrs.field(factory=dict, init=False)
    _ids: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1), init=False)

    def new_id(self) -> ConnectionId:
        """An id that no connection had before."""
        return ConnectionId(next(self._ids))

    def add(self, connection: Connection) -> None:
        """From now on it is reached; notices still wait for its handshake."""
        self._open[connection.id] = connection

    def remove(self, connection: Connection) -> None:
        """It is gone."""
        self._open.pop(connection.id, None)

    def all(self) -> list[Connection]:
        """In the order of their opening."""
        return list(self._open.values())

    # --- Publisher -------------------------------------------------------------------------------

    def to_all(self, notice: Notice) -> None:
        self.to(self._open.keys(), notice)

    def to(self, connections: Collection[ConnectionId], notice: Notice) -> None:
        """Encoded once, whatever the number of receivers."""
        if not connections:
            return
        params = notice_to_wire(notice)
        row = NOTIFICATION_OF[type(params)]
        line = row.line(params)
        for connection_id in tuple(connections):
            connection = self._open.get(connection_id)
            if connection is not None:
                connection.core.publish(row.name, line)

    # --- Asker -----------------------------------------------------------------------------------

    def ask(self, connection: ConnectionId, ask: ApprovalAsk, answered: Callable[[object], None]) -> str:
        question = ask.question
        return self._open[connection].ask(
            APPROVAL,
            ToolCallRequestApprovalParams(
                thread_id=ask.thread_id,
                turn_id=ask.turn_id,
                item_id=ask.item_id,
                parent_item_id=present(ask.parent_item_id),
                tool=question.tool,
                input=question.arguments,
                decisions=question.decisions,
                reason=present(question.reason),
            ),
            answered,
        )

    def reaches(self, connection: ConnectionId) -> bool:
        return connection in self._open

    def withdraw(self, connection: ConnectionId, thread_id: str, request_id: str) -> None:
        if connection in self._open:
            self._open[connection].withdraw(thread_id, request_id)
