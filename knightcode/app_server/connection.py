"""One initialized pipe, and all of them together.

A connection runs the core over whatever carries its bytes: it starts what the core accepts, in
order, and knows what the client was asked.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Framing", "Routing".
"""

import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

import attrs
import msgspec
import trio

from knightcode.app_server.core.connection import Accepted, Action, ConnectionCore, Ready
from knightcode.app_server.core.pending import Call
from knightcode.app_server.core.server_requests import ServerAnswer
from knightcode.app_server.wire.threads import notice_to_wire
from knightcode.failures import first_leaf
from knightcode.threads.asks import ApprovalAsk
from knightcode.threads.manager import ThreadManager
from knightcode.threads.notices import ConnectionId, Notice
from knightcode.threads.opening import Caller
from knightcode.threads.turn import ThreadError
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import NOTIFICATION_OF
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams
from knightcode_protocol.wire import Wire, present

log = logging.getLogger(__name__)

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
    ready: bool = attrs.field(default=False, init=False)
    _answers: dict[str, Callable[[object], None]] = attrs.field(factory=dict, init=False)

    def caller(self) -> Caller:
        """The connection as threads know it."""
        return Caller(self.id, self.core.mode, self.in_process)

    def receive(self, data: bytes) -> None:
        """Handle a chunk. Every request in it is admitted, in order, before this returns."""
        self._start_all(self.core.receive(data))

    def finish(self) -> None:
        """Handle a last line without its end."""
        self._start_all(self.core.finish())

    def _start_all(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Accepted):
                self._start(action)
            elif isinstance(action, Ready):
                self.ready = True
            else:
                self._answered(action)

    def _start(self, request: Accepted) -> None:
        """Run a request's synchronous part; what waits goes into a task."""
        call = request.call
        try:
            params = METHODS[call.method].decode_params(request.params)
            outcome = self.handlers[call.method](self, call, params)
        except msgspec.ValidationError as error:
            call.fail("invalidParams", f"{call.method}: {error}")
        except msgspec.DecodeError as error:
            call.fail("invalidParams", f"{call.method}: the params are not readable: {error}")
        except ThreadError as failure:
            fail(call, failure)
        except Exception:
            self._broke(call)
        else:
            if callable(outcome):
                self.nursery.start_soon(self._finish, call, outcome, name=call.method)
            elif outcome is not None:
                call.answer(outcome)

    async def _finish(self, call: Call, later: Later) -> None:
        try:
            try:
                result = await later()
            except* ThreadError as group:
                failure = first_leaf(group)
                assert isinstance(failure, ThreadError)
                fail(call, failure)
            except* Exception:
                self._broke(call)
            else:
                if result is not None:
                    call.answer(result)
        finally:
            # Only a cancelled request is still unanswered here, and only the shutdown cancels.
            call.fail("shuttingDown", "The server is shutting down; the request did not finish")

    def _broke(self, call: Call) -> None:
        log.exception("handler failed", extra={"method": call.method, "connection": self.id})
        call.fail("internal", f"{call.method} failed inside the server; its log has the details")

    # --- what the client is asked ----------------------------------------------------------------

    def ask(self, method: str, params: Wire, answered: Callable[[object], None]) -> str:
        """Send a server request; `answered` gets its result, None for an error response."""
        request_id = self.core.send_request(method, params)
        self._answers[request_id] = answered
        return request_id

    def withdraw(self, thread_id: str, request_id: str) -> None:
        """Take a request back; a later answer is ignored."""
        if self._answers.pop(request_id, None) is not None:
            self.core.withdraw(request_id, thread_id=thread_id)

    def _answered(self, answer: ServerAnswer) -> None:
        answered = self._answers.pop(answer.request_id, None)
        if answered is not None:
            answered(None if answer.result is None else msgspec.json.decode(answer.result))


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
