"""HTTP to providers: reuse, limits, cancellation."""

import socket
from contextlib import aclosing

import pytest
import trio
import trio.testing

from knightcode.models.errors import RequestFailedError
from knightcode.models.http import Http, HttpResponse
from tests.models.loopback import (
    CERTIFICATE,
    END,
    SSE,
    Answer,
    Cut,
    Silence,
    Wait,
    chunk,
    head,
    open_loopback,
    plain,
)


async def read_all(response: HttpResponse) -> bytes:
    pieces = []
    while data := await response.receive():
        pieces.append(data)
    await response.aclose()
    return b"".join(pieces)


async def post(http: Http, url: str, **limits: float) -> HttpResponse:
    return await http.post(url + "/v1/x?y=1", {"X-Test": "yes"}, b"{}", **limits)


async def test_a_request_arrives_as_it_was_given() -> None:
    with trio.fail_after(5):
        async with open_loopback([plain(200, b"fine")]) as server, aclosing(Http({})) as http:
            response = await post(http, server.url)
            assert (response.status, await read_all(response)) == (200, b"fine")
    seen = server.requests[0]
    assert (seen.method, seen.path, seen.body, seen.headers) == (
        "POST",
        "/v1/x?y=1",
        b"{}",
        {
            "host": server.url.removeprefix("http://"),
            "content-length": "2",
            "accept-encoding": "identity",
            "x-test": "yes",
        },
    )


async def test_two_requests_one_after_the_other_use_one_connection() -> None:
    answer = [SSE + chunk(b"one") + chunk(b"two") + END]
    with trio.fail_after(5):
        async with (
            open_loopback(answer, answer, [plain(200, b"three")]) as server,
            aclosing(Http({})) as http,
        ):
            assert [await read_all(await post(http, server.url)) for _ in range(3)] == [
                b"onetwo",
                b"onetwo",
                b"three",
            ]
    assert [seen.connection for seen in server.requests] == [1, 1, 1]


async def test_a_response_left_before_its_end_takes_its_connection_with_it() -> None:
    with trio.fail_after(5):
        async with (
            open_loopback([SSE + chunk(b"one"), Silence()], [plain(200, b"")]) as server,
            aclosing(Http({})) as http,
        ):
            response = await post(http, server.url)
            assert await response.receive() == b"one"
            await response.aclose()
            await server.client_left.wait()
            await read_all(await post(http, server.url))
    assert [seen.connection for seen in server.requests] == [1, 2]


async def test_draining_keeps_the_connection_of_a_body_that_ends_at_once() -> None:
    answer = [SSE + chunk(b"one") + chunk(b"two") + END]
    with trio.fail_after(5):
        async with open_loopback(answer, answer) as server, aclosing(Http({})) as http:
            for _ in range(2):
                response = await post(http, server.url)
                await response.receive()
                await response.drain()
                await response.aclose()
    assert [seen.connection for seen in server.requests] == [1, 1]


@pytest.mark.parametrize("answer", [[Silence()], [SSE + chunk(b"one"), Silence()]], ids=["head", "body"])
async def test_cancelling_closes_the_socket(answer: list[bytes | Silence]) -> None:
    with trio.fail_after(5):
        async with (
            open_loopback(answer) as server,
            aclosing(Http({})) as http,
            trio.open_nursery() as nursery,
        ):

            async def ask() -> None:
                response = await post(http, server.url)
                try:
                    await read_all(response)
                finally:
                    with trio.move_on_after(1, shield=True):
                        await response.aclose()

            nursery.start_soon(ask)
            await server.requested.wait()
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await server.client_left.wait()


async def test_a_head_that_does_not_come_in_time_is_a_time_out() -> None:
    with trio.fail_after(5):
        async with open_loopback([Silence()]) as server, aclosing(Http({})) as http:
            with pytest.raises(RequestFailedError, match=r"^request timed out: no response within 0.05 s$"):
                await post(http, server.url, header_seconds=0.05)
            await server.client_left.wait()


async def test_a_body_that_stops_is_a_time_out_after_the_idle_time() -> None:
    with trio.fail_after(5):
        async with open_loopback([SSE + chunk(b"one"), Silence()]) as server, aclosing(Http({})) as http:
            response = await post(http, server.url, idle_seconds=0.05)
            assert await response.receive() == b"one"
            with pytest.raises(RequestFailedError, match=r"^request timed out: nothing arrived for 0.05 s$"):
                await response.receive()
            await response.aclose()
            await server.client_left.wait()


async def test_a_connection_cut_within_the_body_is_a_connection_error() -> None:
    with trio.fail_after(5):
        async with open_loopback([SSE + chunk(b"one"), Cut()]) as server, aclosing(Http({})) as http:
            response = await post(http, server.url)
            assert await response.receive() == b"one"
            with pytest.raises(RequestFailedError, match=r"^connection error: "):
                await response.receive()
            assert await response.receive() == b""
            await response.aclose()


