"""A provider of our own on the loopback interface: plays written bytes, and remembers what it was sent."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

CERTIFICATE = Path(__file__).with_name("loopback.pem")


@attrs.frozen
class Seen:
    """One request as it arrived. `headers` has names in lower case; `connection` counts from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@attrs.frozen
class Wait:
    """Go on once the event is set."""

    event: trio.Event


@attrs.frozen
class Cut:
    """Close the connection here."""


@attrs.frozen
class Silence:
    """Send nothing until the client has gone."""


Step = bytes | Wait | Cut | Silence
Answer = Sequence[Step]


@attrs.define(eq=False)
class Loopback:
    """A running server. Each request gets the next answer; one too many gets a 500."""

    answers: list[Answer]
    url: str = ""
    requests: list[Seen] = attrs.field(factory=list)
    connections: int = 0
    client_left: trio.Event = attrs.field(factory=trio.Event)
    requested: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, stream: trio.abc.Stream) -> None:
        self.connections += 1
        number = self.connections
        try:
            buffer = b""
            while (found := await _read_request(stream, buffer, number)) is not None:
                seen, buffer = found
                self.requests.append(seen)
                self.requested.set()
                answer = self.answers.pop(0) if self.answers else [plain(500, b"no answer is written")]
                for step in answer:
                    if isinstance(step, Cut):
                        return
                    await self._play(stream, step)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.client_left.set()

    async def _play(self, stream: trio.abc.Stream, step: Step) -> None:
        if isinstance(step, Wait):
            await step.event.wait()
        elif isinstance(step, Silence):
            await stream.receive_some()
        elif isinstance(step, bytes):
            await stream.send_all(step)


@asynccontextmanager
async def open_loopback(*answers: Answer, secure: bool = False) -> AsyncIterator[Loopback]:
    """A server with these answers, over TLS if `secure`; gone on exit, connections included."""
    server = Loopback(list(answers))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    async def handle(connection: trio.SocketStream) -> None:
        stream: trio.abc.Stream = connection
        if secure:
            stream = trio.SSLStream(connection, context, server_side=True, https_compatible=True)
        async with connection:
            await server.serve(stream)

    async with trio.open_nursery() as nursery:
        serve: Callable[..., Awaitable[Any]] = trio.serve_tcp
        listeners = await nursery.start(lambda **options: serve(handle, 0, host="127.0.0.1", **options))
        port = listeners[0].socket.getsockname()[1]
        server.url = f"http{'s' if secure else ''}://127.0.0.1:{port}"
        yield server
        nursery.cancel_scope.cancel()


async def _read_request(stream: trio.abc.Stream, buffer: bytes, connection: int) -> tuple[Seen, bytes] | None:
    while b"\r\n\r\n" not in buffer:
        data = await stream.receive_some()
        if not data:
            return None
        buffer += data
    head, _, buffer = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    while len(buffer) < length:
        buffer += await stream.receive_some()
    return Seen(method, path, headers, buffer[:length], connection), buffer[length:]


# --- answers -------------------------------------------------------------------------------------


def head(status: int = 200, **headers: str) -> bytes:
    """The head of a response; underscores in names are dashes."""
    lines = [
        f"HTTP/1.1 {status} Whatever",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def plain(status: int, body: bytes, **headers: str) -> bytes:
    """A whole response with a length."""
    return head(status, content_length=str(len(body)), **headers) + body


SSE = head(content_type="text/event-stream", transfer_encoding="chunked")
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def records(*events: object) -> bytes:
    """Chat Completions events, one chunk each; bytes and text stand for themselves."""
    return b"".join(chunk(b"data: " + _json(event) + b"\n\n") for event in events)


def named(*events: dict[str, Any]) -> bytes:
    """Anthropic events, one chunk each, named by their type."""
    return b"".join(
        chunk(b"event: " + str(event["type"]).encode() + b"\ndata: " + _json(event) + b"\n\n")
        for event in events
    )


def _json(event: object) -> bytes:
    if isinstance(event, bytes):
        return event
    return event.encode() if isinstance(event, str) else msgspec.json.encode(event)
