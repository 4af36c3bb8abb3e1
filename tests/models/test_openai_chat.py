"""The Chat Completions adapter against a server of our own."""

import json
from typing import Any

import pytest

from knightcode.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from tests.models.asking import KEY, Asked, ask, ask_loopback, make_model
from tests.models.loopback import END, SSE, Cut, chunk, head, plain, records

MODEL = make_model()
DONE = "[DONE]"


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(index: int | None, **members: Any) -> dict[str, Any]:
    entry = {name: value for name, value in members.items() if name == "id"}
    function = {name: value for name, value in members.items() if name != "id"}
    return piece(tool_calls=[{"index": index, "function": function, **entry}])


async def reply_to(*events: object, **changes: Any) -> Asked:
    asked, _ = await ask_loopback([SSE + records(*events) + END], ask(make_model(**changes)))
    return asked


async def test_text_thinking_and_calls_become_blocks_that_end_with_the_stream() -> None:
    """Models and providers, "OpenAI Chat Completions"."""
    asked, server = await ask_loopback(
        [
            SSE
            + records(
                piece(role="assistant", content=""),
                piece(reasoning_content="Look "),
                piece(reasoning_content="first."),
                piece(content="I "),
                piece(content="look."),
                call(0, id="call_1", name="read", arguments=""),
                call(0, arguments='{"path":'),
                call(1, id="call_2", name="ls", arguments='{"path":"."'),
                call(0, arguments='"a.txt"}'),
                call(1, arguments="}"),
                piece("tool_calls"),
                {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 7}},
                DONE,
            )
            + END
        ],
        ask(MODEL),
    )
    assert asked.kinds == [
        *("thinking_start", "thinking_delta", "thinking_delta"),
        *("text_start", "text_delta", "text_delta"),
        *("toolcall_start", "toolcall_delta", "toolcall_start", "toolcall_delta"),
        *("toolcall_delta", "toolcall_delta"),
        *("thinking_end", "text_end", "toolcall_end", "toolcall_end"),
    ]
    assert asked.message == AssistantMessage(
        timestamp=1000,
        content=[
            ThinkingBlock(thinking="Look first.", thinking_signature="reasoning_content"),
            TextBlock(text="I look."),
            ToolCallBlock(id="call_1", name="read", arguments={"path": "a.txt"}),
            ToolCallBlock(id="call_2", name="ls", arguments={"path": "."}),
        ],
        api="openai-completions",
        provider="acme",
        model="m-1",
        usage=Usage(input=100, output=7, total_tokens=107),
        stop_reason="toolUse",
        raw_stop_reason="tool_calls",
        response_id="c1",
        duration_ms=0,
    )
    assert server.requests[0].path == "/chat/completions"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("cut_every", [1, 7, 1000])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
async def test_cuts_line_ends_and_comments_change_nothing(ending: bytes, cut_every: int) -> None:
    text = json.dumps(piece("stop", content="Grüße 😀"), ensure_ascii=False).encode()
    body = (b": keep-alive\n\ndata: " + text + b"\n\ndata: [DONE]\n\n").replace(b"\n", ending)
    pieces = [chunk(body[at : at + cut_every]) for at in range(0, len(body), cut_every)]
    asked, _ = await ask_loopback([SSE, *pieces, END], ask(MODEL))
    assert (asked.message.content, asked.outcome) == ([TextBlock(text="Grüße 😀")], ("stop", None))


async def test_one_huge_event_is_one_delta() -> None:
    asked = await reply_to(piece("stop", content="x" * 3_000_000), DONE)
    assert asked.message.content == [TextBlock(text="x" * 3_000_000)]
    assert asked.kinds == ["text_start", "text_delta", "text_end"]


