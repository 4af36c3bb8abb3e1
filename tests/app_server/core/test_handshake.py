"""Source: app server, "Handshake"; app server notes, "Handshake and connection modes"."""

import json
from typing import Any

import pytest

from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.core.handshake import STEPS, Phase, arch_of
from knightcode_protocol.methods import METHODS
from tests.app_server.core.lines import INITIALIZE, INITIALIZED, SERVER, new_core, ready_core, sent

CLIENT = {"name": "example", "version": "1.0"}
RESULT = {
    "serverInfo": {"name": "knightcode", "version": "0.9.2"},
    "platform": {"os": "linux", "arch": "x64", "homeDir": "/home/ana"},
}


def initialize(request_id: object = 1, **params: Any) -> bytes:
    message = {"id": request_id, "method": "initialize", "params": {"clientInfo": CLIENT} | params}
    return json.dumps(message).encode() + b"\n"


@pytest.mark.proves("HANDSHAKE-001", "HANDSHAKE-003", "HANDSHAKE-004", "HANDSHAKE-006")
def test_initialize_is_answered_with_server_and_platform_and_nothing_else() -> None:
    core = new_core()
    assert core.receive(INITIALIZE) == []
    assert sent(core) == [{"id": 0, "result": RESULT}]
    assert core.receive(INITIALIZED) == []
    assert sent(core) == []


@pytest.mark.proves("HANDSHAKE-014", "HANDSHAKE-015")
def test_requests_before_initialized_are_refused_whatever_their_method() -> None:
    core = new_core()
    before = "came before the handshake was complete; send initialize, then initialized"
    core.receive(b'{"id":1,"method":"thread/list"}\n{"id":2,"method":"no/such"}\n')
    core.receive(initialize(3) + b'{"id":4,"method":"thread/list"}\n')
    assert sent(core) == [
        {"id": 1, "error": {"code": "notInitialized", "message": f"thread/list {before}"}},
        {"id": 2, "error": {"code": "notInitialized", "message": f"no/such {before}"}},
        {"id": 3, "result": RESULT},
        {"id": 4, "error": {"code": "notInitialized", "message": f"thread/list {before}"}},
    ]


@pytest.mark.proves("HANDSHAKE-016")
@pytest.mark.parametrize("before", [b"", INITIALIZE])
def test_every_method_but_initialize_needs_the_handshake(before: bytes) -> None:
    core = ConnectionCore(SERVER)
    core.receive(before)
    sent(core)
    methods = [method for method in METHODS if method != "initialize"]
    for method in methods:
        assert core.receive(b'{"id":"%b","method":"%b"}\n' % (method.encode(), method.encode())) == []
    assert [(answer["id"], answer["error"]["code"]) for answer in sent(core)] == [
        (method, "notInitialized") for method in methods
    ]


@pytest.mark.proves("HANDSHAKE-013")
def test_requests_are_accepted_from_initialized_on() -> None:
    core = new_core()
    (accepted,) = core.receive(INITIALIZE + INITIALIZED + b'{"id":1,"method":"thread/list"}\n')
    assert repr(accepted).startswith("Accepted(call=Call(1, 'thread/list')")


@pytest.mark.parametrize("after", [b"", INITIALIZED])
def test_a_second_initialize_is_refused_and_changes_nothing(after: bytes) -> None:
    core = new_core()
    core.receive(initialize(1, mode="terminal") + after + initialize("again", mode="desktop"))
    assert sent(core) == [
        {"id": 1, "result": RESULT},
        {
            "id": "again",
            "error": {
                "code": "invalidParams",
                "message": "initialize was answered before; open a new connection to begin again",
                "data": {"reason": "alreadyInitialized"},
            },
        },
    ]
    assert core.mode == "terminal"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"clientInfo": None}, "Expected `object`, got `null` - at `$.clientInfo`"),
        ({"clientInfo": {"name": "x"}}, "Object missing required field `version` - at `$.clientInfo`"),
        ({"clientInfo": CLIENT | {"name": ""}}, "Expected `str` of length >= 1 - at `$.clientInfo.name`"),
        (
            {"clientInfo": CLIENT | {"name": "n" * 201}},
            "Expected `str` of length <= 200 - at `$.clientInfo.name`",
        ),
        (
            {"clientInfo": CLIENT | {"title": "n" * 201}},
            "Expected `str` of length <= 200 - at `$.clientInfo.title`",
        ),
        ({"mode": "web"}, "Invalid enum value 'web' - at `$.mode`"),
        (
            {"capabilities": {"optOutNotifications": "item/started"}},
            "Expected `array | null`, got `str` - at `$.capabilities.optOutNotifications`",
        ),
        (
            {"capabilities": {"optOutNotifications": ["a/b"] * 257}},
            "Expected `array` of length <= 256 - at `$.capabilities.optOutNotifications`",
        ),
    ],
)
@pytest.mark.proves("LIMIT-001")
def test_a_failed_initialize_says_why_and_may_be_repeated(params: dict[str, Any], text: str) -> None:
    core = new_core()
    core.receive(initialize(1, **params) + initialize(2))
    refusal = {"code": "invalidParams", "message": f"initialize: {text}"}
    assert sent(core) == [{"id": 1, "error": refusal}, {"id": 2, "result": RESULT}]


