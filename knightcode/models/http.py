"""HTTP to providers: one pool of kept-alive connections for the process, replies as raw bytes.

The only module that knows the HTTP library; it is imported with the first request, never at start-up.
It uses httpx2's engine, httpcore2, directly: that is where the library lets a network backend be
given, and joining a stream's chunks below the library (`ChunkJoiner`) is worth a factor of six for
streams of tiny events. The client above it would add cookies, redirects and decoding, none of which
a model request may have.

Must not know what is said over it.

Source: models and providers, "Errors"; settings, "Network and retry".
"""

import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs
import httpcore2
import trio

from knightcode.models.chunks import ChunkJoiner
from knightcode.models.errors import RequestFailedError
from knightcode.models.proxies import proxy_for
from knightcode.models.settings import CLOSE_SECONDS
from knightcode.processes.worker_threads import WorkerThreads

ERROR_BODY_LIMIT_BYTES: Final = 64 * 1024
_TLS_THREADS: Final = WorkerThreads("TLS threads", 1)
_KEPT_CONNECTIONS: Final = 20
_KEPT_SECONDS: Final = 60.0  # a turn's tools may run this long between two requests

_DRAIN_SECONDS: Final = 0.02  # the end of a body mostly came with its last event

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")


@attrs.define(eq=False)
class Http:
    """Sends requests over pooled connections. Whoever made it closes it.

    Args:
        environ: where proxy variables are looked up.
        http_proxy: the setting `httpProxy`.
    """

    _environ: Mapping[str, str]
    _http_proxy: str | None = None
    _pools: dict[tuple[bool, str | None], httpcore2.AsyncConnectionPool] = attrs.field(
        factory=dict, init=False
    )
    _tls: ssl.SSLContext | None = attrs.field(default=None, init=False)
    _tls_lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        header_seconds: float | None = None,
        idle_seconds: float | None = None,
    ) -> "HttpResponse":
        """POST `body` and wait for the response's head. The caller closes what it gets.

        Args:
            headers: sent as they are, beside Host, Content-Length and Accept-Encoding.
            header_seconds: longest wait for the response's head, None for no limit.
            idle_seconds: longest wait for any further bytes of its body, None for no limit.
        Raises:
            RequestFailedError: no response; the text begins with what failed.
        """
        response: httpcore2.Response | None = None
        with trio.move_on_after(float("inf") if header_seconds is None else header_seconds):
            try:
                request = _request(url, headers, body)
                pool = await self._pool(url)
                response = await pool.handle_async_request(request)
            except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
                raise RequestFailedError(_failure_text(error)) from error
            except (
                httpcore2.UnsupportedProtocol,
                httpcore2.ProxyError,
                ImportError,
                ValueError,
                OSError,
            ) as error:
                raise RequestFailedError(_failure_text(error)) from error
        if response is None:
            raise RequestFailedError(f"request timed out: no response within {header_seconds:g} s")
        return HttpResponse(response, idle_seconds)

    async def aclose(self) -> None:
        """Close every connection, within `CLOSE_SECONDS`, also when cancelled."""
        pools = list(self._pools.values())
        self._pools.clear()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            for pool in pools:
                await pool.aclose()

    async def _pool(self, url: str) -> httpcore2.AsyncConnectionPool:
        proxy = proxy_for(url, self._environ, self._http_proxy)
        secure = url[:6].lower() == "https:" or (proxy or "").startswith("https:")
        pool = self._pools.get((secure, proxy))
        if pool is not None:
            return pool
        tls = await self._tls_context() if secure else None  # making one takes tens of milliseconds
        return self._pools.setdefault((secure, proxy), _make_pool(proxy, tls))

    async def _tls_context(self) -> ssl.SSLContext:
        async with self._tls_lock:
            if self._tls is None:
                self._tls = await _TLS_THREADS.run(httpcore2.default_ssl_context)
            return self._tls


