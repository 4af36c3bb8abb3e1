"""Which codes a method may answer with, and that each occurs where it should."""

import json
from pathlib import Path
from typing import Any

import pytest

from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.handlers.table import HANDLERS
from knightcode.app_server.main import server_info
from knightcode_protocol.errors import COMMON_ERRORS
from knightcode_protocol.methods import METHODS as TABLE
from tests.app_server.pipe import INIT, Message, lines_of, open_pipe, text, write_script
from tests.app_server.recorded import METHODS, SCHEMA

SERVED = [method for method in METHODS if method != "initialize"]
WRONG: list[Any] = [[], "x", 5, True, [{}]]


def test_every_method_of_the_protocol_has_a_handler_and_no_other_has_one() -> None:
    """App Server: Method reference."""
    assert set(HANDLERS) == set(TABLE) - {"initialize"}
    assert set(METHODS) == set(TABLE)


def test_the_schema_lists_the_common_codes_for_every_method_and_explains_each_code_it_lists() -> None:
    """App Server: Method reference."""
    for method, row in METHODS.items():
        assert {"notInitialized", "invalidParams", "shuttingDown"} <= set(row["errors"]), method
        assert set(row["errors"]) == COMMON_ERRORS | TABLE[method].errors
        assert set(row["errors"]) <= set(SCHEMA["errors"])


@pytest.mark.proves("ERROR-002", "ERROR-003")
async def test_params_of_the_wrong_shape_are_invalid_whatever_the_method(tmp_path: Path) -> None:
    """App Server: Handshake; notes, "Error object"."""
    async with open_pipe(tmp_path / "home") as pipe:
        before = await pipe.ask("initialize")
        assert before["error"]["code"] == "invalidParams"
        await pipe.send({"id": "early", "method": SERVED[0]})
        early = await pipe.until(lambda one: one.get("id") == "early")
        assert early["error"]["code"] == "notInitialized"
        await pipe.handshake()
        wrong: list[tuple[str, Any]] = [(method, params) for method in SERVED for params in WRONG]
        wrong += [
            (method, {name: value})
            for method in SERVED
            for name, value in (("threadId", 5), ("threadId", None), ("cwd", 5), ("cwd", {}))
            if name in parameters_of(method) and (value is not None or name in required_of(method))
        ]
        wrong.append(("thread/start", {"cwd": 5}))
        await pipe.send(
            *(
                {"id": number, "method": method, "params": params}
                for number, (method, params) in enumerate(wrong, 100)
            )
        )
        await pipe.close()
        answers = {one["id"]: one for one in pipe.heard}
    for number, (method, params) in enumerate(wrong, 100):
        error = answers[number].get("error", {})
        assert error.get("code") == "invalidParams", (method, params)
        assert error["message"].startswith(f"{method}: "), error
        assert "Traceback" not in error["message"]
    assert set(SERVED) == {method for method, _ in wrong}


def parameters_of(method: str) -> Message:
    """The properties of a method's params."""
    definition = METHODS[method]["params"]["$ref"].rpartition("/")[2]
    properties: Message = SCHEMA["$defs"][definition].get("properties", {})
    return properties


def required_of(method: str) -> list[str]:
    definition = METHODS[method]["params"]["$ref"].rpartition("/")[2]
    required: list[str] = SCHEMA["$defs"][definition].get("required", [])
    return required


def test_after_the_stop_began_every_method_answers_that_the_server_shuts_down() -> None:
    """App Server notes: Error object; the stop is looked at before anything else."""
    core = ConnectionCore(server_info())
    core.receive(lines_of(*INIT))
    core.outbox.take(1 << 20)
    core.begin_shutdown()
    requests = [{"id": method, "method": method} for method in [*METHODS, "no/such"]]
    assert core.receive(lines_of(*requests)) == []
    answers = [json.loads(line) for line in core.outbox.take(1 << 20).splitlines()]
    assert [(one["id"], one["error"]["code"]) for one in answers] == [
        (method, "shuttingDown") for method in [*METHODS, "no/such"]
    ]


@pytest.mark.proves("ERROR-001")
async def test_names_of_other_messages_are_no_methods(tmp_path: Path) -> None:
    """App Server: Handshake; notes, "Error object"."""
    names = [
        "no/such",
        "",
        "exit",
        "THREAD/LIST",
        "initialized",
        *SCHEMA["notifications"],
        *SCHEMA["serverRequests"],
    ]
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        for name in names:
            answer = await pipe.ask(name)
            assert answer["error"]["code"] == "methodNotFound", name
            assert name in answer["error"]["message"]


async def test_a_thread_that_does_not_exist_is_not_found_by_any_method_that_names_one(tmp_path: Path) -> None:
    """App Server notes: Error object; a thread id is no path."""
    script = write_script(tmp_path / "script.json", [text("hello")])
    (tmp_path / "home" / "agent" / "sessions").mkdir(parents=True)
    methods: dict[str, Message] = {
        "thread/resume": {},
        "thread/read": {},
        "thread/settings/update": {"approvalMode": "ask"},
        "turn/start": {"text": "x"},
        "turn/interrupt": {},
    }
    for method, more in methods.items():
        assert "threadNotFound" in METHODS[method]["errors"], (method, more)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        for thread_id in ("none", "", "../../etc/passwd", "/etc/passwd", "*", "a\0b", "x" * 5_000, "ü\u2028"):
            for method, more in methods.items():
                answer = await pipe.ask(method, threadId=thread_id, **more)
                assert answer["error"]["code"] == "threadNotFound", (method, thread_id)
        assert await pipe.call("thread/unsubscribe", threadId="none") == {"status": "notSubscribed"}
    assert not any(method != "error" for method, _ in pipe.notifications())


@pytest.mark.proves("LIMIT-003")
async def test_a_long_failure_of_a_provider_is_cut_in_what_listings_get(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    script = write_script(tmp_path / "script.json", [text("begun"), {"error": "ä" * 5_000}])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        turn = (await pipe.run_turn(thread_id))["turn"]
        summaries = [
            params["turn"] for method, params in pipe.notifications() if method == "thread/turn/completed"
        ]
    assert turn["error"]["message"] == "ä" * 2_000
    assert summaries == [turn]
