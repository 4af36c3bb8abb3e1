"""Source: app server notes, "Framing", "Error object", "Shutdown", "Exactly one response"."""

import json
from collections.abc import Container
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec import Raw

from knightcode.app_server.core.connection import MAX_HELD_FAULTS, Accepted, ConnectionCore
from knightcode.app_server.core.server_requests import ServerAnswer
from knightcode_protocol.schema import build_schema
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams
from tests.app_server.core.lines import INITIALIZE, INITIALIZED, SERVER, new_core, ready_core, sent

LIST = b'{"id":1,"method":"thread/list","params":{"limit":3}}\n'
APPROVAL = ToolCallRequestApprovalParams(
    thread_id="T", turn_id="t", item_id="i", tool="edit", input={}, decisions=("accept", "decline")
)
STOPPING = {
    "code": "shuttingDown",
    "message": "The server is shutting down; start it again and repeat the request",
}


def accept(core: ConnectionCore, data: bytes = LIST) -> Accepted:
    (action,) = core.receive(data)
    assert isinstance(action, Accepted)
    return action


def malformed(text: str) -> dict[str, Any]:
    return {
        "code": "invalidParams",
        "message": f"The request is malformed: {text}",
        "data": {"reason": "invalidMessage"},
    }


def ignored(text: str) -> dict[str, Any]:
    params = {
        "code": "invalidParams",
        "message": f"A line was ignored: {text}",
        "data": {"reason": "invalidMessage"},
    }
    return {"method": "error", "params": params}


@pytest.mark.proves("FRAMING-002", "FRAMING-003")
@pytest.mark.parametrize(
    ("request_id", "answer"),
    [
        pytest.param(b"7", b'{"id":7,"result":{"threads":[]}}\n', id="integer"),
        pytest.param(b"1.50", b'{"id":1.50,"result":{"threads":[]}}\n', id="fraction"),
        pytest.param(b'"a"', b'{"id":"a","result":{"threads":[]}}\n', id="string"),
    ],
)
def test_a_request_comes_out_with_its_params_and_goes_back_with_its_id(
    request_id: bytes, answer: bytes
) -> None:
    core = ready_core()
    request = b'{"jsonrpc":"2.0","id":%b,"method":"thread/list","params":{"limit":3}}\n' % request_id
    accepted = accept(core, request)
    assert (accepted.call.method, accepted.params) == ("thread/list", Raw(b'{"limit":3}'))
    assert accepted.call.answer({"threads": []})
    assert core.outbox.take(1000) == answer


@pytest.mark.proves("FRAMING-006")
def test_a_string_id_is_repeated() -> None:
    core = ready_core()
    accept(core, b'{"id":"h 1","method":"thread/list"}\n').call.answer({})
    assert sent(core) == [{"id": "h 1", "result": {}}]


@pytest.mark.proves("FRAMING-007")
def test_a_number_id_is_repeated() -> None:
    core = ready_core()
    accept(core, b'{"id":12,"method":"thread/list"}\n').call.answer({})
    assert sent(core) == [{"id": 12, "result": {}}]


@pytest.mark.proves("ERROR-001")
@pytest.mark.parametrize(
    "method", ["no/such", "", "initialized", "item/toolCall/requestApproval", "get_state", "item/started"]
)
def test_a_method_that_is_not_served_is_not_found(method: str) -> None:
    core = ready_core()
    assert core.receive(b'{"id":1,"method":"%b","params":5}\n' % method.encode()) == []
    refusal = {"code": "methodNotFound", "message": f"There is no method {method}"}
    assert sent(core) == [{"id": 1, "error": refusal}]


@pytest.mark.proves("START-001")
def test_a_command_record_of_rpc_mode_is_no_message_here() -> None:
    core = ready_core()
    assert core.receive(b'{"type":"get_state"}\n') == []
    assert sent(core) == [ignored("a message needs `method`, or `id` with `result` or `error`")]


def test_every_method_of_the_protocol_is_served_unless_told_otherwise() -> None:
    core = ConnectionCore(SERVER)
    core.receive(INITIALIZE + INITIALIZED)
    assert accept(core, b'{"id":1,"method":"turn/interrupt"}\n').call.method == "turn/interrupt"


