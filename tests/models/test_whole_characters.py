"""Characters stay whole, wherever a provider cuts its stream: between bytes, or between UTF-16 halves."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.events import (
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from knightcode.messages import ReplyBlock, TextBlock, ThinkingBlock, ToolCallBlock
from knightcode.models.adapters.anthropic_messages import AnthropicMessages
from knightcode.models.adapters.base import Adapter
from knightcode.models.adapters.openai_chat import OpenAIChat
from knightcode.models.auth import Credentials
from knightcode.models.characters import begins_with_half, encode_clean, ends_in_half, join_pairs
from knightcode.models.http import Http
from knightcode.models.settings import ModelSettings
from knightcode.models.wire import HttpWire
from knightcode.text import clean
from tests.models.asking import KEY, Asked, ask, ask_loopback, make_model
from tests.models.loopback import END, SSE, Answer, Wait, chunk, open_loopback

HIGH, LOW, LOST = "\ud83d", "\ude00", "\ufffd"
APIS: Final = ("openai-completions", "anthropic-messages")


def written(*events: dict[str, Any], raw: bool = False) -> bytes:
    """Events as a server writes them, halves escaped; `raw`: other characters in UTF-8."""
    return b"".join(
        b"data: " + json.dumps(event, ensure_ascii=not raw).encode() + b"\n\n" for event in events
    )


def opened(api: str, kind: str) -> list[dict[str, Any]]:
    """What comes before the pieces of a block."""
    if api == "openai-completions":
        return (
            [_chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "ls"}}])]
            if kind == "call"
            else []
        )
    block = {"text": {"type": "text"}, "thinking": {"type": "thinking"}}.get(
        kind, {"type": "tool_use", "id": "c", "name": "ls"}
    )
    return [{"type": "content_block_start", "index": 0, "content_block": block}]


def piece(api: str, kind: str, text: str) -> dict[str, Any]:
    """One delta of a block."""
    if api == "openai-completions":
        return {
            "text": _chunk(content=text),
            "thinking": _chunk(reasoning_content=text),
            "call": _chunk(tool_calls=[{"index": 0, "function": {"arguments": text}}]),
        }[kind]
    member = {"text": "text", "thinking": "thinking", "call": "partial_json"}[kind]
    return {"type": "content_block_delta", "index": 0, "delta": {member: text}}


def ended(api: str) -> list[dict[str, Any]]:
    """What ends the block and the reply."""
    if api == "openai-completions":
        return [_chunk("stop")]
    return [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


async def reply_to(api: str, kind: str, pieces: Sequence[str]) -> Asked:
    events = [*opened(api, kind), *(piece(api, kind, text) for text in pieces), *ended(api)]
    asked, _ = await ask_loopback([SSE + chunk(written(*events)) + END], ask(make_model(api)))
    return asked


# --- adapters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(9))
@pytest.mark.parametrize("api", APIS)
async def test_a_read_that_ends_inside_a_character_changes_nothing(api: str, cut: int) -> None:
    """Models and providers, "Common" (SSE)."""
    character = "é€😀".encode()
    before = written(*opened(api, "text"), piece(api, "text", "first "))
    body = written(piece(api, "text", "é€😀"), *ended(api), raw=True)
    at = body.index(character) + cut
    seen = trio.Event()
    asked = Asked(make_model(api))
    with trio.fail_after(5):
        answer: Answer = [SSE + chunk(before + body[:at]), Wait(seen), chunk(body[at:]) + END]
        async with (
            open_loopback(answer) as server,
            aclosing(Http({})) as http,
            trio.open_nursery() as nursery,
        ):
            wire = HttpWire(http, ModelSettings())
            adapter: Adapter = OpenAIChat(wire) if api == "openai-completions" else AnthropicMessages(wire)
            nursery.start_soon(adapter.stream, ask(asked.model), asked.reply, Credentials(server.url, KEY))
            while len(asked.events) < 2:  # the first delta came with the bytes before the cut
                await trio.testing.wait_all_tasks_blocked()
            assert asked.message.content == [TextBlock(text="first ")]
            seen.set()
    assert (asked.outcome, asked.message.content) == (("stop", None), [TextBlock(text="first é€😀")])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("kind", "events", "block"),
    [
        (
            "text",
            [
                TextStart(content_index=0),
                TextDelta(content_index=0, delta="a"),
                TextDelta(content_index=0, delta="😀b"),
                TextEnd(content_index=0, content="a😀b"),
            ],
            TextBlock(text="a😀b"),
        ),
        (
            "thinking",
            [
                ThinkingStart(content_index=0),
                ThinkingDelta(content_index=0, delta="a"),
                ThinkingDelta(content_index=0, delta="😀b"),
                ThinkingEnd(content_index=0, content="a😀b"),
            ],
            ThinkingBlock(thinking="a😀b"),
        ),
    ],
)
async def test_the_halves_of_a_character_in_two_deltas_are_one_character_of_the_second(
    api: str, kind: str, events: list[Any], block: ReplyBlock
) -> None:
    """Agent loop, "Streaming a reply"."""
    asked = await reply_to(api, kind, [f"a{HIGH}", f"{LOW}b"])
    if isinstance(block, ThinkingBlock) and api == "openai-completions":
        block = msgspec.structs.replace(block, thinking_signature="reasoning_content")
    assert (asked.events, asked.message.content) == (events, [block])


@pytest.mark.parametrize("api", APIS)
async def test_halves_in_the_arguments_of_a_call_are_joined(api: str) -> None:
    """Agent loop, "Streaming a reply"."""
    asked = await reply_to(api, "call", [f'{{"p":"{HIGH}', f'{LOW}"}}'])
    call = ToolCallBlock(id="c", name="ls", arguments={"p": "😀"})
    assert asked.events == [
        ToolCallStart(content_index=0, id="c", tool_name="ls"),
        ToolCallDelta(content_index=0, delta='{"p":"'),
        ToolCallDelta(content_index=0, delta='😀"}'),
        ToolCallEnd(content_index=0, tool_call=call),
    ]
    assert asked.message.content == [call]


@pytest.mark.parametrize("api", APIS)
async def test_a_half_that_stays_alone_is_replaced_before_its_block_ends(api: str) -> None:
    asked = await reply_to(api, "text", [LOW, f"{HIGH}x", "y", HIGH])
    assert asked.message.content == [TextBlock(text=f"{LOST}{LOST}xy{LOST}")]
    deltas = [event.delta for event in asked.events if isinstance(event, TextDelta)]
    assert deltas == [LOST, f"{LOST}x", "y", LOST]


@pytest.mark.parametrize(
    ("api", "events"),
    [
        (
            "openai-completions",
            [
                _chunk(tool_calls=[{"id": HIGH, "function": {"name": LOW, "arguments": {"text": HIGH}}}]),
                {"id": HIGH, "model": LOW, **_chunk("stop")},
            ],
        ),
        (
            "anthropic-messages",
            [
                {"type": "message_start", "message": {"id": HIGH, "model": LOW}},
                {
                    "type": "content_block_start",
                    "content_block": {"type": "tool_use", "id": HIGH, "name": LOW, "input": {"text": HIGH}},
                },
                *ended("anthropic-messages"),
            ],
        ),
    ],
)
async def test_what_is_no_stream_of_text_holds_no_halves(api: str, events: list[dict[str, Any]]) -> None:
    asked, _ = await ask_loopback([SSE + chunk(written(*events)) + END], ask(make_model(api)))
    assert asked.message.content == [ToolCallBlock(id=LOST, name=LOST, arguments={"text": LOST})]
    assert (asked.message.response_id, asked.message.response_model) == (LOST, LOST)
    msgspec.json.encode([asked.message, asked.events])


@pytest.mark.parametrize(
    ("api", "event", "text"),
    [
        ("openai-completions", {"error": {"message": f"no {HIGH}"}}, f'{{"message":"no {LOST}"}}'),
        ("openai-completions", {"error": f"no {HIGH}"}, f"no {LOST}"),
        ("openai-completions", _chunk(f"no {HIGH}"), f"finish_reason no {LOST}"),
        (
            "anthropic-messages",
            {"type": "message_delta", "delta": {"stop_reason": f"no {HIGH}"}},
            f"unknown stop reason: no {LOST}",
        ),
    ],
)
async def test_an_error_text_holds_no_halves(api: str, event: dict[str, Any], text: str) -> None:
    events = [event, *([{"type": "message_stop"}] if api == "anthropic-messages" else [])]
    asked, _ = await ask_loopback([SSE + chunk(written(*events)) + END], ask(make_model(api)))
    assert asked.outcome == ("error", text)
    msgspec.json.encode(asked.message)


async def test_details_of_the_thinking_are_joined_across_halves() -> None:
    """Models and providers, "OpenAI Chat Completions"."""
    details = [
        _chunk(reasoning_details=[{"type": "reasoning.text", "text": text}]) for text in (HIGH, LOW, HIGH)
    ]
    events = [*details, _chunk("stop")]
    asked, _ = await ask_loopback([SSE + chunk(written(*events)) + END], ask(make_model()))
    (block,) = asked.message.content
    assert isinstance(block, ThinkingBlock)
    assert json.loads(block.thinking_signature or "") == [{"type": "reasoning.text", "text": f"😀{LOST}"}]


# --- the reply -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.text(st.sampled_from(["a", "é", "😀", "€", HIGH, LOW]), max_size=8),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_any_cut_of_a_text_gives_the_same_text_and_deltas_that_can_be_encoded(
    text: str, cuts: list[int]
) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    edges = [0, *sorted(min(2 * cut, len(units)) for cut in cuts), len(units)]
    asked = Asked(make_model())
    block = asked.reply.open_text()
    for start, end in pairwise(edges):
        asked.reply.delta(block, units[start:end].decode("utf-16-le", "surrogatepass"))
    asked.reply.done("stop")
    deltas = [event.delta for event in asked.events if isinstance(event, TextDelta)]
    whole = clean(join_pairs(text))
    assert (asked.message.content, "".join(deltas)) == ([TextBlock(text=whole)], whole)
    msgspec.json.encode(asked.events)


def test_blocks_that_take_turns_keep_their_own_halves() -> None:
    asked = Asked(make_model())
    reply = asked.reply
    text, thought = reply.open_text(), reply.open_thinking()
    reply.delta(text, f"a{HIGH}")
    reply.delta(thought, f"b{HIGH}")
    reply.delta(text, LOW)
    reply.delta(thought, LOW)
    reply.done("stop")
    assert asked.message.content == [TextBlock(text="a😀"), ThinkingBlock(thinking="b😀")]


@pytest.mark.parametrize("end", ["fail", "abort"])
def test_a_reply_that_ends_early_leaves_out_the_half_that_nobody_was_told_of(end: str) -> None:
    """Agent loop, "Abort"."""
    asked = Asked(make_model())
    asked.reply.delta(asked.reply.open_text(), f"a{HIGH}")
    if end == "fail":
        asked.reply.fail(f"500 {HIGH}")
    else:
        asked.reply.abort()
    assert asked.message.content == [TextBlock(text="a")]
    msgspec.json.encode(asked.message)


def test_a_half_waits_without_an_event() -> None:
    asked = Asked(make_model())
    asked.reply.delta(asked.reply.open_text(), HIGH)
    assert (asked.events, asked.message.content) == ([TextStart(content_index=0)], [TextBlock(text="")])


# --- halves --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "begins", "ends", "joined"),
    [
        ("", False, False, ""),
        ("a😀", False, False, "a😀"),
        (HIGH, False, True, HIGH),
        (LOW, True, False, LOW),
        (f"{HIGH}{LOW}", False, False, "😀"),
        (f"{LOW}{HIGH}", True, True, f"{LOW}{HIGH}"),
        (f"{HIGH}{HIGH}{LOW}a{LOW}", False, False, f"{HIGH}😀a{LOW}"),
    ],
)
def test_only_halves_side_by_side_are_joined(text: str, begins: bool, ends: bool, joined: str) -> None:
    assert (begins_with_half(text), ends_in_half(text), join_pairs(text)) == (begins, ends, joined)


def test_json_never_holds_a_half() -> None:
    assert encode_clean({HIGH: ["😀", LOW]}) == f'{{"{LOST}":["😀","{LOST}"]}}'.encode()