def test_initialize_without_params_is_refused() -> None:
    core = new_core()
    core.receive(b'{"id":1,"method":"initialize"}\n{"id":2,"method":"initialize","params":[]}\n')
    assert [message["error"]["message"] for message in sent(core)] == [
        "initialize: Object missing required field `clientInfo`",
        "initialize: Expected `object`, got `array`",
    ]


@pytest.mark.parametrize(
    "params",
    [
        {"capabilities": None, "mode": None},
        {"capabilities": {"optOutNotifications": None, "later": 1}, "later": {}},
        {"clientInfo": CLIENT | {"title": None, "later": True}},
        {"capabilities": {"optOutNotifications": ["no/such"] * 256}},
        {"clientInfo": {"name": "ä" * 200, "version": "1", "title": "t" * 200}},
    ],
)
@pytest.mark.proves("HANDSHAKE-006", "HANDSHAKE-008", "LIMIT-001")
def test_null_members_unknown_members_and_full_lists_are_accepted(params: dict[str, Any]) -> None:
    core = new_core()
    core.receive(initialize(1, **params))
    assert sent(core) == [{"id": 1, "result": RESULT}]


@pytest.mark.parametrize(
    ("params", "mode"),
    [
        ({}, "desktop"),
        ({"mode": "terminal"}, "terminal"),
        ({"capabilities": {"mode": "terminal"}}, "terminal"),
        ({"mode": "desktop", "capabilities": {"mode": "terminal"}}, "desktop"),
    ],
)
def test_the_mode_is_read_at_either_place(params: dict[str, Any], mode: str) -> None:
    core = new_core()
    core.receive(initialize(1, **params))
    assert core.mode == mode


def test_a_connection_may_have_another_default_mode() -> None:
    core = new_core(default_mode="terminal")
    core.receive(INITIALIZE)
    assert core.mode == "terminal"


def test_initialized_before_initialize_or_twice_is_ignored() -> None:
    core = new_core()
    core.receive(INITIALIZED + INITIALIZE)
    core.publish("thread/closed", b"early\n")
    assert [message["id"] for message in sent(core)] == [0]
    core.receive(INITIALIZED + INITIALIZED)
    core.publish("thread/closed", b"late\n")
    assert core.outbox.take(1 << 20) == b"late\n"


@pytest.mark.proves("HANDSHAKE-009")
def test_notifications_are_sent_after_initialized_unless_opted_out() -> None:
    core = new_core()
    core.publish("thread/started", b'{"method":"thread/started","params":1}\n')
    core.receive(initialize(1, capabilities={"optOutNotifications": ["item/started", "serverRequest"]}))
    core.publish("thread/started", b'{"method":"thread/started","params":2}\n')
    core.receive(INITIALIZED)
    core.publish("thread/started", b'{"method":"thread/started","params":3}\n')
    core.publish("item/started", b'{"method":"item/started","params":4}\n')
    core.publish("serverRequest/cancelled", b'{"method":"serverRequest/cancelled","params":5}\n')
    assert [message.get("params") for message in sent(core)] == [None, 3, 5]


@pytest.mark.proves("HANDSHAKE-011", "HANDSHAKE-012")
def test_an_opt_out_stops_neither_responses_nor_server_requests() -> None:
    core = new_core()
    names = ["thread/list", "item/toolCall/requestApproval"]
    core.receive(initialize(1, capabilities={"optOutNotifications": names}) + INITIALIZED)
    (accepted,) = core.receive(b'{"id":2,"method":"thread/list"}\n')
    accepted.call.answer({})  # type: ignore[union-attr]
    core.send_request("item/toolCall/requestApproval", {})
    assert sent(core)[1:] == [
        {"id": 2, "result": {}},
        {"id": "s1", "method": "item/toolCall/requestApproval", "params": {}},
    ]


@pytest.mark.proves("HANDSHAKE-007")
def test_an_opt_out_binds_its_own_connection_only() -> None:
    one, other = new_core(), ready_core()
    one.receive(initialize(1, capabilities={"optOutNotifications": ["item/started"]}) + INITIALIZED)
    sent(one)
    for core in (one, other):
        core.publish("item/started", b'{"method":"item/started"}\n')
    assert (sent(one), sent(other)) == ([], [{"method": "item/started"}])


def test_the_table_holds_the_two_steps_there_are() -> None:
    assert dict(STEPS) == {
        (Phase.NEW, "initialize"): Phase.GREETED,
        (Phase.GREETED, "initialized"): Phase.READY,
    }


@pytest.mark.parametrize(
    ("machine", "arch"),
    [("x86_64", "x64"), ("AMD64", "x64"), ("aarch64", "arm64"), ("arm64", "arm64"), ("RISCV64", "riscv64")],
)
def test_machine_names_become_the_words_of_the_protocol(machine: str, arch: str) -> None:
    assert arch_of(machine) == arch
