"""One connection to an app server, from the client's side.

Requests are typed by the protocol's structs. Notifications reach handlers in the order in which they
were sent; a handler returns at once. Server requests are answered by coroutine functions, each in a
task of its own.

Source: App Server, "Limits and client reference"; App Server notes, "In-process client and host".
"""

import functools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import attrs
import msgspec
import trio

from knightcode.failures import first_leaf
from knightcode_protocol import params, results
from knightcode_protocol.envelope import encode_error, encode_notification, encode_request, encode_result
from knightcode_protocol.handshake import (
    Capabilities,
    ClientInfo,
    InitializedParams,
    InitializeParams,
    InitializeResult,
    Mode,
)
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import NOTIFICATIONS, ServerRequestCancelled
from knightcode_protocol.server_requests import SERVER_REQUESTS
from knightcode_protocol.wire import Wire

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Wire)

_Id = str | float | None
"""The id of a request, from either side."""


class AppServerError(Exception):
    """The server refused a request. `code`, `message` and `data` are exactly what it sent."""

    def __init__(self, code: str, message: str, data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.data = code, message, data


class ConnectionLost(Exception):  # noqa: N818 -- it says what happened, and it is part of the public names
    """The server is gone; the request has no answer and will get none."""


_NULL = msgspec.Raw(b"null")

UNREADABLE = (ValueError, RecursionError)
"""What decoding the server's bytes can raise; msgspec's DecodeError is a ValueError."""


class _Error(msgspec.Struct):
    code: str
    message: str
    data: Any = None


class _Line(msgspec.Struct):
    id: _Id = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = _NULL
    error: _Error | None = None


_LINE = msgspec.json.Decoder(_Line)


@functools.cache
def _decoder(kind: type[P]) -> msgspec.json.Decoder[P]:
    return msgspec.json.Decoder(kind)


@attrs.define(eq=False)
class _Waiting:
    ended: trio.Event = attrs.field(factory=trio.Event)
    result: msgspec.Raw = _NULL
    error: Exception | None = None


@attrs.define(eq=False)
class AppServerClient:
    """A client that is connected. Made by `spawn_app_server` or `create_in_process_client`.

    Handlers may fail without harm to the connection: the log has what happened, a server request is
    answered with an error, and the other handlers of a notification are called all the same.

    Attributes:
        server: what `initialize` told; set once the handshake is over.
    """

    _send: Callable[[bytes], Awaitable[None]] = attrs.field(alias="send")
    _nursery: trio.Nursery = attrs.field(alias="nursery")
    server: InitializeResult | None = attrs.field(default=None, init=False)
    _count: int = attrs.field(default=0, init=False)
    _waiting: dict[_Id, _Waiting] = attrs.field(factory=dict, init=False)
    _lost: bool = attrs.field(default=False, init=False)
    _notified: dict[str, list[Callable[[Any], None]]] = attrs.field(factory=dict, init=False)
    _watchers: list[Callable[[str, Wire], None]] = attrs.field(factory=list, init=False)
    _asked: dict[str, Callable[[Any], Awaitable[Wire]]] = attrs.field(factory=dict, init=False)
    _answering: dict[_Id, trio.CancelScope] = attrs.field(factory=dict, init=False)

    # --- requests --------------------------------------------------------------------------------

    async def initialize(
        self, info: ClientInfo, *, mode: Mode | None = None, opt_out: tuple[str, ...] = ()
    ) -> InitializeResult:
        """Do the handshake; requests are served from then on."""
        capabilities = Capabilities(opt_out_notifications=opt_out) if opt_out else None
        wanted = InitializeParams(client_info=info, mode=mode, capabilities=capabilities)
        self.server = cast(InitializeResult, await self.request("initialize", wanted))
        await self._send(encode_notification("initialized", InitializedParams()))
        return self.server

    async def request(self, method: str, wanted: Wire) -> Wire:
        """Send a request of the method table and wait for its result.

        Raises:
            AppServerError: the server refused it.
            ConnectionLost: the server is gone.
        """
        if self._lost:
            raise ConnectionLost(f"{method} was not sent: the server is gone")
        self._count += 1
        request_id, waiting = self._count, _Waiting()
        self._waiting[request_id] = waiting
        try:
            await self._send(encode_request(request_id, method, wanted))
            await waiting.ended.wait()
        finally:
            self._waiting.pop(request_id, None)
        if waiting.error is not None:
            raise waiting.error
        return msgspec.json.decode(waiting.result, type=METHODS[method].result)

    async def thread_start(self, wanted: params.ThreadStartParams) -> results.ThreadStartResult:
        """`thread/start`."""
        return cast(results.ThreadStartResult, await self.request("thread/start", wanted))

    async def thread_resume(self, wanted: params.ThreadResumeParams) -> results.ThreadResumeResult:
        """`thread/resume`."""
        return cast(results.ThreadResumeResult, await self.request("thread/resume", wanted))

    async def thread_read(self, wanted: params.ThreadReadParams) -> results.ThreadReadResult:
        """`thread/read`."""
        return cast(results.ThreadReadResult, await self.request("thread/read", wanted))

    async def thread_list(self, wanted: params.ThreadListParams) -> results.ThreadListResult:
        """`thread/list`."""
        return cast(results.ThreadListResult, await self.request("thread/list", wanted))

    async def thread_unsubscribe(
        self, wanted: params.ThreadUnsubscribeParams
    ) -> results.ThreadUnsubscribeResult:
        """`thread/unsubscribe`."""
        return cast(results.ThreadUnsubscribeResult, await self.request("thread/unsubscribe", wanted))

    async def thread_settings_update(
        self, wanted: params.ThreadSettingsUpdateParams
    ) -> results.ThreadSettingsUpdateResult:
        """`thread/settings/update`."""
        return cast(results.ThreadSettingsUpdateResult, await self.request("thread/settings/update", wanted))

    async def thread_compact(self, wanted: params.ThreadCompactParams) -> results.ThreadCompactResult:
        """`thread/compact`; waits until the compaction has ended."""
        return cast(results.ThreadCompactResult, await self.request("thread/compact", wanted))

    async def turn_start(self, wanted: params.TurnStartParams) -> results.TurnStartResult:
        """`turn/start`; does not wait for the turn to end."""
        return cast(results.TurnStartResult, await self.request("turn/start", wanted))

    async def turn_steer(self, wanted: params.TurnSteerParams) -> results.TurnSteerResult:
        """`turn/steer`; does not wait until the model sees the input."""
        return cast(results.TurnSteerResult, await self.request("turn/steer", wanted))

    async def turn_queue_add(self, wanted: params.TurnQueueAddParams) -> results.TurnQueueAddResult:
        """`turn/queue/add`; does not wait for the input's turn."""
        return cast(results.TurnQueueAddResult, await self.request("turn/queue/add", wanted))

    async def turn_queue_remove(self, wanted: params.TurnQueueRemoveParams) -> results.TurnQueueRemoveResult:
        """`turn/queue/remove`."""
        return cast(results.TurnQueueRemoveResult, await self.request("turn/queue/remove", wanted))

    async def turn_interrupt(self, wanted: params.TurnInterruptParams) -> results.TurnInterruptResult:
        """`turn/interrupt`; does not wait for the turn to end."""
        return cast(results.TurnInterruptResult, await self.request("turn/interrupt", wanted))

    async def model_list(self) -> results.ModelListResult:
        """`model/list`."""
        return cast(results.ModelListResult, await self.request("model/list", params.ModelListParams()))

    async def server_diagnostics(self) -> results.ServerDiagnosticsResult:
        """`server/diagnostics`."""
        wanted = params.ServerDiagnosticsParams()
        return cast(results.ServerDiagnosticsResult, await self.request("server/diagnostics", wanted))

    # --- what the server sends -------------------------------------------------------------------

    def on_notification(self, kind: type[P], handler: Callable[[P], None]) -> Callable[[], None]:
        """Call `handler` for every notification with params of this type; the result stops it."""
        name = next(row.name for row in NOTIFICATIONS.values() if row.params is kind)
        handlers = self._notified.setdefault(name, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def on_any(self, handler: Callable[[str, Wire], None]) -> Callable[[], None]:
        """Call `handler` with method and params of every notification this client knows."""
        self._watchers.append(handler)
        return lambda: self._watchers.remove(handler)

    def on_request(self, kind: type[P], handler: Callable[[P], Awaitable[Wire]]) -> None:
        """Answer server requests with params of this type. Those without a handler are refused.

        A handler whose request the server takes back is cancelled, and so is each when the server is gone.
        """
        name = next(row.name for row in SERVER_REQUESTS.values() if row.params is kind)
        self._asked[name] = handler

    # --- the transport's side --------------------------------------------------------------------
    # A transport hands in each line from the server, and says when there will be none. Its `send`
    # takes a whole line or none of it, and raises ConnectionLost once the server takes no more.

    def receive(self, line: bytes) -> None:
        """Handle one line from the server. For transports."""
        try:
            message = _LINE.decode(line)
        except UNREADABLE as error:
            log.error("unreadable line from the server", extra={"bytes": len(line), "reason": str(error)})
            return
        if message.method is None:
            self._answered(message)
        elif message.id is None:
            self._notify(message.method, message.params)
        else:
            # Known before its task runs: the request may be taken back in the very next line.
            self._answering[message.id] = trio.CancelScope()
            self._nursery.start_soon(self._answer, message.id, message.method, message.params)

    def lost(self) -> None:
        """The server will send nothing more: whoever waits is told. For transports."""
        self._lost = True
        for waiting in self._waiting.values():
            if not waiting.ended.is_set():  # an answer may be there whose request has not seen it yet
                waiting.error = ConnectionLost("The server ended before it answered")
                waiting.ended.set()
        for answering in self._answering.values():
            answering.cancel(reason="the server is gone")

    def _answered(self, message: _Line) -> None:
        waiting = self._waiting.get(message.id)
        if waiting is None or waiting.ended.is_set():
            return  # the request was given up
        if message.error is not None:
            error = message.error
            waiting.error = AppServerError(error.code, error.message, error.data)
        else:
            waiting.result = message.result
        waiting.ended.set()

    def _notify(self, method: str, raw: msgspec.Raw) -> None:
        row = NOTIFICATIONS.get(method)
        handlers = self._notified.get(method)
        if row is None or not (handlers or self._watchers or row.params is ServerRequestCancelled):
            return
        try:
            decoded = _decoder(row.params).decode(raw)
        except UNREADABLE as error:
            log.error("unreadable notification", extra={"method": method, "reason": str(error)})
            return
        if isinstance(decoded, ServerRequestCancelled) and decoded.request_id in self._answering:
            self._answering[decoded.request_id].cancel(reason="the server took its request back")
        calls = [functools.partial(handler, decoded) for handler in handlers or ()]
        calls += [functools.partial(watcher, method, decoded) for watcher in self._watchers]
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("notification handler failed", extra={"method": method})

    async def _answer(self, request_id: _Id, method: str, raw: msgspec.Raw) -> None:
        try:
            with self._answering[request_id]:
                answer = await self._answer_to(method, raw)
                with suppress(ConnectionLost):  # nobody waits for the answer any more
                    await self._send(answer(msgspec.json.encode(request_id)))
        finally:
            del self._answering[request_id]

    async def _answer_to(self, method: str, raw: msgspec.Raw) -> Callable[[bytes], bytes]:
        """The answer to a server request, as a function of the request's id."""
        handler = self._asked.get(method)
        if handler is None:
            await trio.lowlevel.checkpoint()
            return lambda to: encode_error(to, "methodNotFound", f"This client does not answer {method}")
        result: Wire | None = None
        try:
            result = await handler(msgspec.json.decode(raw, type=SERVER_REQUESTS[method].params))
        except* Exception as group:
            log.error("server request failed", extra={"method": method}, exc_info=first_leaf(group))
        if result is None:
            return lambda to: encode_error(to, "internal", f"The client failed to answer {method}")
        return lambda to: encode_result(to, result)