async def test_a_stream_without_done_and_without_chunks_is_whole_once_it_gave_its_reason() -> None:
    body = b"data: " + json.dumps(piece("stop", content="Hi")).encode()
    asked, _ = await ask_loopback([head(content_type="text/event-stream") + body, Cut()], ask(MODEL))
    assert (asked.message.content, asked.outcome) == ([TextBlock(text="Hi")], ("stop", None))


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("stop", ("stop", None)),
        ("end", ("stop", None)),
        ("length", ("length", None)),
        ("tool_calls", ("toolUse", None)),
        ("function_call", ("toolUse", None)),
        ("content_filter", ("error", "finish_reason content_filter")),
        ("network_error", ("error", "finish_reason network_error")),
    ],
)
async def test_a_finish_reason_decides_how_the_reply_ends(
    reason: str, outcome: tuple[str, str | None]
) -> None:
    asked = await reply_to(piece(content="x"), piece(reason), DONE)
    assert asked.outcome == outcome


@pytest.mark.parametrize("events", [[piece(content="So"), DONE], [piece(content="So")], []])
async def test_a_stream_without_finish_reason_is_an_error(events: list[object]) -> None:
    asked = await reply_to(*events)
    assert asked.outcome == ("error", "response ended without finish_reason")


async def test_a_server_that_gives_no_reason_is_believed_where_that_is_known() -> None:
    compat = {"supportsFinishReason": False}
    assert (await reply_to(piece(content="x"), DONE, compat=compat)).outcome == ("stop", None)
    assert (await reply_to(call(0, id="a", name="ls", arguments="{}"), compat=compat)).outcome == (
        "toolUse",
        None,
    )


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"error": {"message": "Rate limit", "code": 429}}, '{"message":"Rate limit","code":429}'),
        ({"error": "overloaded"}, "overloaded"),
    ],
)
async def test_an_error_within_the_stream_keeps_what_has_arrived(event: object, text: str) -> None:
    asked = await reply_to(piece(content="So"), event, piece("stop"))
    assert asked.outcome == ("error", text)
    assert asked.message.content == [TextBlock(text="So")]


async def test_an_event_named_error_is_one() -> None:
    body = chunk(b'event: error\ndata: {"message":"overloaded"}\n\n')
    asked, _ = await ask_loopback([SSE + body + END], ask(MODEL))
    assert asked.outcome == ("error", '{"message":"overloaded"}')


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, b'{"error":{"message":"Incorrect API key"}}', '401 {"error":{"message":"Incorrect API key"}}'),
        (429, b"slow down", "429 slow down"),
        (500, b"", "500 (no body)"),
    ],
)
async def test_a_refused_request_ends_without_a_start(status: int, body: bytes, text: str) -> None:
    asked, _ = await ask_loopback([plain(status, body)], ask(MODEL))
    assert (asked.outcome, asked.starts, asked.events) == (("error", text), 0, [])


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            },
            Usage(input=30, output=5, cache_read=60, cache_write=10, total_tokens=105),
        ),
        (
            {"prompt_tokens": 100, "prompt_cache_hit_tokens": 60},
            Usage(input=40, cache_read=60, total_tokens=100),
        ),
        ({"prompt_tokens": 100, "cached_tokens": 60.0}, Usage(input=40, cache_read=60, total_tokens=100)),
        ({"prompt_tokens": 10, "cached_tokens": 60}, Usage(input=0, cache_read=60, total_tokens=60)),
        ({"prompt_tokens": None, "completion_tokens": None}, Usage()),
    ],
)
async def test_usage_is_read_in_every_dialect(usage: dict[str, Any], expected: Usage) -> None:
    last = piece("stop", content="x")
    assert (await reply_to({**last, "usage": usage})).message.usage == expected
    last["choices"][0]["usage"] = usage
    assert (await reply_to(last)).message.usage == expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
async def test_the_field_of_the_thinking_becomes_its_signature(field: str) -> None:
    asked = await reply_to(piece(**{field: "hm"}), piece("stop", content="x"))
    assert asked.message.content[0] == ThinkingBlock(thinking="hm", thinking_signature=field)


