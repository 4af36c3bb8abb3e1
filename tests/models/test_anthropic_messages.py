"""The Anthropic Messages adapter against a server of our own."""

from contextlib import aclosing
from typing import Any

import pytest
import trio
import trio.testing

from knightcode.messages import AssistantMessage, Cost, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from knightcode.models.adapters.anthropic_messages import REDACTED_TEXT, AnthropicMessages
from knightcode.models.auth import Credentials
from knightcode.models.http import Http
from knightcode.models.model import Prices
from knightcode.models.settings import ModelSettings
from knightcode.models.wire import HttpWire
from tests.models.asking import KEY, Asked, ask, ask_loopback, make_model
from tests.models.loopback import END, SSE, Answer, Cut, Silence, named, open_loopback, plain

MODEL = make_model("anthropic-messages", prices=Prices(input=1, output=10, cache_read=0.1, cache_write=2))
START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "m-1",
        "usage": {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 20},
    },
}
STOP = {"type": "message_stop"}


def opened(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **members}}


def delta(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stopped(reason: str, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or None}


def whole(*events: dict[str, Any]) -> list[bytes]:
    return [SSE + named(*events) + END]


async def test_every_event_of_a_stream_finds_its_place_in_the_reply() -> None:
    """Models and providers, "Anthropic Messages"."""
    asked, server = await ask_loopback(
        whole(
            START,
            {"type": "ping"},
            opened(0, "thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="Look "),
            delta(0, "thinking_delta", thinking="first."),
            delta(0, "signature_delta", signature="Ep"),
            delta(0, "signature_delta", signature="Xy"),
            closed(0),
            opened(1, "redacted_thinking", data="secret"),
            closed(1),
            opened(2, "text", text=""),
            delta(2, "text_delta", text="I look. é"),
            closed(2),
            {"type": "of_a_later_version", "index": 9},
            opened(3, "tool_use", id="toolu_1", name="read", input={}),
            delta(3, "input_json_delta", partial_json=""),
            delta(3, "input_json_delta", partial_json='{"path":'),
            delta(3, "input_json_delta", partial_json='"a.txt"}'),
            closed(3),
            stopped("tool_use", output_tokens=50, cache_creation_input_tokens=10),
            STOP,
        ),
        ask(MODEL),
    )
    assert asked.kinds == [
        *("thinking_start", "thinking_delta", "thinking_delta", "thinking_end"),
        *("thinking_start", "thinking_delta", "thinking_end"),
        *("text_start", "text_delta", "text_end"),
        *("toolcall_start", "toolcall_delta", "toolcall_delta", "toolcall_end"),
    ]
    cost = Cost(input=100e-6, output=500e-6, cache_read=2e-6, cache_write=20e-6, total=622e-6)
    message = asked.message
    assert message == AssistantMessage(
        timestamp=1000,
        content=[
            ThinkingBlock(thinking="Look first.", thinking_signature="EpXy"),
            ThinkingBlock(thinking=REDACTED_TEXT, thinking_signature="secret", redacted=True),
            TextBlock(text="I look. é"),
            ToolCallBlock(id="toolu_1", name="read", arguments={"path": "a.txt"}),
        ],
        api="anthropic-messages",
        provider="acme",
        model="m-1",
        usage=Usage(
            input=100, output=50, cache_read=20, cache_write=10, total_tokens=180, cost=message.usage.cost
        ),
        stop_reason="toolUse",
        raw_stop_reason="tool_use",
        response_id="msg_1",
        duration_ms=0,
    )
    assert message.usage.cost.total == pytest.approx(cost.total)
    assert asked.starts == 1
    assert server.requests[0].path == "/v1/messages"
    assert server.requests[0].headers["x-api-key"] == KEY


async def test_blocks_that_interleave_are_kept_apart_by_their_index() -> None:
    asked, _ = await ask_loopback(
        whole(
            START,
            opened(0, "tool_use", id="a", name="read"),
            opened(1, "tool_use", id="b", name="ls"),
            delta(1, "input_json_delta", partial_json='{"p":2'),
            delta(0, "input_json_delta", partial_json='{"p":1'),
            delta(1, "input_json_delta", partial_json="}"),
            closed(1),
            delta(0, "input_json_delta", partial_json="}"),
            closed(0),
            stopped("tool_use"),
            STOP,
        ),
        ask(MODEL),
    )
    assert asked.message.content == [
        ToolCallBlock(id="a", name="read", arguments={"p": 1}),
        ToolCallBlock(id="b", name="ls", arguments={"p": 2}),
    ]


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("end_turn", ("stop", None)),
        ("stop_sequence", ("stop", None)),
        ("pause_turn", ("stop", None)),
        ("max_tokens", ("length", None)),
        ("refusal", ("error", "the model refused to answer (refusal)")),
        ("sensitive", ("error", "the model refused to answer (sensitive)")),
        ("model_context_window_exceeded", ("error", "the reply did not fit: model_context_window_exceeded")),
        ("nap", ("error", "unknown stop reason: nap")),
    ],
)
async def test_a_stop_reason_decides_how_the_reply_ends(reason: str, outcome: tuple[str, str | None]) -> None:
    asked, _ = await ask_loopback(whole(START, stopped(reason), STOP), ask(MODEL))
    assert asked.outcome == outcome
    assert asked.message.raw_stop_reason == reason


