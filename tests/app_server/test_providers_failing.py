"""Turns whose provider refuses, breaks off, or says nothing."""

import json
from pathlib import Path

import pytest
import trio

from tests.app_server.pipe import PATIENCE, Pipe
from tests.app_server.provider import (
    DIALECTS,
    Dialect,
    begun,
    calls,
    name_of,
    open_provided,
    reply,
    says,
    thinks,
)
from tests.models.loopback import END, SSE, Answer, Cut, Loopback, Silence, chunk, plain

both = pytest.mark.parametrize("dialect", DIALECTS, ids=name_of)

PROMPTLY = 2.0
"""Seconds. What is to happen at once takes milliseconds; the product's own timeouts take far longer."""


async def left(provider: Loopback) -> None:
    """Wait until the server has closed its connection to the provider."""
    with trio.fail_after(PATIENCE):
        await provider.client_left.wait()


async def texts(pipe: Pipe, thread_id: str) -> list[tuple[str, str]]:
    """Kind and text of the items of the thread's last turn, as read back."""
    items = (await pipe.call("thread/read", threadId=thread_id))["turns"][-1]["items"]
    return [(item["type"], item["text"]) for item in items]


async def start(pipe: Pipe, thread_id: str) -> None:
    answer = await pipe.call("turn/start", threadId=thread_id, text="go")
    assert answer["status"] == "started"


