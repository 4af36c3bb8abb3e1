"""One request to a provider: sent, retried where that is safe, its answer read as events.

Between the adapters, which know what is said, and `http`, which knows how it travels.

Source: models and providers, "Request-level retry", "Common".
"""

import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import trio

from knightcode.models.characters import encode_clean
from knightcode.models.errors import RequestFailedError
from knightcode.models.request import RequestInspector
from knightcode.models.settings import ModelSettings
from knightcode.models.sse import EventTooLargeError, SseEvent, SseSplitter

if TYPE_CHECKING:
    from knightcode.models.http import Http, HttpResponse

_RETRIED_STATUSES: Final = frozenset({408, 409, 429})
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 8.0
_JITTER: Final = 0.25
_LONGEST_ASKED_MS: Final = 2**53 - 1  # a server may ask for more than a float of milliseconds holds


class EventBatches(Protocol):
    """The events of a stream as they arrive: all that came with one read, never none."""

    def __aiter__(self) -> AsyncIterator[list[SseEvent]]: ...


class Wire(Protocol):
    """What an adapter sends its request through."""

    def events(
        self,
        url: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        inspector: RequestInspector | None = None,
    ) -> AbstractAsyncContextManager[EventBatches]:
        """POST a JSON body; entering waits until the provider has accepted the request.

        The inspector is shown the body once, and the head of every answer.

        Raises:
            RequestFailedError: on entering or while reading; its text is for the reply, and so is the
                wait that the server asked for when it refused.
        """


@attrs.frozen
class HttpWire:
    """The wire over HTTP."""

    http: "Http"
    settings: ModelSettings
    jitter: Callable[[], float] = random.random

    @asynccontextmanager
    async def events(
        self,
        url: str,
        headers: Mapping[str, str],
        body: dict[str, Any],
        inspector: RequestInspector | None = None,
    ) -> AsyncIterator[EventBatches]:
        """See `Wire.events`. Leaving closes the connection, unless the body has come to its end."""
        if inspector is not None:
            body = await inspector.before_request(body)
        response = await self._accepted(url, headers, encode_clean(body), inspector)
        try:
            yield _Batches(response)
            await response.drain()
        finally:
            await response.aclose()

    async def _accepted(
        self, url: str, headers: Mapping[str, str], body: bytes, inspector: RequestInspector | None
    ) -> "HttpResponse":
        """The first response that is a stream."""
        attempt = 0
        while True:
            status: int | None = None
            answered: Mapping[str, str] = {}
            try:
                response = await self.http.post(
                    url,
                    headers,
                    body,
                    header_seconds=self.settings.header_seconds,
                    idle_seconds=self.settings.idle_seconds,
                )
                status, answered = response.status, response.headers
                failure = await _refusal(response, inspector)
                if failure is None:
                    return response
            except RequestFailedError as error:
                failure = str(error)
            asked = asked_delay(answered, now=time.time())
            asked_ms = None if asked is None else _whole_milliseconds(asked)
            if attempt >= self.settings.max_retries or not should_retry(status, answered):
                raise RequestFailedError(failure, retry_after_ms=asked_ms)
            longest = self.settings.max_retry_delay_ms / 1000
            if asked is not None and 0 < longest < asked:
                raise RequestFailedError(
                    f"retry delay of {asked:g} s is longer than the {longest:g} s allowed: {failure}",
                    retry_after_ms=asked_ms,
                )
            await trio.sleep(own_delay(attempt, self.jitter()) if asked is None else asked)
            attempt += 1


def should_retry(status: int | None, headers: Mapping[str, str]) -> bool:
    """Whether a request without a usable answer may be sent again.

    Args:
        status: None when there was no response.
        headers: of the response, names in lower case; `x-should-retry` decides if it is there.
    """
    said = headers.get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    return status is None or status in _RETRIED_STATUSES or status >= 500


def asked_delay(headers: Mapping[str, str], now: float) -> float | None:
    """The wait that a server asks for, in seconds; None when it asks for none that can be read.

    Args:
        now: seconds since 1970, to which a date is compared.
    """
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return _wait(float(milliseconds) / 1000)
        after = headers.get("retry-after")
        return None if after is None else _wait(float(after))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # slow to load, and rarely needed

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def own_delay(attempt: int, jitter: float) -> float:
    """The wait before try `attempt` + 1, in seconds, when the server asks for none.

    Args:
        attempt: tries that failed before this one.
        jitter: from 0 to 1, how much of the randomness is taken off.
    """
    full = min(_FIRST_DELAY_SECONDS * 2.0 ** min(attempt, 10), _LONGEST_DELAY_SECONDS)
    return float(full * (1 - _JITTER * jitter))


def _whole_milliseconds(seconds: float) -> int:
    """Rounded up, since too early is what the server does not want."""
    return math.ceil(min(seconds * 1000, _LONGEST_ASKED_MS))


def _wait(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


async def _refusal(response: "HttpResponse", inspector: RequestInspector | None) -> str | None:
    """Why a response is no stream; None when it may be one. The response is closed unless it may."""
    kind = response.headers.get("content-type", "").lower()
    coding = response.headers.get("content-encoding", "identity").lower()
    accepted = False
    try:
        if inspector is not None:
            await inspector.after_response(response.status, response.headers)
        accepted = response.status == 200 and coding == "identity" and "json" not in kind
        text = "" if accepted else await response.read_text()
    finally:
        if not accepted:
            await response.aclose()
    if accepted:
        return None
    if response.status != 200:
        return f"{response.status} {text or '(no body)'}"
    if coding != "identity":
        return f"provider returned error: its answer is compressed ({coding}), which was not asked for"
    return f"provider returned error: JSON instead of a stream: {text}"


@attrs.define(eq=False)
class _Batches:
    _response: "HttpResponse"
    _splitter: SseSplitter = attrs.field(factory=SseSplitter, init=False)

    def __aiter__(self) -> "_Batches":
        return self

    async def __anext__(self) -> list[SseEvent]:
        try:
            while data := await self._response.receive():
                if events := self._splitter.feed(data):
                    return events
        except EventTooLargeError as error:
            raise RequestFailedError(f"provider returned error: {error}") from error
        if rest := self._splitter.close():
            return rest
        raise StopAsyncIteration
