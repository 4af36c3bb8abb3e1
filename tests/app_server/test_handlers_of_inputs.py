"""Handlers of `input`: what they make of an input, what they begin themselves, and what an interrupt leaves
of both.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start",
"Interrupts"; agent loop, "Hooks around a run".
"""

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.hooks import Handled, Input
from knightcode.messages import ImageBlock
from knightcode.threads.turn import PathImage, TurnInput
from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, open_memory
from tests.app_server.pipe import Message, text

Given = Input | Handled
Handler = Callable[[Given], Awaitable[Given | None]]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
ECHO = {"when": {"user": ""}, "steps": [text("{{user}}!")]}
"""Answers every input with what the model was told."""


def users(client: MemoryClient) -> list[str]:
    """What was said to the model, as it was shown."""
    return [item["text"] for item in client.items(kind="userMessage")]


def replies(client: MemoryClient) -> list[str]:
    return [item["text"] for item in client.items(kind="agentMessage")]


def statuses(client: MemoryClient) -> list[str]:
    return [told["status"]["type"] for told in client.notifications("thread/status/changed")]


def answers(client: MemoryClient, request_id: int) -> list[Message]:
    """All answers to a request, of which there should be one."""
    return [one for one in client.heard if one.get("id") == request_id and "method" not in one]


# --- what they make of an input ----------------------------------------------------------------------


async def test_handlers_change_an_input_one_after_the_other_before_anything_is_made_of_it(
    tmp_path: Path,
) -> None:
    seen: list[Given] = []
    image = ImageBlock(data=PNG, mime_type="image/png")

    async def adds(given: Given) -> Given:
        await trio.lowlevel.checkpoint()
        seen.append(given)
        return Input(f"{given.text}+1", given.images[:1]) if isinstance(given, Input) else given

    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        hooks = server.thread(thread_id).hooks
        hooks.input.add(adds)
        hooks.input.add(adds)
        sent = {"mimeType": "image/png", "data": PNG}
        await client.run_turn(thread_id, "a", clientMessageId="m", images=[sent, sent])
        assert seen == [Input("a", (image, image)), Input("a+1", (image,))]
        (shown,) = client.items(kind="userMessage")
        assert (shown["text"], shown["clientMessageId"], shown["images"]) == ("a+1+1", "m", [sent])
        assert replies(client) == ["a+1+1!"]


async def test_a_handler_that_fails_changes_nothing_and_the_next_one_is_asked(tmp_path: Path) -> None:
    async def fails(_: Given) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("no")

    async def doubles(given: Given) -> Given:
        await trio.lowlevel.checkpoint()
        return Input(given.text * 2) if isinstance(given, Input) else given

    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        for handler in (fails, doubles, fails):
            server.thread(thread_id).hooks.input.add(handler)
        assert (await client.run_turn(thread_id, "a"))["status"] == "completed"
        assert users(client) == ["aa"]


async def test_who_consumes_an_input_is_the_last_to_see_it_and_needs_no_model(tmp_path: Path) -> None:
    seen: list[tuple[str, Given]] = []

    async def consumes(given: Given) -> Given | None:
        await trio.lowlevel.checkpoint()
        seen.append(("first", given))
        return Handled() if given == Input("/ping") else None

    async def looks(given: Given) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(("second", given))

    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        thread.model = None
        thread.hooks.input.add(consumes)
        thread.hooks.input.add(looks)
        answer = await client.request("turn/start", threadId=thread_id, text="/ping")
        assert answer == {"status": "handled", "threadId": thread_id}
        error = await client.refused("turn/start", threadId=thread_id, text="go")
        assert (error["code"], error["data"]) == ("authRequired", {"reason": "noModel"})
        assert seen == [("first", Input("/ping")), ("first", Input("go")), ("second", Input("go"))]
        assert client.notifications("turn/started") == []


async def test_a_queued_input_meets_the_handlers_when_it_begins_and_one_that_is_consumed_makes_room(
    tmp_path: Path,
) -> None:
    seen: list[Given] = []

    async def consumes(given: Given) -> Given | None:
        await trio.lowlevel.checkpoint()
        seen.append(given)
        return Handled() if given == Input("/ping") else None

    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:
            thread.hooks.before_agent_start.add(gate.handler)
            await client.start_turn(thread_id, "first")
            await gate.until_visited()
            thread.hooks.input.add(consumes)
            for said in ("/ping", "second"):
                await client.request("turn/queue/add", threadId=thread_id, text=said)
            await wait_all_tasks_blocked()
            assert seen == []
            gate.open()
            await client.until_idle(thread_id)
        assert seen == [Input("/ping"), Input("second")]
        assert users(client) == ["first", "second"]
        assert client.notifications("error") == []
        assert statuses(client) == ["active", "idle"]


async def test_a_client_that_leaves_while_handlers_run_takes_its_start_not_with_it(tmp_path: Path) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        await other.request("thread/resume", threadId=thread_id)
        with Gate() as gate:
            server.thread(thread_id).hooks.input.add(gate.handler)
            client.begin("turn/start", threadId=thread_id, text="first")
            await gate.until_visited()
            client.disconnect()
            gate.open()
            assert (await other.until_method("turn/completed"))["turn"]["status"] == "completed"
            assert users(other) == ["first"]


# --- what an interrupt leaves of it ------------------------------------------------------------------


async def returns(_: Given) -> None:
    await trio.lowlevel.checkpoint()


async def changes(_: Given) -> Input:
    await trio.lowlevel.checkpoint()
    return Input("something else")