@attrs.define(eq=False)
class HttpResponse:
    """A response whose body arrives by and by. Whoever got it closes it."""

    _response: httpcore2.Response
    _idle_seconds: float | None
    status: int = attrs.field(init=False)
    headers: Mapping[str, str] = attrs.field(init=False)
    _body: Any = attrs.field(init=False)
    _ended: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.status = self._response.status
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._response.headers
        }
        self._body = aiter(self._response.stream)  # type: ignore[arg-type]

    async def receive(self) -> bytes:
        """The next bytes of the body, empty at its end.

        Raises:
            RequestFailedError: the connection broke, or nothing came for the idle time.
        """
        if self._ended:
            return b""
        with trio.move_on_after(float("inf") if self._idle_seconds is None else self._idle_seconds):
            return await self._next()
        self._ended = True
        raise RequestFailedError(f"request timed out: nothing arrived for {self._idle_seconds:g} s")

    async def read_text(self, limit_bytes: int = ERROR_BODY_LIMIT_BYTES) -> str:
        """The start of the body as text, without blanks at its ends; what has arrived if it breaks."""
        pieces: list[bytes] = []
        try:
            while sum(map(len, pieces)) < limit_bytes and (data := await self.receive()):
                pieces.append(data)
        except RequestFailedError:
            pass
        return b"".join(pieces)[:limit_bytes].decode("utf-8", "replace").strip()

    async def drain(self) -> None:
        """Read on for a moment: a connection whose body has come to its end can be used again."""
        try:
            with trio.move_on_after(_DRAIN_SECONDS):
                while await self.receive():
                    pass
        except RequestFailedError:
            pass  # what was wanted of the body has been read

    async def aclose(self) -> None:
        """Give the connection back if the body has ended; close it otherwise, at once.

        Takes `CLOSE_SECONDS` at most, also when cancelled.
        """
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._body.aclose()
            await self._response.aclose()

    async def _next(self) -> bytes:
        try:
            data: bytes = await anext(self._body, b"")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            self._ended = True
            raise RequestFailedError(_failure_text(error)) from error
        self._ended = not data
        return data


class _JoiningStream(httpcore2.AsyncNetworkStream):
    """A connection whose chunked bodies reach the library in few, large chunks."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._joiner = ChunkJoiner()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109, RUF100 -- the library's
        while data := await self._stream.read(max_bytes, timeout):
            if joined := self._joiner.feed(data):
                return joined
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109, RUF100 -- the library's
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109, RUF100 -- the library's
    ) -> httpcore2.AsyncNetworkStream:
        return _JoiningStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _JoiningBackend(httpcore2.TrioBackend):
    """The library's trio backend, its connections wrapped."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109, RUF100 -- the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _JoiningStream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


def _make_pool(proxy: str | None, tls: ssl.SSLContext | None) -> httpcore2.AsyncConnectionPool:
    settings: dict[str, Any] = {
        "ssl_context": tls,
        "max_connections": None,
        "max_keepalive_connections": _KEPT_CONNECTIONS,
        "keepalive_expiry": _KEPT_SECONDS,
        "network_backend": _JoiningBackend(),
    }
    if proxy is None:
        return httpcore2.AsyncConnectionPool(**settings)
    parts = urlsplit(proxy)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], path="/").geturl()
    if parts.scheme in ("socks5", "socks5h"):
        return httpcore2.AsyncSOCKSProxy(bare, proxy_auth=auth, **settings)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the proxy {bare} is neither HTTP nor SOCKS 5")
    return httpcore2.AsyncHTTPProxy(
        bare, proxy_auth=auth, proxy_ssl_context=tls if parts.scheme == "https" else None, **settings
    )


def _request(url: str, headers: Mapping[str, str], body: bytes) -> httpcore2.Request:
    parts = urlsplit(url)
    if not parts.hostname or not url.isascii():
        raise ValueError(f"{url!r} is not an ASCII URL with a host")
    host = parts.netloc.rpartition("@")[2]
    own = {"Host": host, "Content-Length": str(len(body)), "Accept-Encoding": "identity"}
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(
            value
        ):  # checked here: the library's text quotes it
            raise ValueError(f"the header {name!r} is empty or holds characters that HTTP does not allow")
    return httpcore2.Request("POST", url, headers=[*own.items(), *headers.items()], content=body)


def _failure_text(error: Exception) -> str:
    """What went wrong, begun with the words by which a failure is known to be worth a retry."""
    said = str(error)
    cause = error.__cause__ or error.__context__
    while not said and cause is not None:
        said, cause = str(cause), cause.__cause__ or cause.__context__
    kind = "request timed out" if isinstance(error, httpcore2.TimeoutException) else "connection error"
    return f"{kind}: {said or type(error).__name__}"
