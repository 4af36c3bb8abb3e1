"""Each request has one answer and each question takes one, whatever goes wrong on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from knightcode.app_server.connection import Connection, Later
from knightcode.app_server.core.pending import Call
from knightcode.app_server.handlers.table import HANDLERS
from knightcode_protocol.results import ModelListResult
from knightcode_protocol.wire import Wire
from tests.app_server.memory import MemoryClient, open_memory
from tests.app_server.pipe import Message, text, tool

NOTHING = ModelListResult(models=())
FAILED = {"code": "internal", "message": "model/list failed inside the server; its log has the details"}

Served = Callable[[Connection, Call, object], Wire | Later | None]


def raises(connection: Connection, call: Call, params: object) -> None:
    raise ZeroDivisionError


def raises_later(connection: Connection, call: Call, params: object) -> Later:
    async def later() -> Wire | None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    return later


def raises_many(connection: Connection, call: Call, params: object) -> Later:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    async def later() -> Wire | None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)
        return NOTHING

    return later


def answers_and_raises(connection: Connection, call: Call, params: object) -> None:
    call.answer(NOTHING)
    raise ZeroDivisionError


def answers_and_returns(connection: Connection, call: Call, params: object) -> Wire:
    call.answer(NOTHING)
    return NOTHING


def answers_and_raises_later(connection: Connection, call: Call, params: object) -> Later:
    async def later() -> Wire | None:
        call.answer(NOTHING)
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError

    return later


def serve(client: MemoryClient, handler: Served) -> None:
    """From now on this serves the client's `model/list`."""
    client.connection.handlers = {**HANDLERS, "model/list": handler}


def answers(client: MemoryClient) -> list[Message]:
    """All answers but that of the handshake."""
    return [one for one in client.heard if "method" not in one][1:]


async def ask_on_both_sides(client: MemoryClient) -> None:
    """Ask for the list of models, and afterwards for something else, which must work."""
    await client.response(client.begin("model/list"))
    await client.request("thread/list")


@pytest.mark.rule("S84", "S81")
@pytest.mark.parametrize("handler", [raises, raises_later, raises_many])
async def test_a_handler_that_fails_gives_one_error_and_all_else_goes_on(
    tmp_path: Path, handler: Served
) -> None:
    """App Server notes: Exactly one response."""
    async with open_memory(tmp_path, [text("said")]) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        serve(client, handler)
        since = len(answers(client))
        await ask_on_both_sides(client)
        turn = await client.run_turn(thread_id)
        assert "models" in await other.request("model/list")
    assert turn["status"] == "completed"
    assert [one.get("error") for one in answers(client)[since:]] == [FAILED, None, None]


@pytest.mark.rule("S81")
@pytest.mark.parametrize("handler", [answers_and_raises, answers_and_returns, answers_and_raises_later])
async def test_a_request_that_has_its_answer_gets_no_second_one(tmp_path: Path, handler: Served) -> None:
    """App Server notes: Exactly one response."""
    async with open_memory(tmp_path) as server:
        client = server.connect()
        serve(client, handler)
        await ask_on_both_sides(client)
    first, second = answers(client)
    assert first["result"] == {"models": []}
    assert "threads" in second["result"]


@pytest.mark.rule("S83")
async def test_a_notification_of_a_client_has_no_answer_whether_it_is_right_or_wrong(tmp_path: Path) -> None:
    """App Server notes: Exactly one response."""
    wrong: list[dict[str, Any]] = [
        {"method": "initialized", "params": {}},
        {"method": "initialized", "params": 7},
        {"method": "initialize", "params": {}},
        {"method": "model/list"},
        {"method": "turn/start", "params": {"threadId": 1}},
        {"method": "turn/interrupt", "params": {"threadId": "none"}},
        {"method": "thread/start", "params": {"cwd": str(tmp_path)}},
        {"method": "nothing/of/the/kind", "params": []},
        {"method": "turn/completed", "params": {"threadId": "none"}},
    ]
    async with open_memory(tmp_path) as server:
        client = server.connect()
        client.send(*wrong)
        result = await client.request("thread/list")
    assert (len(answers(client)), result["threads"]) == (1, [])
    assert [one for one in client.heard if one.get("method") == "thread/started"] == []


@pytest.mark.rule("S86", "S40")
@pytest.mark.parametrize(
    ("first", "second", "ran"), [("accept", "decline", True), ("decline", "accept", False)]
)
async def test_of_two_answers_to_one_question_the_first_counts(
    tmp_path: Path, first: str, second: str, ran: bool
) -> None:
    """App Server notes: Exactly one response."""
    script = ([tool("bash", command="touch ran")], [text("said")])
    async with open_memory(tmp_path, *script) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        turn_id = await client.start_turn(thread_id)
        await client.until_method("item/toolCall/requestApproval")
        (question,) = client.requests()
        client.answer(question, {"decision": first})
        client.answer(question, {"decision": second})
        await client.until_completed(turn_id)
        client.answer(question, {"decision": second})
        await client.request("thread/list")
    assert (tmp_path / "ran").exists() is ran


@pytest.mark.rule("S86", "S40")
async def test_an_answer_after_the_question_was_withdrawn_runs_nothing(tmp_path: Path) -> None:
    """App Server notes: Exactly one response."""
    async with open_memory(tmp_path, [tool("bash", command="touch ran")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path, approvalMode="ask")
        turn_id = await client.start_turn(thread_id)
        await client.until_method("item/toolCall/requestApproval")
        (question,) = client.requests()
        await client.request("turn/interrupt", threadId=thread_id)
        withdrawn = await client.until_method("serverRequest/cancelled")
        client.answer(question, {"decision": "accept"})
        turn = await client.until_completed(turn_id)
        await client.request("thread/list")
    assert withdrawn == {"threadId": thread_id, "requestId": question["id"]}
    assert turn["status"] == "interrupted"
    assert not (tmp_path / "ran").exists()