def test_the_method_table_is_loaded_by_the_first_request_after_the_handshake() -> None:
    loads: list[int] = []

    def methods() -> Container[str]:
        loads.append(1)
        return {"thread/list"}

    core = ConnectionCore(SERVER, methods=methods)
    core.receive(b"x\n" + LIST + INITIALIZE + LIST + INITIALIZED)
    assert loads == []
    core.receive(LIST + LIST)
    assert loads == [1]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"ls", ignored("the line is not JSON: JSON is malformed: invalid character (byte 0)")),
        (b"[]", ignored("Expected `object`, got `array`")),
        (b"\xff", ignored("the line is not UTF-8")),
        (b"[" * 200, ignored("arrays and objects are nested deeper than 128 levels")),
        (b'{"id":null,"method":"m"}', ignored("`id` must be a string or a finite number")),
        (b'{"id":8}', {"id": 8, "error": malformed("a request needs `method`")}),
        (
            b'{"id":7,"method":5}',
            {"id": 7, "error": malformed("Expected `str`, got `int` - at `$.method`")},
        ),
    ],
)
def test_a_malformed_line_has_one_answer_and_the_next_line_is_served(
    line: bytes, answer: dict[str, Any]
) -> None:
    core = ready_core()
    accept(core, line + b"\n" + LIST).call.answer({})
    assert sent(core) == [answer, {"id": 1, "result": {}}]


@pytest.mark.proves("LIMIT-016")
def test_a_line_over_the_limit_is_told_and_the_next_line_is_served() -> None:
    core = ready_core()
    limit = 64 * 1024 * 1024
    chunk = b"x" * 65536
    for _ in range(limit // len(chunk)):
        assert core.receive(chunk) == []
    accept(core, b"x\n" + LIST).call.answer({})
    fault = {
        "code": "invalidParams",
        "message": "A line of more than 67108864 bytes was dropped",
        "data": {"reason": "lineTooLong", "limitBytes": 67108864},
    }
    assert sent(core) == [{"method": "error", "params": fault}, {"id": 1, "result": {}}]


def test_faults_before_the_handshake_are_told_after_it_and_no_more_than_a_few() -> None:
    core = new_core(max_line=200)
    core.receive(b"ls\n" + b"x" * 201 + b"\n" + INITIALIZE)
    assert [message.get("id") for message in sent(core)] == [0]
    core.receive(b"[]\n" * 100)
    assert sent(core) == []
    core.receive(INITIALIZED)
    faults = sent(core)
    assert len(faults) == MAX_HELD_FAULTS
    assert [fault["params"]["data"]["reason"] for fault in faults[:3]] == [
        "invalidMessage",
        "lineTooLong",
        "invalidMessage",
    ]


def test_faults_are_notifications_and_can_be_opted_out_of() -> None:
    core = new_core()
    core.receive(
        b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"n","version":"1"},'
        b'"capabilities":{"optOutNotifications":["error"]}}}\n' + INITIALIZED
    )
    core.receive(b"ls\n" + b'{"id":8}\n')
    assert [message["id"] for message in sent(core)] == [0, 8]


@pytest.mark.rule("S83")
@pytest.mark.parametrize(
    "line",
    [
        b'{"method":"initialized","params":5}',
        b'{"method":"no/such"}',
        b'{"method":"thread/list","params":{}}',
        b'{"method":"item/started","params":[]}',
    ],
)
def test_a_notification_is_never_answered(line: bytes) -> None:
    for core in (new_core(), ready_core()):
        core.receive(line + b"\n")
        assert sent(core) == []


def test_a_last_line_without_a_line_end_is_handled() -> None:
    core = ready_core()
    assert core.receive(LIST.rstrip()) == []
    (accepted,) = core.finish()
    assert isinstance(accepted, Accepted)
    assert core.finish() == []


def test_everything_that_the_core_says_by_itself_is_in_the_schema() -> None:
    core = ready_core(max_line=2000)
    core.receive(b"ls\n" + b"x" * 2001 + b'\n{"id":8}\n{"id":9,"method":"no/such"}\n' + INITIALIZE)
    core.withdraw(core.send_request("item/toolCall/requestApproval", APPROVAL), thread_id="T")
    core.begin_shutdown()
    core.receive(LIST)
    schema = Draft202012Validator(build_schema())
    messages = [json.loads(line) for line in core.outbox.take(1 << 20).splitlines()]
    for message in messages:
        schema.validate(message)
    assert [message.get("method", message.get("id")) for message in messages] == [
        "error",
        "error",
        8,
        9,
        0,
        "item/toolCall/requestApproval",
        "serverRequest/cancelled",
        1,
    ]


# --- the server's requests ----------------------------------------------------------------------