async def handles(_: Given) -> Handled:
    await trio.lowlevel.checkpoint()
    return Handled()


async def raises(_: Given) -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("no")


@pytest.mark.proves("INTERRUPT-006", "INTERRUPT-008", "INTERRUPT-009", "TURN-005")
@pytest.mark.rule("S6", "S7", "S8")
@pytest.mark.parametrize("then", [returns, changes, handles, raises])
async def test_whatever_handlers_do_once_their_start_was_cancelled_it_is_answered_once_and_nothing_begins(
    tmp_path: Path, then: Handler
) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:

            async def handler(given: Given) -> Given | None:
                thread.turns.send(TurnInput("sent before"))
                await gate.handler(given)
                thread.turns.send(TurnInput("sent after"))
                return await then(given)

            forget = thread.hooks.input.add(handler)
            start = client.begin("turn/start", threadId=thread_id, text="first", requestId="r")
            await gate.until_visited()
            await client.request("turn/interrupt", threadId=thread_id)
            cancelled = {"status": "cancelled", "threadId": thread_id, "requestId": "r"}
            assert (await client.response(start))["result"] == cancelled
            assert statuses(client) == ["active"]
            error = await client.refused("turn/start", threadId=thread_id, text="second")
            assert error["code"] == "turnInProgress"
            gate.open()
            await client.until_idle(thread_id)
            assert gate.passed == 1
            forget()
        assert client.notifications("turn/started") == []
        assert client.items() == []
        assert thread.session.path is None
        await client.run_turn(thread_id, "third")
        assert users(client) == ["third"]
        assert len(answers(client, start)) == 1


@pytest.mark.proves("INTERRUPT-004")
@pytest.mark.rule("S6", "S30")
async def test_an_interrupt_in_the_handlers_of_a_queued_input_drops_it_and_those_behind_it_without_an_error(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        with Gate() as gate:
            forget = server.thread(thread_id).hooks.input.add(gate.handler)
            first = (await client.request("turn/queue/add", threadId=thread_id, text="one"))["queueId"]
            await gate.until_visited()
            # It has begun: nobody can take it out any more.
            removed = await client.request("turn/queue/remove", threadId=thread_id, queueId=first)
            assert removed == {"removed": False}
            await client.request("turn/queue/add", threadId=thread_id, text="two")
            since = len(client.heard)
            await client.request("turn/interrupt", threadId=thread_id)
            told = client.notifications("turn/queue/updated", since=since)
            assert told == [{"threadId": thread_id, "steering": [], "followUp": []}]
            gate.open()
            await client.until_idle(thread_id)
            forget()
        assert client.notifications("error") == []
        assert client.notifications("turn/started") == []
        await client.run_turn(thread_id, "next")
        assert users(client) == ["next"]


# --- what they begin themselves ----------------------------------------------------------------------


@pytest.mark.rule("S32")
async def test_what_a_handler_sends_beside_an_input_comes_after_its_turn_and_before_the_queue(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:

            async def sends(given: Given) -> None:
                await gate.handler(given)
                if given == Input("first"):
                    thread.turns.send(TurnInput("sent"))

            thread.hooks.input.add(sends)
            start = client.begin("turn/start", threadId=thread_id, text="first", requestId="r")
            await gate.until_visited()
            await client.request("turn/queue/add", threadId=thread_id, text="queued")
            gate.open()
            assert (await client.response(start))["result"]["status"] == "started"
            await client.until_idle(thread_id)
        assert users(client) == ["first", "sent", "queued"]
        assert [told.get("requestId") for told in client.notifications("turn/started")] == ["r", None, None]
        assert statuses(client) == ["active", "idle"]


async def test_an_input_that_is_sent_to_an_idle_thread_begins_a_turn_that_nobody_asked_for(
    tmp_path: Path,
) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.thread(thread_id).turns.send(TurnInput("sent"))
        error = await client.refused("turn/start", threadId=thread_id, text="too early")
        assert error["code"] == "turnInProgress"
        await client.until_idle(thread_id)
        (started,) = client.notifications("turn/started")
        assert "requestId" not in started
        assert replies(client) == ["sent!"]
        await other.until_idle(thread_id)
        assert len(other.notifications("thread/turn/completed")) == 1
        assert other.notifications("turn/started") == []


@pytest.mark.rule("S7")
async def test_an_interrupt_cancels_what_was_sent_to_an_idle_thread_like_any_start(tmp_path: Path) -> None:
    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)
        with Gate() as gate:
            thread.hooks.input.add(gate.handler)
            thread.turns.send(TurnInput("sent"))
            await gate.until_visited()
            await client.request("turn/interrupt", threadId=thread_id)
            gate.open()
            await client.until_idle(thread_id)
        assert client.notifications("turn/started") == []


async def test_a_bad_image_of_what_a_handler_begins_is_the_refusal_of_the_start_that_it_consumed(
    tmp_path: Path,
) -> None:
    missing = PathImage(str(tmp_path / "missing.png"))
    async with open_memory(tmp_path, ECHO) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        thread = server.thread(thread_id)

        async def consumes(given: Given) -> Handled:
            await trio.lowlevel.checkpoint()
            thread.turns.send(TurnInput("look", (missing,)))
            return Handled()

        forget = thread.hooks.input.add(consumes)
        error = await client.refused("turn/start", threadId=thread_id, text="/look")
        assert (error["code"], error["data"]) == ("invalidParams", {"reason": "badImage"})
        await client.until_idle(thread_id)
        forget()
        await client.run_turn(thread_id, "next")
        assert users(client) == ["next"]