async def test_a_connection_cut_before_the_head_is_a_connection_error() -> None:
    with trio.fail_after(5):
        async with open_loopback([Cut()]) as server, aclosing(Http({})) as http:
            with pytest.raises(RequestFailedError, match=r"^connection error: "):
                await post(http, server.url)


async def test_a_port_that_nobody_listens_on_is_a_connection_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with trio.fail_after(5):
            async with aclosing(Http({})) as http:
                with pytest.raises(RequestFailedError, match=r"^connection error: ."):
                    await post(http, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "url", ["", "api.example/v1", "ftp://x/", "http://[broken", "http://exämple/", "http://h:999999/"]
)
async def test_an_address_that_is_none_is_a_connection_error(url: str) -> None:
    with trio.fail_after(5):
        async with aclosing(Http({})) as http:
            with pytest.raises(RequestFailedError, match=r"^connection error: "):
                await post(http, url)


@pytest.mark.parametrize("value", ["secret\n", "sécret", "", "a\r\nInjected: yes"])
async def test_a_header_that_cannot_be_sent_fails_without_being_quoted(value: str) -> None:
    with trio.fail_after(5):
        async with aclosing(Http({})) as http:
            with pytest.raises(RequestFailedError) as failure:
                await http.post("http://127.0.0.1:1/", {"x-api-key": value}, b"")
    assert str(failure.value) == (
        "connection error: the header 'x-api-key' is empty or holds characters that HTTP does not allow"
    )


async def test_the_text_of_an_error_is_bounded() -> None:
    with trio.fail_after(5):
        async with open_loopback([plain(500, b" " + b"x" * 100_000)]) as server, aclosing(Http({})) as http:
            response = await post(http, server.url)
            assert await response.read_text() == "x" * (64 * 1024 - 1)
            await response.aclose()


async def test_requests_to_other_hosts_go_through_the_proxy_and_those_to_this_machine_do_not() -> None:
    answers = [plain(200, b"by proxy")], [plain(200, b"directly")]
    with trio.fail_after(5):
        async with open_loopback(*answers) as server, aclosing(Http({"http_proxy": server.url})) as http:
            assert await read_all(await post(http, "http://api.acme.example")) == b"by proxy"
            assert await read_all(await post(http, server.url)) == b"directly"
    assert [seen.path for seen in server.requests] == ["http://api.acme.example/v1/x?y=1", "/v1/x?y=1"]


async def test_a_proxy_of_an_unknown_kind_is_named() -> None:
    with trio.fail_after(5):
        async with aclosing(Http({}, "gopher://user:secret@proxy:1")) as http:
            with pytest.raises(RequestFailedError) as failure:
                await post(http, "http://api.acme.example")
    assert str(failure.value) == "connection error: the proxy gopher://proxy:1/ is neither HTTP nor SOCKS 5"


async def test_a_refused_tunnel_is_a_connection_error() -> None:
    with trio.fail_after(5):
        async with open_loopback([head(403)]) as server, aclosing(Http({"https_proxy": server.url})) as http:
            with pytest.raises(RequestFailedError, match=r"^connection error: 403 Whatever$"):
                await post(http, "https://api.acme.example")
    assert [(seen.method, seen.path) for seen in server.requests] == [("CONNECT", "api.acme.example:443")]


async def test_two_requests_at_once_use_two_connections() -> None:
    both = trio.Event()
    answer: Answer = [Wait(both), plain(200, b"ok")]
    with trio.fail_after(5):
        async with (
            open_loopback(answer, answer) as server,
            aclosing(Http({})) as http,
            trio.open_nursery() as nursery,
        ):

            async def ask() -> None:
                await read_all(await post(http, server.url))

            nursery.start_soon(ask)
            nursery.start_soon(ask)
            while len(server.requests) < 2:
                await trio.testing.wait_all_tasks_blocked()
            both.set()
    assert server.connections == 2


async def test_a_secure_connection_is_checked_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    answer = [SSE + chunk(b"one") + chunk(b"two"), END]
    with trio.fail_after(5):
        async with open_loopback(answer, answer, secure=True) as server, aclosing(Http({})) as http:
            assert [await read_all(await post(http, server.url)) for _ in range(2)] == [b"onetwo", b"onetwo"]
    assert [seen.connection for seen in server.requests] == [1, 1]


async def test_a_certificate_that_nobody_vouches_for_is_a_connection_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with trio.fail_after(5):
        async with open_loopback(secure=True) as server, aclosing(Http({})) as http:
            with pytest.raises(RequestFailedError, match=r"^connection error: .*certificate"):
                await post(http, server.url)
    assert server.requests == []