async def test_a_refusal_tells_its_explanation() -> None:
    refusal = {
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "Not this."}},
    }
    asked, _ = await ask_loopback(whole(START, refusal, STOP), ask(MODEL))
    assert asked.outcome == ("error", "the model refused to answer (refusal): Not this.")


async def test_an_error_within_the_stream_keeps_what_has_arrived() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    asked, _ = await ask_loopback(
        whole(
            START,
            opened(0, "text", text=""),
            delta(0, "text_delta", text="So"),
            opened(1, "tool_use", id="a", name="ls"),
            delta(1, "input_json_delta", partial_json='{"p":'),
            error,
        ),
        ask(MODEL),
    )
    assert asked.outcome == (
        "error",
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    )
    assert asked.message.content == [TextBlock(text="So")]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (whole(START, opened(0, "text", text="So")), "the provider's stream ended before message_stop"),
        ([SSE + END], "the provider's stream ended before message_stop"),
        (whole(START, STOP), "the provider's stream ended without a stop reason"),
        (
            [plain(401, b'{"error":{"type":"authentication_error"}}')],
            '401 {"error":{"type":"authentication_error"}}',
        ),
        ([plain(529, b"overloaded")], "529 overloaded"),
    ],
)
async def test_a_stream_that_is_none_or_not_whole_ends_as_an_error(answer: list[bytes], text: str) -> None:
    asked, _ = await ask_loopback(answer, ask(MODEL))
    assert asked.outcome == ("error", text)


async def test_a_cut_connection_ends_as_an_error_with_what_has_arrived() -> None:
    asked, _ = await ask_loopback([SSE + named(START, opened(0, "text", text="So")), Cut()], ask(MODEL))
    assert asked.message.stop_reason == "error"
    assert (asked.message.error_message or "").startswith("connection error: ")
    assert asked.message.content == [TextBlock(text="So")]


@pytest.mark.parametrize(
    "data", [b"not json", b"[]", b'{"type":5}', b'{"type":"content_block_delta","delta":[]}']
)
async def test_an_event_that_cannot_be_read_is_an_error_that_quotes_it(data: bytes) -> None:
    asked, _ = await ask_loopback(
        [SSE + named(START) + b"%x\r\ndata: %s\n\n\r\n" % (len(data) + 8, data) + END], ask(MODEL)
    )
    assert asked.message.stop_reason == "error"
    text = asked.message.error_message or ""
    assert text.startswith("provider returned error: unreadable event (")
    assert text.endswith(data.decode())


async def test_silence_ends_as_a_time_out_after_the_idle_time() -> None:
    answer: Answer = [SSE + named(START, opened(0, "text", text="So")), Silence()]
    asked, _ = await ask_loopback(answer, ask(MODEL), ModelSettings(idle_timeout_ms=50))
    assert asked.outcome == ("error", "request timed out: nothing arrived for 0.05 s")
    assert asked.message.content == [TextBlock(text="So")]


async def test_giving_up_within_the_stream_closes_the_connection_and_leaves_the_reply_open() -> None:
    answer: Answer = [SSE + named(START, opened(0, "text", text="So")), Silence()]
    asked = Asked(MODEL)
    with trio.fail_after(5):
        async with open_loopback(answer) as server, aclosing(Http({})) as http:
            async with trio.open_nursery() as nursery:
                adapter = AnthropicMessages(HttpWire(http, ModelSettings()))
                credentials = Credentials(server.url, KEY)
                nursery.start_soon(adapter.stream, ask(MODEL), asked.reply, credentials)
                while not asked.events:
                    await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await server.client_left.wait()
    assert not asked.reply.finished
    asked.reply.abort()
    assert asked.outcome == ("aborted", "Request aborted")
    assert asked.message.content == [TextBlock(text="So")]