@pytest.mark.rule("S86")
def test_server_requests_are_numbered_and_their_answers_come_out_once() -> None:
    core = ready_core()
    assert [core.send_request("a/b", {"x": 1}), core.send_request("c/d", {})] == ["s1", "s2"]
    assert sent(core) == [
        {"id": "s1", "method": "a/b", "params": {"x": 1}},
        {"id": "s2", "method": "c/d", "params": {}},
    ]
    answers = core.receive(
        b'{"id":"s2","error":{"code":"internal","message":"no"}}\n'
        b'{"id":"s1","result":{"decision":"accept"}}\n'
        b'{"id":"s1","result":{"decision":"decline"}}\n'
    )
    assert answers == [
        ServerAnswer("s2", "c/d", error=Raw(b'{"code":"internal","message":"no"}')),
        ServerAnswer("s1", "a/b", result=Raw(b'{"decision":"accept"}')),
    ]
    assert sent(core) == []


@pytest.mark.parametrize("request_id", [b'"s2"', b'"s"', b"1", b"1.5", b'""'])
def test_a_response_to_no_open_request_is_ignored(request_id: bytes) -> None:
    core = ready_core()
    core.send_request("a/b", {})
    sent(core)
    assert core.receive(b'{"id":%b,"result":{}}\n' % request_id) == []
    assert sent(core) == []


@pytest.mark.rule("S39", "S86")
def test_a_withdrawn_request_is_told_once_and_its_late_answer_is_ignored() -> None:
    core = ready_core()
    request_id = core.send_request("a/b", {})
    sent(core)
    assert core.withdraw(request_id, thread_id="T")
    assert not core.withdraw(request_id, thread_id="T")
    assert core.receive(b'{"id":"s1","result":{}}\n') == []
    cancelled = {"threadId": "T", "requestId": "s1"}
    assert sent(core) == [{"method": "serverRequest/cancelled", "params": cancelled}]


def test_an_answered_request_cannot_be_withdrawn() -> None:
    core = ready_core()
    request_id = core.send_request("a/b", {})
    core.receive(b'{"id":"s1","result":{}}\n')
    sent(core)
    assert not core.withdraw(request_id, thread_id="T")
    assert sent(core) == []


# --- the end ------------------------------------------------------------------------------------


def test_after_shutdown_began_requests_are_refused_before_anything_else_is_checked() -> None:
    for core in (new_core(), ready_core()):
        core.begin_shutdown()
        core.receive(INITIALIZE + b'{"id":2,"method":"no/such","params":5}\n{"method":"x"}\n')
        assert sent(core) == [{"id": 0, "error": STOPPING}, {"id": 2, "error": STOPPING}]


def test_what_was_accepted_before_shutdown_is_still_answered() -> None:
    core = ready_core()
    accepted = accept(core)
    core.begin_shutdown()
    assert accepted.call.answer({"late": False})
    assert sent(core) == [{"id": 1, "result": {"late": False}}]


@pytest.mark.rule("S71", "S81")
def test_abandoned_requests_get_one_answer_and_late_results_are_dropped() -> None:
    core = ready_core()
    first, second = (accept(core) for _ in range(2))
    first.call.answer({})
    core.begin_shutdown()
    assert core.unanswered == 1
    assert core.abandon_unanswered() == 1
    assert core.unanswered == 0
    assert not second.call.answer({})
    assert core.abandon_unanswered() == 0
    assert sent(core) == [{"id": 1, "result": {}}, {"id": 1, "error": STOPPING}]


@pytest.mark.rule("S39")
def test_nothing_is_withdrawn_aloud_during_shutdown() -> None:
    core = ready_core()
    request_id = core.send_request("a/b", {})
    sent(core)
    core.begin_shutdown()
    assert core.withdraw(request_id, thread_id="T")
    assert sent(core) == []


@pytest.mark.rule("S82")
def test_a_closed_connection_drops_answers_and_notifications_and_stays_quiet() -> None:
    core = ready_core()
    accepted = accept(core)
    request_id = core.send_request("a/b", {})
    core.close()
    assert not accepted.call.answer({})
    assert not accepted.call.fail("internal", "late")
    assert not core.withdraw(request_id, thread_id="T")
    core.publish("thread/started", b"{}\n")
    assert (core.unanswered, sent(core)) == (0, [])


def test_a_client_that_does_not_read_is_cut_off_by_the_output_limit() -> None:
    core = ready_core(max_pending_output=1000)
    calls = [accept(core).call for _ in range(3)]
    calls[0].answer("x" * 900)
    calls[1].answer("x" * 900)
    assert core.outbox.overflowed
    calls[2].answer({})
    assert sent(core) == []