async def test_reasoning_details_are_joined_and_kept_as_the_signature() -> None:
    details: list[dict[str, Any]] = [
        {"type": "reasoning.text", "index": 0, "text": "Look "},
        {"type": "reasoning.text", "index": 0, "text": "first", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "d"},
    ]
    asked = await reply_to(
        piece(reasoning="Look ", reasoning_details=details[:1]),
        piece(reasoning="first", reasoning_details=details[1:]),
        piece("stop", content="x"),
    )
    thinking = asked.message.content[0]
    assert isinstance(thinking, ThinkingBlock)
    assert thinking.thinking == "Look first"
    assert json.loads(thinking.thinking_signature or "") == [
        {"type": "reasoning.text", "index": 0, "text": "Look first", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "d"},
    ]


async def test_reasoning_details_that_hold_no_text_where_it_belongs_are_kept_as_they_are() -> None:
    details = [{"type": "reasoning.text", "text": text} for text in ("Look", 5, ["x"])]
    asked = await reply_to(piece(reasoning_details=details), piece("stop"))
    thinking = asked.message.content[0]
    assert isinstance(thinking, ThinkingBlock)
    assert json.loads(thinking.thinking_signature or "") == details


async def test_details_without_text_still_make_a_block() -> None:
    asked = await reply_to(
        piece(reasoning_details=[{"type": "reasoning.encrypted", "data": "d"}]), piece("stop")
    )
    assert asked.message.content == [
        ThinkingBlock(thinking="", thinking_signature='[{"type":"reasoning.encrypted","data":"d"}]')
    ]


@pytest.mark.parametrize(
    "events",
    [
        [call(0, id="a", name="ls", arguments="{}"), call(0, id="b", name="cat", arguments="{}")],
        [call(None, id="a", name="ls", arguments="{}"), call(None, id="b", name="cat", arguments="{}")],
        [call(0, id="a", arguments="{"), call(0, name="ls", arguments="}"), call(1, id="b", name="cat")],
        [
            call(None, id="a", name="ls", arguments="{"),
            call(None, arguments="}"),
            call(None, id="b", name="cat"),
        ],
        [
            piece(tool_calls=[{"index": 0, "id": "a", "function": {"name": "ls", "arguments": {}}}]),
            call(1, id="b", name="cat"),
        ],
    ],
)
async def test_calls_are_told_apart_however_the_server_numbers_them(events: list[object]) -> None:
    asked = await reply_to(*events, piece("tool_calls"))
    assert asked.message.content == [
        ToolCallBlock(id="a", name="ls", arguments={}),
        ToolCallBlock(id="b", name="cat", arguments={}),
    ]


async def test_calls_without_ids_get_ids_of_their_own() -> None:
    asked = await reply_to(call(0, name="ls"), call(1, name="ls"), call(2), piece("tool_calls"))
    blocks = [block for block in asked.message.content if isinstance(block, ToolCallBlock)]
    assert [(block.id, block.name) for block in blocks] == [
        ("call_1000_0", "ls"),
        ("call_1000_1", "ls"),
        ("call_1000_2", ""),
    ]


async def test_another_model_that_answers_is_named() -> None:
    asked = await reply_to({**piece("stop", content="x"), "model": "m-1-2026"})
    assert asked.message.response_model == "m-1-2026"


async def test_half_a_surrogate_pair_is_replaced_and_unknown_members_are_ignored() -> None:
    event = b'{"future":1,"choices":[{"delta":{"content":"\\ud83d","audio":{}},"finish_reason":"stop"}]}'
    assert (await reply_to(event)).message.content == [TextBlock(text="\ufffd")]


async def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "other"}, "x", {"type": "text", "text": "b"}]
    assert (await reply_to(piece("stop", content=parts))).message.content == [TextBlock(text="ab")]


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b'{"choices":{}}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":[],"usage":{"cost":NaN}}',
        b'{"choices":[],"future":' + b"[" * 100_000,
        b"\xff",
    ],
    ids=lambda data: repr(data[:30]),
)
async def test_a_chunk_that_cannot_be_read_is_an_error(data: bytes) -> None:
    asked = await reply_to(piece(content="So"), data)
    assert asked.message.stop_reason == "error"
    assert (asked.message.error_message or "").startswith("provider returned error: unreadable event (")
