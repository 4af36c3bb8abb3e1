"""One connection's half of the protocol, whatever carries its bytes.

Chunks go into `receive`, lines come out of `outbox`; what the core can answer by itself it does, and
everything else is returned as an action, in the order of arrival.

Source: app server, "Handshake", "Ownership, unloading, and shutdown"; app server notes, "Framing",
"Error object", "Exactly one response".
"""

from collections import deque
from collections.abc import Callable, Container
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from knightcode.app_server.core.framing import LineSplitter, LineTooLong
from knightcode.app_server.core.handshake import (
    STEPS,
    Phase,
    ServerInfo,
    decode_initialize,
    mode_of,
    opt_outs_of,
)
from knightcode.app_server.core.messages import UNREADABLE, Incoming, Malformed, parse_line
from knightcode.app_server.core.outbox import Outbox
from knightcode.app_server.core.pending import Call, PendingRequests
from knightcode.app_server.core.server_requests import OpenServerRequests, ServerAnswer
from knightcode_protocol.envelope import (
    Notification,
    Request,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from knightcode_protocol.errors import ErrorCode
from knightcode_protocol.handshake import Mode
from knightcode_protocol.limits import MAX_LINE_BYTES, MAX_PENDING_OUTPUT_BYTES

MAX_HELD_FAULTS: Final = 32
"""Transport faults told after the handshake; a client that never speaks the protocol gets no more."""

STOPPING: Final = "The server is shutting down; start it again and repeat the request"


class Accepted(Struct, frozen=True):
    """A request to carry out: the method is served, the params are still to be decoded."""

    call: Call
    params: Raw


class Broken(Struct, frozen=True):
    """A line whose handling failed, by a mistake of ours. Its request, if it is one, has been refused."""

    line_bytes: int
    error: Exception


Action = Accepted | ServerAnswer | Broken


def served_methods() -> Container[str]:
    """The method table; loaded when the first request after the handshake needs it, not before."""
    from knightcode_protocol.methods import METHODS

    return METHODS


class ConnectionCore:
    """Framing, handshake, requests both ways, and the output of one connection.

    Attributes:
        outbox: lines to write, whole and in order.
        mode: the mode the client asked for, else the default.
    """

    def __init__(
        self,
        server: ServerInfo,
        *,
        default_mode: Mode = "desktop",
        methods: Callable[[], Container[str]] = served_methods,
        max_line: int = MAX_LINE_BYTES,
        max_pending_output: int = MAX_PENDING_OUTPUT_BYTES,
    ) -> None:
        self.outbox = Outbox(max_pending_output)
        self.mode: Mode = default_mode
        self._server = server
        self._load_methods = methods
        self._methods: Container[str] | None = None
        self._max_line = max_line
        self._lines = LineSplitter(max_line)
        self._phase = Phase.NEW
        self._opt_outs: frozenset[str] = frozenset()
        self._held_faults: deque[bytes] = deque()
        self._requests = PendingRequests(self.outbox.post)
        self._asked = OpenServerRequests()
        self._shutting_down = False

    # --- input ----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Action]:
        """Handle a chunk of the client's bytes; the actions are to be started in order.

        Requests in the list count as accepted, also when shutdown begins before they are started.
        """
        return self._handle(self._lines.feed(data))

    def finish(self) -> list[Action]:
        """Handle a last line without a line end: no more bytes will come."""
        return self._handle(self._lines.finish())

    def _handle(self, lines: list[bytes | LineTooLong]) -> list[Action]:
        actions: list[Action] = []
        for line in lines:
            if isinstance(line, LineTooLong):
                self._too_long()
            elif (action := self._message(line)) is not None:
                actions.append(action)
        return actions

    def _message(self, line: bytes) -> Action | None:
        incoming = parse_line(line)
        try:
            return self._incoming(incoming)
        except Exception as error:  # one line's bad luck must not become that of the lines behind it
            if isinstance(incoming, Request):
                self._refuse(incoming.id, "internal", "The server failed to take the request in")
            return Broken(len(line), error)

    def _incoming(self, incoming: Incoming) -> Action | None:
        match incoming:
            case Request() as request:
                return self._request(request)
            case Response() as response:
                return self._asked.answered(response)
            case Notification(method=method):
                self._notification(method)
            case Malformed(id=None, text=text):
                self._fault(f"A line was ignored: {text}", {"reason": "invalidMessage"})
            case Malformed(id=Raw() as request_id, text=text):
                message = f"The request is malformed: {text}"
                self._refuse(request_id, "invalidParams", message, "invalidMessage")
        return None

    def _request(self, request: Request) -> Accepted | None:
        method = request.method
        if self._shutting_down:
            self._refuse(request.id, "shuttingDown", STOPPING)
        elif method == "initialize":
            self._initialize(request)
        elif self._phase is not Phase.READY:
            self._refuse(
                request.id,
                "notInitialized",
                f"{method} came before the handshake was complete; send initialize, then initialized",
            )
        elif method not in self._served():
            self._refuse(request.id, "methodNotFound", f"There is no method {method}")
        else:
            return Accepted(self._requests.open(bytes(request.id), method), request.params)
        return None

    def _served(self) -> Container[str]:
        if self._methods is None:
            self._methods = self._load_methods()
        return self._methods

    def _initialize(self, request: Request) -> None:
        step = STEPS.get((self._phase, "initialize"))
        if step is None:
            message = "initialize was answered before; open a new connection to begin again"
            self._refuse(request.id, "invalidParams", message, "alreadyInitialized")
            return
        try:
            params = decode_initialize(request.params)
        except UNREADABLE as error:
            self._refuse(request.id, "invalidParams", f"initialize: {error}")
            return
        self._phase = step
        self.mode = mode_of(params, self.mode)
        self._opt_outs = opt_outs_of(params)
        self.outbox.post(encode_result(request.id, self._server.result()))

    def _notification(self, method: str) -> None:
        step = STEPS.get((self._phase, method))
        if step is not Phase.READY:
            return
        self._phase = step
        while self._held_faults:
            self.publish("error", self._held_faults.popleft())

    # --- output ---------------------------------------------------------------------------------

    def publish(self, method: str, line: bytes) -> None:
        """Queue a notification, encoded as `line`, unless this client does not want or expect it."""
        if self._phase is Phase.READY and method not in self._opt_outs:
            self.outbox.post(line)

    def send_request(self, method: str, params: object) -> str:
        """Ask the client; the answer comes out of `receive` as a `ServerAnswer` with the id returned here."""
        request_id = self._asked.open(method)
        self.outbox.post(encode_request(request_id, method, params))
        return request_id

    def withdraw(self, request_id: str, *, thread_id: str) -> bool:
        """Take a question back and tell the client; False, and nothing sent, when it is over already."""
        if not self._asked.close(request_id):
            return False
        if not self._shutting_down:
            params = {"threadId": thread_id, "requestId": request_id}
            self.publish("serverRequest/cancelled", encode_notification("serverRequest/cancelled", params))
        return True

    def _refuse(self, request_id: Raw, code: ErrorCode, message: str, reason: str | None = None) -> None:
        data: Any = msgspec.UNSET if reason is None else {"reason": reason}
        self.outbox.post(encode_error(request_id, code, message, data))

    def _too_long(self) -> None:
        message = f"A line of more than {self._max_line} bytes was dropped"
        self._fault(message, {"reason": "lineTooLong", "limitBytes": self._max_line})

    def _fault(self, message: str, data: dict[str, object]) -> None:
        """Tell of something that no request stands for. Before the handshake nothing is sent: it is held."""
        params = {"code": "invalidParams", "message": message, "data": data}
        line = encode_notification("error", params)
        if self._phase is Phase.READY:
            self.publish("error", line)
        elif len(self._held_faults) < MAX_HELD_FAULTS:
            self._held_faults.append(line)

    # --- the end --------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """How many accepted requests wait for their answer."""
        return len(self._requests)

    def begin_shutdown(self) -> None:
        """Refuse every further request with `shuttingDown`; those accepted are still answered."""
        self._shutting_down = True

    def abandon_unanswered(self) -> int:
        """Answer every open request with `shuttingDown`, now, and drop later results; how many there were."""
        return self._requests.fail_all("shuttingDown", STOPPING)

    def close(self) -> None:
        """The client is gone: nothing is written or answered any more. What was accepted goes on."""
        self._requests.forget_all()
        self._asked.clear()
        self._held_faults.clear()
        self.outbox.close()