@pytest.mark.proves("TURN-023", "TURN-024", "TURN-025")
@both
async def test_every_failure_ends_its_turn_with_the_providers_words_and_their_kind(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Models and providers: Errors; the thread goes on afterwards."""
    refused = [
        (401, "invalid x-api-key", "auth"),
        (403, "not for you", "auth"),
        (429, "slow down", "rateLimit"),
        (400, "prompt is too long: 9 > 8 tokens", "contextOverflow"),
        (500, "it broke", "provider"),
        (529, "Overloaded", "provider"),
    ]
    broken = [("connection reset by peer", "network"), ("Overloaded", "provider"), ("bad luck", "other")]
    cases: list[tuple[Answer, str, str]] = [
        *(
            ([plain(status, error_of(text))], f"{status} {error_of(text).decode()}", kind)
            for status, text, kind in refused
        ),
        *(
            ([SSE, chunk(dialect.framed(json.loads(error_of(text)))), END], text, kind)
            for text, kind in broken
        ),
        ([Cut()], "connection error", "network"),
        ([plain(200, b'{"no": "stream"}', content_type="application/json")], '{"no": "stream"}', "provider"),
    ]
    answers = [answer for answer, _, _ in cases]
    async with open_provided(tmp_path, dialect, *answers, reply(dialect, says("Fine."))) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        for _, words, kind in cases:
            turn = (await pipe.run_turn(thread_id))["turn"]
            assert (turn["status"], turn["error"]["kind"]) == ("failed", kind), words
            assert words in turn["error"]["message"]
            assert await texts(pipe, thread_id) == [("userMessage", "go")]
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
    asked = [message["role"] for message in dialect.conversation(provider.requests[-1].json())]
    assert asked == ["user"] * (len(cases) + 1)  # the model is told nothing of replies that failed


def error_of(text: str) -> bytes:
    """An error as providers word it."""
    return json.dumps({"type": "error", "error": {"type": "some_kind", "message": text}}).encode()


@both
async def test_a_stream_cut_in_the_middle_of_its_text_fails_and_keeps_what_was_said(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server: Threads and turns; models and providers: Errors."""
    unfinished = begun(dialect, says("Half an ", "answ"))
    answers: list[Answer] = [[unfinished, Cut()], [unfinished[:-20], Cut()], reply(dialect, says("Whole."))]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        for kept in ("Half an answ", "Half an "):
            turn = (await pipe.run_turn(thread_id))["turn"]
            assert (turn["status"], turn["error"]["kind"]) == ("failed", "network")
            assert await texts(pipe, thread_id) == [("userMessage", "go"), ("agentMessage", kept)]
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
    assert [request.connection for request in provider.requests] == [1, 2, 3]


@both
async def test_a_stream_that_ends_without_saying_why_fails_its_turn(tmp_path: Path, dialect: Dialect) -> None:
    """Models and providers: Common; a reply without its end may be half a reply, and no call of it runs."""
    unfinished = begun(dialect, says("I do it."), calls("c1", "bash", command="touch ran"))
    async with open_provided(tmp_path, dialect, [unfinished, END]) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "failed"
        assert await texts(pipe, thread_id) == [("userMessage", "go"), ("agentMessage", "I do it.")]
    assert not (tmp_path / "ran").exists()


@both
async def test_an_error_in_the_middle_of_a_stream_keeps_what_was_said(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Models and providers: Errors."""
    error = chunk(dialect.framed(json.loads(error_of("Overloaded"))))
    async with open_provided(tmp_path, dialect, [begun(dialect, says("Well")), error, END]) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path)
        turn = (await pipe.run_turn(thread_id))["turn"]
        assert (turn["status"], turn["error"]["kind"]) == ("failed", "provider")
        assert await texts(pipe, thread_id) == [("userMessage", "go"), ("agentMessage", "Well")]


@pytest.mark.rule("S14", "S21")
@both
async def test_an_interrupt_ends_a_silent_stream_at_once_and_hangs_up(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server notes: Interrupts; nobody pays for tokens that nobody reads."""
    openings = [b"", SSE, begun(dialect, thinks("Hm."))]
    answers: list[Answer] = [[*filter(None, [opening]), Silence()] for opening in openings]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        for kept in ([], [], [("reasoning", "Hm.")]):
            provider.requested, provider.client_left = trio.Event(), trio.Event()
            await start(pipe, thread_id)
            with trio.fail_after(PATIENCE):
                await provider.requested.wait()
            if kept:
                await pipe.until_method("item/reasoning/delta")
            assert not provider.client_left.is_set()
            before = len(pipe.heard)
            with trio.fail_after(PROMPTLY):
                assert await pipe.call("turn/interrupt", threadId=thread_id) == {}
                await pipe.until_idle(before)
                await provider.client_left.wait()
            assert await texts(pipe, thread_id) == [("userMessage", "go"), *kept]
        ends = [params["turn"] for method, params in pipe.notifications() if method == "turn/completed"]
    assert [(end["status"], end.get("error")) for end in ends] == [("interrupted", None)] * 3
    assert [request.connection for request in provider.requests] == [1, 2, 3]


@both
async def test_the_idle_setting_bounds_a_providers_silence(tmp_path: Path, dialect: Dialect) -> None:
    """Settings: Network and retry (httpIdleTimeoutMs); before the first word and in the middle."""
    answers: list[Answer] = [[Silence()], [begun(dialect, says("So far")), Silence()]]
    async with open_provided(tmp_path, dialect, *answers, httpIdleTimeoutMs=200) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        for kept in ([], [("agentMessage", "So far")]):
            turn = (await pipe.run_turn(thread_id))["turn"]
            assert (turn["status"], turn["error"]["kind"]) == ("failed", "network")
            message = turn["error"]["message"]
            assert message.startswith("request timed out") and "0.2 s" in message
            assert await texts(pipe, thread_id) == [("userMessage", "go"), *kept]
            assert turn["completedAt"] - turn["startedAt"] >= 200
        await left(provider)


@both
async def test_the_end_of_input_during_a_stream_answers_ends_the_turn_and_hangs_up(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server: Ownership, unloading, and shutdown."""
    answer: Answer = [begun(dialect, says("So far")), Silence()]
    async with open_provided(tmp_path, dialect, answer) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        await start(pipe, thread_id)
        await pipe.until_method("item/agentMessage/delta")
        rest = await pipe.close()
        assert await pipe.exit_code() == 0
        await left(provider)
    ends = [one["params"]["turn"]["status"] for one in rest if one["method"] == "turn/completed"]
    assert ends == ["interrupted"]
