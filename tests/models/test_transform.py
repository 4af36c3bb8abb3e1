"""A conversation made fit for another model."""

from typing import Any

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    ModelMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from knightcode.models.adapters.base import output_limit, prompt_tokens
from knightcode.models.adapters.transform import IMAGE_OMITTED, NO_RESULT, prepare_messages
from tests.models.asking import ask, make_model, user

MODEL = make_model()
BLIND = make_model(input=("text",))
PNG = ImageBlock(data="aWk=", mime_type="image/png")


def said(*content: Any, **changes: Any) -> AssistantMessage:
    known = {"provider": "acme", "api": "openai-completions", "model": "m-1"}
    return AssistantMessage(timestamp=2, content=list(content), **{**known, **changes})


def call(call_id: str, **changes: Any) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="ls", arguments={}, **changes)


def result(call_id: str, *content: Any, **changes: Any) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=3, tool_call_id=call_id, tool_name="ls", content=list(content), **changes
    )


def missing(call_id: str, timestamp: int) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=timestamp,
        tool_call_id=call_id,
        tool_name="ls",
        content=[TextBlock(text=NO_RESULT)],
        is_error=True,
    )


def test_runs_of_images_become_one_line_for_a_model_without_eyes() -> None:
    """Models and providers, "Common"."""
    messages: list[ModelMessage] = [
        UserMessage(timestamp=1, content=[TextBlock(text="a"), PNG, PNG, TextBlock(text="b"), PNG]),
        said(call("1")),
        result("1", PNG),
    ]
    omitted = TextBlock(text=IMAGE_OMITTED)
    assert prepare_messages(messages, BLIND, str.upper) == [
        UserMessage(timestamp=1, content=[TextBlock(text="a"), omitted, TextBlock(text="b"), omitted]),
        said(call("1")),
        result("1", omitted),
    ]


def test_failed_and_aborted_replies_go_with_their_results() -> None:
    messages: list[ModelMessage] = [
        user("a"),
        said(call("1"), stop_reason="aborted"),
        result("1"),
        said(TextBlock(text="x"), stop_reason="error"),
        user("b"),
    ]
    assert prepare_messages(messages, MODEL, str.upper) == [user("a"), user("b")]


def test_every_call_has_one_result_and_every_result_a_call() -> None:
    messages: list[ModelMessage] = [
        result("0"),
        said(call("1"), call("2")),
        result("2"),
        result("2"),
        user("next"),
        said(call("3")),
    ]
    assert prepare_messages(messages, MODEL, str.upper) == [
        said(call("1"), call("2")),
        result("2"),
        missing("1", 1),
        user("next"),
        said(call("3")),
        missing("3", 2),
    ]


def test_the_same_model_gets_its_reply_back_as_it_was() -> None:
    reply = said(
        ThinkingBlock(thinking="", thinking_signature="s"),
        ThinkingBlock(thinking="", thinking_signature="d", redacted=True),
        ThinkingBlock(thinking="hm"),
        TextBlock(text="a", text_signature="s"),
        call("x|y", thought_signature="s"),
    )
    assert prepare_messages([reply, result("x|y")], MODEL, str.upper) == [reply, result("x|y")]


def test_another_model_gets_text_and_ids_that_it_accepts() -> None:
    reply = said(
        ThinkingBlock(thinking="signed", thinking_signature="s"),
        ThinkingBlock(thinking="gone", thinking_signature="d", redacted=True),
        ThinkingBlock(thinking=" "),
        TextBlock(text="a", text_signature="s"),
        call("x", thought_signature="s"),
        model="m-0",
    )
    assert prepare_messages([reply, result("x")], MODEL, str.upper) == [
        said(TextBlock(text="signed"), TextBlock(text="a"), call("X"), model="m-0"),
        result("X"),
    ]


def test_empty_thinking_is_dropped_for_the_same_model_too() -> None:
    assert prepare_messages([said(ThinkingBlock(thinking=" "), TextBlock(text="a"))], MODEL, str.upper) == [
        said(TextBlock(text="a"))
    ]


def test_nothing_stays_nothing() -> None:
    assert prepare_messages([], MODEL, str.upper) == []


def test_the_size_of_a_request_is_what_was_reported_and_what_came_since() -> None:
    reported = said(
        TextBlock(text="x" * 1000), usage=Usage(input=100, output=20, cache_read=3, cache_write=4)
    )
    assert prompt_tokens(ask(MODEL, user("y" * 400), reported, user("z" * 40))) == 127 + 15
    assert prompt_tokens(ask(MODEL, user("z" * 40), system_prompt="s" * 40)) == 30
    assert prompt_tokens(ask(MODEL, UserMessage(timestamp=1, content=[PNG]), system_prompt="")) == 1800


def test_the_output_limit_leaves_room_for_the_request() -> None:
    """Models and providers, "Common"; agent loop, "Building the provider request"."""
    roomy, tight = make_model(max_tokens=100_000), make_model(context_window=5000)
    assert output_limit(ask(roomy)) == 32_000
    assert output_limit(ask(roomy, max_tokens=50_000)) == 50_000
    assert output_limit(ask(tight, user(""), system_prompt="")) == 904
    assert output_limit(ask(tight, user("x" * 100_000))) == 1
