"""One request through the wire: accepted, refused, retried, inspected."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import attrs
import pytest
import trio

from knightcode.models.errors import RequestFailedError
from knightcode.models.http import Http
from knightcode.models.request import RequestInspector
from knightcode.models.settings import ModelSettings
from knightcode.models.sse import SseEvent
from knightcode.models.wire import HttpWire, asked_delay, own_delay, should_retry
from tests.models.loopback import END, SSE, Answer, Cut, Loopback, chunk, head, open_loopback, plain, records

FINE: Answer = [SSE + records("1", "2") + END]


@attrs.define(eq=False)
class Outcome:
    """The events of a stream, or why there is none."""

    events: list[SseEvent] = attrs.field(factory=list)
    failure: str | None = None
    retry_after_ms: int | None = None


async def exchange(
    *answers: Answer, settings: ModelSettings | None = None, inspector: RequestInspector | None = None
) -> tuple[Outcome, Loopback]:
    outcome = Outcome()
    with trio.fail_after(5):
        async with open_loopback(*answers) as server, aclosing(Http({})) as http:
            wire = HttpWire(http, settings or ModelSettings(), jitter=lambda: 1.0)
            try:
                async with wire.events(f"{server.url}/x", {}, {"n": 1}, inspector) as stream:
                    async for events in stream:
                        outcome.events += events
            except RequestFailedError as error:
                outcome.failure = str(error)
                outcome.retry_after_ms = error.retry_after_ms
    return outcome, server


async def test_an_accepted_request_gives_its_events() -> None:
    outcome, server = await exchange(FINE)
    assert (outcome.events, outcome.failure) == ([SseEvent(b"1"), SseEvent(b"2")], None)
    assert server.requests[0].json() == {"n": 1}


async def test_a_body_without_length_and_without_last_blank_line_gives_all_its_events() -> None:
    outcome, _ = await exchange([head(content_type="text/event-stream") + b"data: 1\r\n\r\ndata: 2", Cut()])
    assert outcome.events == [SseEvent(b"1"), SseEvent(b"2")]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (
            plain(429, b' {"error":{"type":"rate_limit_error"}}\n'),
            '429 {"error":{"type":"rate_limit_error"}}',
        ),
        (plain(400, b""), "400 (no body)"),
        (plain(302, b"", location="/y"), "302 (no body)"),
        (
            plain(200, b'{"error":"x"}', content_type="application/json"),
            'provider returned error: JSON instead of a stream: {"error":"x"}',
        ),
        (
            plain(200, b"\x1f\x8b", content_encoding="gzip"),
            "provider returned error: its answer is compressed (gzip), which was not asked for",
        ),
    ],
)
async def test_an_answer_that_is_no_stream_is_a_failure_with_its_text(answer: bytes, failure: str) -> None:
    """Models and providers, "Common" (error text for HTTP failures)."""
    outcome, _ = await exchange([answer])
    assert outcome.failure == failure


async def test_an_event_without_end_is_refused_at_the_limit() -> None:
    size = 17 * 1024 * 1024
    outcome, _ = await exchange([SSE + chunk(b"data: " + b"x" * size) + END])
    assert outcome.failure == "provider returned error: an event of the stream is larger than 16777216 bytes"


async def test_a_request_is_sent_once_unless_retries_are_allowed() -> None:
    outcome, server = await exchange([plain(503, b"busy")], FINE)
    assert (outcome.failure, len(server.requests)) == ("503 busy", 1)


async def test_an_allowed_retry_waits_as_the_server_asks_and_uses_the_same_connection() -> None:
    """Models and providers, "Request-level retry"."""
    busy: Answer = [plain(503, b"busy", retry_after_ms="1")]
    outcome, server = await exchange(busy, busy, FINE, settings=ModelSettings(max_retries=2))
    assert (outcome.failure, len(outcome.events)) == (None, 2)
    assert [seen.connection for seen in server.requests] == [1, 1, 1]


async def test_the_last_failure_is_told_when_the_retries_are_used_up() -> None:
    answers = [[plain(status, b"", retry_after_ms="1")] for status in (500, 502, 504)]
    outcome, server = await exchange(*answers, settings=ModelSettings(max_retries=2))
    assert (outcome.failure, len(server.requests)) == ("504 (no body)", 3)


async def test_a_server_that_asks_for_a_longer_wait_than_allowed_fails_at_once() -> None:
    outcome, server = await exchange(
        [plain(429, b"slow down", retry_after="90")], settings=ModelSettings(max_retries=5)
    )
    assert outcome.failure == "retry delay of 90 s is longer than the 60 s allowed: 429 slow down"
    assert outcome.retry_after_ms == 90_000
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "asked_ms"),
    [
        ({}, None),
        ({"retry_after": "5"}, 5_000),
        ({"retry_after_ms": "0.4", "retry_after": "9"}, 1),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1e308"}, 2**53 - 1),
    ],
)
@pytest.mark.parametrize("max_retries", [0, 1])
async def test_a_failed_request_tells_the_wait_that_the_server_asked_for_last(
    headers: dict[str, str], asked_ms: int | None, max_retries: int
) -> None:
    """Models and providers, "Agent-level retry", "Request-level retry"."""
    first: list[Answer] = [[plain(503, b"", retry_after_ms="2")]] * max_retries
    outcome, _ = await exchange(
        *first, [plain(429, b"slow down", **headers)], settings=ModelSettings(max_retries=max_retries)
    )
    assert (outcome.failure, outcome.retry_after_ms) == ("429 slow down", asked_ms)


async def test_a_connection_that_fails_asks_for_no_wait() -> None:
    outcome, _ = await exchange([Cut()])
    assert (outcome.failure or "").startswith("connection error: ")
    assert outcome.retry_after_ms is None


async def test_a_stream_that_has_begun_is_not_retried() -> None:
    outcome, server = await exchange([SSE + records("1"), Cut()], FINE, settings=ModelSettings(max_retries=3))
    assert outcome.events == [SseEvent(b"1")]
    assert (outcome.failure or "").startswith("connection error: ")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "headers", "retried"),
    [
        (None, {}, True),
        (408, {}, True),
        (409, {}, True),
        (429, {}, True),
        (500, {}, True),
        (529, {}, True),
        (400, {}, False),
        (401, {}, False),
        (200, {}, False),
        (400, {"x-should-retry": "true"}, True),
        (500, {"x-should-retry": "FALSE"}, False),
        (500, {"x-should-retry": "perhaps"}, True),
    ],
)
def test_what_may_be_sent_again(status: int | None, headers: Mapping[str, str], retried: bool) -> None:
    assert should_retry(status, headers) is retried


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "9"}, 9.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after-ms": "soon"}, None),
    ],
)
def test_the_wait_that_a_server_asks_for(headers: Mapping[str, str], seconds: float | None) -> None:
    assert asked_delay(headers, now=40.0) == seconds


def test_own_waits_double_up_to_eight_seconds_less_up_to_a_quarter() -> None:
    assert [own_delay(attempt, 0.0) for attempt in (0, 1, 2, 3, 4, 5, 500)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert own_delay(2, 1.0) == 1.5


@attrs.define(eq=False)
class Notes:
    """An inspector that changes the body and keeps what it is told."""

    seen: list[Any] = attrs.field(factory=list)

    async def before_request(self, body: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(dict(body))
        await trio.lowlevel.checkpoint()
        return {**body, "n": 2}

    async def after_response(self, status: int, headers: Mapping[str, str]) -> None:
        await trio.lowlevel.checkpoint()
        self.seen.append((status, headers["x-id"]))


async def test_an_inspector_may_replace_the_body_and_sees_every_head_before_its_body() -> None:
    notes = Notes()
    busy: Answer = [plain(503, b"busy", x_id="a", retry_after_ms="1")]
    fine: Answer = [plain(200, b"data: 1\n\n", x_id="b")]
    outcome, server = await exchange(busy, fine, settings=ModelSettings(max_retries=1), inspector=notes)
    assert (outcome.events, outcome.failure) == ([SseEvent(b"1")], None)
    assert notes.seen == [{"n": 1}, (503, "a"), (200, "b")]
    assert [seen.json() for seen in server.requests] == [{"n": 2}, {"n": 2}]
