"""Nothing that a client sends harms more than its own line: reading goes on, and each request is answered.

Source: App Server notes, "Framing", "Error object".
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.app_server.connection import Connection, Handler, Later
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.core.pending import Call
from knightcode.app_server.main import server_info
from knightcode.threads.manager import ThreadManager
from knightcode.threads.notices import ConnectionId
from knightcode_protocol.params import ModelListParams
from knightcode_protocol.results import ModelListResult
from knightcode_protocol.wire import Wire
from tests.app_server.pipe import INIT, PATIENCE, Message, lines_of

FAILED = {"code": "internal", "message": "model/list failed inside the server; its log has the details"}
EMPTY = ModelListResult(models=())
LIST = b'{"id":"list","method":"model/list"}\n'
LISTED = {"id": "list", "result": {"models": []}}


class Unwritable(Wire, frozen=True, kw_only=True):
    """A result that has no JSON form, by a mistake of ours."""

    what: Any


def empty_list(_connection: Connection, _call: Call, _wanted: object) -> Wire | Later | None:
    return EMPTY


def opened(
    handlers: Mapping[str, Handler] | None = None,
    core: ConnectionCore | None = None,
    nursery: trio.Nursery | None = None,
) -> Connection:
    """A connection after its handshake. The handlers here need no threads, and mostly no tasks."""
    connection = Connection(
        id=ConnectionId(1),
        core=core or ConnectionCore(server_info()),
        manager=cast(ThreadManager, None),
        handlers={"model/list": empty_list} if handlers is None else handlers,
        nursery=cast(trio.Nursery, nursery),
    )
    connection.receive(lines_of(*INIT))
    sent(connection)
    return connection


def sent(connection: Connection) -> list[Message]:
    """What was sent since the last look."""
    return [json.loads(line) for line in connection.core.outbox.take(1 << 30).splitlines()]


JSON_TEXTS = st.recursive(
    st.sampled_from(
        [
            b"null",
            b"0",
            b"-1.5e3",
            b'"accept"',
            b'"\\ud83d"',
            b'"\xff"',
            b'"\\u0000"',
            b"1e999",
            b"-1e999",
            b"9" * 5_000,
            b"[" * 100 + b"]" * 100,
            b"[" * 5_000 + b"]" * 5_000,
            b"NaN",
            b"{",
            b'"',
            b"",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: b"[" + b",".join(items) + b"]")
        | st.lists(inner, max_size=3).map(
            lambda items: b"{" + b",".join(b'"k%d":%b' % pair for pair in enumerate(items)) + b"}"
        )
    ),
    max_leaves=6,
)
"""JSON and almost JSON, with all that decoders stumble over."""

IDS = st.sampled_from(
    [b'"s1"', b'"\\u00731"', b'"s2"', b"1", b"1e400", b"9" * 400, b'"\xff"', b"null", b"[]"]
)


@settings(max_examples=150, deadline=None)
@given(request_id=IDS, member=st.sampled_from([b"result", b"error"]), value=JSON_TEXTS)
def test_no_response_stops_the_reading_and_an_ask_ends_at_most_once(
    request_id: bytes, member: bytes, value: bytes
) -> None:
    connection = opened()
    answers: list[object] = []
    assert connection.ask("a/b", EMPTY, answers.append) == "s1"
    for _ in range(2):
        connection.receive(b'{"id":%b,"%b":%b}\n' % (request_id, member, value) + LIST)
    assert [one for one in sent(connection) if one.get("id") == "list"] == [LISTED] * 2
    assert len(answers) <= 1


@settings(max_examples=150, deadline=None)
@given(method=st.sampled_from([b"model/list", b"initialize", b"a/b"]), params=JSON_TEXTS)
def test_no_params_stop_the_reading_and_each_request_that_can_be_read_is_answered_once(
    method: bytes, params: bytes
) -> None:
    connection = opened()
    connection.receive(b'{"id":7,"method":"%b","params":%b}\n' % (method, params) + LIST)
    answers = [one for one in sent(connection) if "id" in one]
    assert answers[-1] == LISTED
    assert [one["id"] for one in answers[:-1]] == [7]


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5_000, b"[1e999]"])
def test_an_answer_that_cannot_be_read_counts_as_an_error_response(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    connection = opened()
    answers: list[object] = []
    connection.ask("a/b", EMPTY, answers.append)
    connection.receive(b'{"id":"s1","result":{"decision":"accept","x":%b}}\n' % value)
    assert answers == [None]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "unreadable answer")
    ]


def test_an_answer_on_which_the_asker_fails_is_logged_and_the_next_line_is_handled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = opened()

    def fail(_: object) -> None:
        raise RuntimeError("a mistake")

    connection.ask("a/b", EMPTY, fail)
    connection.receive(b'{"id":"s1","result":{}}\n' + LIST)
    assert sent(connection)[1:] == [LISTED]
    assert [record.getMessage() for record in caplog.records] == ["answer failed"]


@pytest.mark.rule("S84")
def test_a_mistake_in_taking_a_request_in_is_answered_logged_and_over_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unreachable() -> frozenset[str]:
        raise OSError("the method table cannot be loaded")

    connection = opened(core=ConnectionCore(server_info(), methods=unreachable))
    connection.receive(LIST + b'{"id":"s1","result":{}}\n' + LIST)
    refused = {"code": "internal", "message": "The server failed to take the request in"}
    assert sent(connection) == [{"id": "list", "error": refused}] * 2
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "line failed")
    ] * 2


@pytest.mark.rule("S84")
@pytest.mark.parametrize("error", [ValueError("a number"), RecursionError(), UnicodeError(), KeyError("x")])
def test_a_handler_that_fails_as_decoders_do_is_not_the_clients_fault(error: Exception) -> None:
    def handler(_connection: Connection, _call: Call, _wanted: object) -> Wire | Later | None:
        raise error

    connection = opened({"model/list": handler})
    connection.receive(LIST)
    assert sent(connection) == [{"id": "list", "error": FAILED}]


@pytest.mark.rule("S81", "S84")
async def test_a_result_without_a_json_form_fails_its_request_alone_at_once_or_later() -> None:
    async def later() -> Wire:
        await trio.lowlevel.checkpoint()
        return Unwritable(what=object())

    def handler(_connection: Connection, _call: Call, wanted: object) -> Wire | Later | None:
        assert isinstance(wanted, ModelListParams)
        return results.pop(0)

    results: list[Wire | Later] = [Unwritable(what=object()), later, EMPTY]
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            connection = opened({"model/list": handler}, nursery=nursery)
            connection.receive(LIST * 3)
            await trio.testing.wait_all_tasks_blocked()
    assert sent(connection) == [
        {"id": "list", "error": FAILED},
        LISTED,
        {"id": "list", "error": FAILED},
    ]
