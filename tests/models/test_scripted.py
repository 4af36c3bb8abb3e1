"""The model in the box."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.events import TextDelta
from knightcode.messages import (
    AssistantMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
)
from knightcode.models.adapters.scripted import Scripted
from knightcode.models.auth import Credentials
from knightcode.models.model import Model, Prices
from knightcode.models.request import ModelRequest
from knightcode.models.script import ScriptedConversation, ScriptError
from tests.models.asking import Asked, ask, make_model, user

MODEL = make_model("scripted", provider="scripted", id="scripted", base_url="here")


def script(*replies: Any, **members: Any) -> Scripted:
    text = msgspec.json.encode({"replies": replies, **members})
    return Scripted({"here": ScriptedConversation.parse(text, "demo.json")})


def text(words: str, **members: Any) -> dict[str, Any]:
    return {"steps": [{"text": words}], **members}


async def play(adapter: Scripted, request: ModelRequest) -> Asked:
    asked = Asked(request.model)
    with trio.fail_after(600):
        await adapter.stream(request, asked.reply, Credentials(request.model.base_url))
    return asked


async def texts(adapter: Scripted, *requests: ModelRequest) -> list[str]:
    found = []
    for request in requests:
        message = (await play(adapter, request)).message
        found.append(
            message.error_message or "".join(b.text for b in message.content if isinstance(b, TextBlock))
        )
    return found


def after_tool(name: str, output: str, *, is_error: bool = False) -> ModelRequest:
    call = AssistantMessage(timestamp=1, content=[ToolCallBlock(id="c", name=name, arguments={})])
    result = ToolResultMessage(
        timestamp=2, tool_call_id="c", tool_name=name, content=[TextBlock(text=output)], is_error=is_error
    )
    return ask(MODEL, user("do it"), call, result)


async def test_a_reply_plays_its_steps_in_order() -> None:
    adapter = script(
        {
            "steps": [
                {"thinking": "Hm."},
                {"text": "Let me "},
                {"text": "look.", "chunk": 3},
                {"toolCall": {"name": "read", "arguments": {"path": "a.txt"}}},
                {"toolCall": {"name": "ls", "id": "mine", "argumentsText": '{"path":"cut'}},
            ]
        }
    )
    asked = await play(adapter, ask(MODEL))
    assert asked.kinds == [
        *("thinking_start", "thinking_delta", "thinking_end"),
        *("text_start", "text_delta", "text_delta", "text_delta", "text_end"),
        *("toolcall_start", "toolcall_delta", "toolcall_end"),
        *("toolcall_start", "toolcall_delta", "toolcall_end"),
    ]
    assert asked.message.content == [
        ThinkingBlock(thinking="Hm."),
        TextBlock(text="Let me look."),
        ToolCallBlock(id="call_1_1", name="read", arguments={"path": "a.txt"}),
        ToolCallBlock(id="mine", name="ls", arguments={"path": "cut"}),
    ]
    assert (asked.outcome, asked.starts) == (("toolUse", None), 1)


async def test_replies_come_in_order_for_each_session_by_itself() -> None:
    adapter = script(text("one", times=2), text("two"))
    first, second = ask(MODEL, session_id="a"), ask(MODEL, session_id="b")
    assert await texts(adapter, first, first, second, first, second) == ["one", "one", "one", "two", "one"]


async def test_a_request_that_matches_comes_before_the_order() -> None:
    adapter = script(
        text("in order"),
        text("weather", when={"user": "weather"}, times=1),
        text("weather again", when={"user": "weather"}),
    )
    weather = ask(MODEL, user("the weather?"))
    assert await texts(adapter, weather, weather, ask(MODEL), weather) == [
        "weather",
        "weather again",
        "in order",
        "weather again",
    ]


@pytest.mark.parametrize(
    ("when", "request_", "matches"),
    [
        ({"user": ""}, ask(MODEL), True),
        ({"user": "Hello"}, ask(MODEL), True),
        ({"user": "hello"}, ask(MODEL), False),
        ({"user": ""}, after_tool("ls", "x"), False),
        ({"toolResult": "ls"}, after_tool("ls", "x"), True),
        ({"toolResult": "ls"}, after_tool("cat", "x"), False),
        ({"toolResult": "ls"}, ask(MODEL), False),
        ({"toolResultText": "need"}, after_tool("ls", "a needle"), True),
        ({"toolResultText": "need"}, after_tool("ls", "hay"), False),
        ({"toolError": True}, after_tool("ls", "x", is_error=True), True),
        ({"toolError": False}, after_tool("ls", "x", is_error=True), False),
        ({"toolError": False}, ask(MODEL), False),
        ({"system": "brief"}, ask(MODEL), True),
        ({"system": "long"}, ask(MODEL), False),
        ({"request": 1}, ask(MODEL), True),
        ({"request": 2}, ask(MODEL), False),
        ({"user": "Hello", "system": "long"}, ask(MODEL), False),
    ],
)
async def test_when_describes_the_request(
    when: dict[str, Any], request_: ModelRequest, matches: bool
) -> None:
    outcome = await texts(script(text("yes", when=when), text("no")), request_)
    assert outcome == ["yes" if matches else "no"]


async def test_a_request_without_reply_fails_and_says_what_was_asked() -> None:
    adapter = script(text("one"))
    await play(adapter, ask(MODEL))
    assert await texts(adapter, ask(MODEL), after_tool("ls", "x " * 100)) == [
        'demo.json has no reply to request 2 of this session, of the user, "Hello"; add one',
        "demo.json has no reply to request 3 of this session, with the result of ls, "
        f'"{"x " * 40}…"; add one',
    ]


async def test_what_was_asked_can_stand_in_the_reply() -> None:
    adapter = script(
        {
            "steps": [
                {"text": "{{request}} {{user}}: {{toolResult}} {{other}}"},
                {"toolCall": {"name": "write", "arguments": {"n": [1, "{{user}}"]}}},
            ]
        },
        {"steps": [{"error": "500 {{user}}"}]},
    )
    request = after_tool("ls", "a.txt")
    assert (await play(adapter, request)).message.content == [
        TextBlock(text="1 do it: a.txt {{other}}"),
        ToolCallBlock(id="call_1_1", name="write", arguments={"n": [1, "do it"]}),
    ]
    assert await texts(adapter, request) == ["500 do it"]


async def test_time_passes_by_the_clock_of_trio(autojump_clock: MockClock) -> None:
    adapter = script(
        {
            "steps": [
                {"waitMs": 500},
                {"text": "abcd", "chunk": 1},
                {"text": "ef", "chunk": 2, "delayMs": 1000},
            ]
        },
        pace={"delayMs": 100},
    )
    started = trio.current_time()
    await play(adapter, ask(MODEL))
    assert trio.current_time() - started == pytest.approx(0.5 + 0.4 + 1.0)


async def test_many_small_deltas_are_cheap_to_write() -> None:
    asked = await play(script({"steps": [{"text": "twenty characters...", "repeat": 20_000}]}), ask(MODEL))
    deltas = [event for event in asked.events if isinstance(event, TextDelta)]
    assert (len(deltas), {event.delta for event in deltas}) == (20_000, {"twenty characters..."})
    assert asked.message.usage.output == 100_000


async def test_an_error_before_anything_else_fails_without_a_start_and_a_later_one_keeps_what_was_said() -> (
    None
):
    early = await play(script({"steps": [{"error": "429 slow down"}]}), ask(MODEL))
    assert (early.outcome, early.starts, early.message.content) == (("error", "429 slow down"), 0, [])
    late = await play(
        script({"steps": [{"text": "So"}, {"error": "500 oops"}, {"text": "never"}]}), ask(MODEL)
    )
    assert (late.outcome, late.starts, late.message.content) == (
        ("error", "500 oops"),
        1,
        [TextBlock(text="So")],
    )


async def test_an_error_may_ask_for_a_wait_before_the_next_try() -> None:
    """Models and providers, "Agent-level retry"."""
    adapter = script(
        {"steps": [{"error": "429 slow down", "retryAfterMs": 5000}]}, {"steps": [{"error": "x"}]}
    )
    played = [await play(adapter, ask(MODEL)) for _ in range(2)]
    assert [(asked.outcome, asked.reply.retry_after_ms) for asked in played] == [
        (("error", "429 slow down"), 5000),
        (("error", "x"), None),
    ]


async def test_silence_lasts_until_the_request_is_given_up() -> None:
    asked = Asked(MODEL)
    adapter = script({"steps": [{"text": "So"}, {"silence": True}]})
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(adapter.stream, ask(MODEL), asked.reply, Credentials("here"))
            await wait_all_tasks_blocked()
            assert not asked.reply.finished
            nursery.cancel_scope.cancel()
    asked.reply.abort()
    assert (asked.outcome, asked.message.content) == (("aborted", "Request aborted"), [TextBlock(text="So")])


async def test_stop_reason_and_usage_can_be_written() -> None:
    model = make_model("scripted", base_url="here", prices=Prices(input=1, output=2))
    usage = {"input": 1_000_000, "output": 500_000, "cacheRead": 3}
    asked = await play(script(text("x", stop="length", usage=usage)), ask(model))
    assert (asked.message.stop_reason, asked.message.usage.cost.total) == ("length", 2.0)
    assert asked.message.usage.total_tokens == 1_500_003


async def test_usage_that_is_not_written_is_about_four_characters_to_a_token() -> None:
    asked = await play(script(text("x" * 9)), ask(MODEL, user("y" * 40), system_prompt="z" * 40))
    assert asked.message.usage == Usage(input=20, output=3, total_tokens=23)


async def test_a_file_that_changes_is_read_again_and_one_that_breaks_says_so(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    model = make_model("scripted", base_url=str(path))
    adapter = Scripted()
    assert await texts(adapter, ask(model)) == [
        f"{path}: cannot be read: No such file or directory; name a file that holds a script"
    ]
    path.write_text('{"replies": [{"when": {"user": ""}, "steps": [{"text": "one"}]}]}')
    assert await texts(adapter, ask(model), ask(model)) == ["one", "one"]
    path.write_text('{"replies": [}')
    path.touch()
    import os

    os.utime(path, ns=(1, 1))
    (failure,) = await texts(adapter, ask(model))
    assert failure == f"{path}: line 1, column 14: Expecting value; a script is JSON, comments allowed"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('// only\n{"replies": [,]}', "line 2, column 14: Expecting value"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "Object missing required field `replies`"),
        ('{"replies":[{"steps":[{"txt":"x"}]}]}', "unknown field `txt` - at `$.replies[0].steps[0]`"),
        ('{"replies":[{"steps":[{"text":"x","error":"y"}]}]}', "exactly one of text, thinking"),
        ('{"replies":[{"steps":[{"repeat":2}]}]}', "exactly one of text, thinking"),
        ('{"replies":[{"steps":[{"text":"x","repeat":0}]}]}', "`$.replies[0].steps[0].repeat`"),
        ('{"replies":[{"steps":[{"silence":false}]}]}', "`$.replies[0].steps[0].silence`"),
        (
            '{"replies":[{"steps":[{"text":"x","retryAfterMs":1}]}]}',
            "retryAfterMs belongs to a step with error",
        ),
        ('{"replies":[{"steps":[{"error":"x","retryAfterMs":-1}]}]}', "`$.replies[0].steps[0].retryAfterMs`"),
        (
            '{"replies":[{"steps":[{"error":"x","retryAfterMs":"5"}]}]}',
            "`$.replies[0].steps[0].retryAfterMs`",
        ),
        ('{"replies":[],"model":{"id":""}}', "`$.model.id`"),
        ('{"replies":[{"steps":[{"text":NaN}]}]}', "NaN is not a JSON value"),
    ],
)
def test_a_script_that_cannot_be_used_says_where_and_why(written: str, problem: str) -> None:
    with pytest.raises(ScriptError) as failure:
        ScriptedConversation.parse(written, "demo.json")
    assert str(failure.value).startswith("demo.json: ")
    assert problem in str(failure.value)


def test_a_script_describes_its_model() -> None:
    described = {
        "id": "tour",
        "name": "Tour",
        "contextWindow": 1000,
        "maxTokens": 100,
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 1},
    }
    conversation = ScriptedConversation.parse(msgspec.json.encode({"replies": [], "model": described}))
    assert conversation.model("here") == Model(
        provider="scripted",
        provider_name="Scripted",
        id="tour",
        name="Tour",
        api="scripted",
        base_url="here",
        prices=Prices(input=1),
        context_window=1000,
        max_tokens=100,
    )


class Censor:
    """An inspector that replaces what the user said."""

    async def before_request(self, body: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {**body, "messages": [{"role": "user", "timestamp": 1, "content": "censored"}]}

    async def after_response(self, status: int, headers: Any) -> None:
        await trio.lowlevel.checkpoint()
        assert (status, headers) == (200, {})


async def test_an_inspector_sees_and_changes_scripted_requests_too() -> None:
    adapter = script(text("seen: {{user}}"))
    assert await texts(adapter, ask(MODEL, inspector=Censor())) == ["seen: censored"]
