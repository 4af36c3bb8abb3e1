"""Requests in the form of the Chat Completions api."""

from typing import Any

import pytest

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.models.adapters.openai_body import (
    BRIDGE,
    IMAGES_ABOVE,
    NO_OUTPUT,
    build_request,
    id_normaliser,
)
from knightcode.models.adapters.openai_compat import compat_of
from knightcode.models.auth import Credentials
from knightcode.models.request import ModelRequest, ToolSpec
from tests.models.asking import ask, make_model, user

PNG = ImageBlock(data="aWk=", mime_type="image/png")
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWk="}}
LS = ToolSpec("ls", "List", {"type": "object", "properties": {}})


def body_of(request: ModelRequest) -> dict[str, Any]:
    return build_request(request, Credentials("https://api.acme.example/v1", "k")).body


def messages_of(*messages: Any, **changes: Any) -> list[dict[str, Any]]:
    request = ask(make_model(**changes), *messages, system_prompt="")
    found: list[dict[str, Any]] = body_of(request)["messages"]
    return found


def said(*content: Any) -> AssistantMessage:
    return AssistantMessage(
        timestamp=2, content=list(content), provider="acme", api="openai-completions", model="m-1"
    )


def call(call_id: str) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name="ls", arguments={"path": "."})


def result(call_id: str, *content: Any) -> ToolResultMessage:
    return ToolResultMessage(timestamp=3, tool_call_id=call_id, tool_name="ls", content=list(content))


def test_a_whole_conversation_becomes_one_body() -> None:
    """Models and providers, "OpenAI Chat Completions"."""
    messages = (
        UserMessage(timestamp=1, content=[TextBlock(text="Describe"), PNG]),
        said(TextBlock(text="One"), TextBlock(text="two"), call("a"), call("b")),
        result("a", TextBlock(text="x"), PNG),
        result("b"),
        user("And?"),
    )
    request = ask(make_model(), *messages, tools=(LS,), tool_choice="none", temperature=0.0)
    call_part = {"type": "function", "function": {"name": "ls", "arguments": '{"path":"."}'}}
    assert body_of(request) == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
        "max_completion_tokens": 16_384,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Describe"}, PNG_PART]},
            {
                "role": "assistant",
                "content": "One\ntwo",
                "tool_calls": [{"id": "a", **call_part}, {"id": "b", **call_part}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "x"},
            {"role": "tool", "tool_call_id": "b", "content": NO_OUTPUT},
            {"role": "user", "content": [{"type": "text", "text": IMAGES_ABOVE}, PNG_PART]},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "ls",
                    "description": "List",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
        "tool_choice": "none",
        "temperature": 0.0,
    }


def test_a_reply_of_calls_alone_has_no_content_and_an_empty_one_is_left_out() -> None:
    sent = messages_of(
        user("a"), said(TextBlock(text=" ")), said(call("1")), result("1", TextBlock(text="x"))
    )
    assert [(message["role"], message["content"]) for message in sent] == [
        ("user", "a"),
        ("assistant", None),
        ("tool", "x"),
    ]


def test_tools_are_named_empty_when_only_the_history_has_calls() -> None:
    request = ask(make_model(), user("a"), said(call("1")), result("1"))
    assert body_of(request)["tools"] == []
    assert "tools" not in body_of(ask(make_model()))


def test_thinking_goes_back_in_the_field_that_it_came_in() -> None:
    def replayed(*blocks: Any, **changes: Any) -> dict[str, Any]:
        return messages_of(said(*blocks, TextBlock(text="x")), **changes)[0]

    field = ThinkingBlock(thinking="hm", thinking_signature="reasoning")
    details = ThinkingBlock(thinking="hm", thinking_signature='[{"data":"d"}]')
    broken = ThinkingBlock(thinking="hm", thinking_signature="[oops")
    assert replayed(field, field) == {"role": "assistant", "content": "x", "reasoning": "hm\nhm"}
    assert replayed(details) == {"role": "assistant", "content": "x", "reasoning_details": [{"data": "d"}]}
    assert replayed(broken) == {"role": "assistant", "content": "x"}
    assert replayed(field, compat={"requiresThinkingAsText": True}) == {
        "role": "assistant",
        "content": "hm\nx",
    }
    required = {"requiresReasoningContentOnAssistantMessages": True}
    assert replayed(compat=required, reasoning=True) == {
        "role": "assistant",
        "content": "x",
        "reasoning_content": "",
    }
    assert replayed(compat=required) == {"role": "assistant", "content": "x"}


def test_servers_that_want_a_reply_after_results_get_one() -> None:
    compat = {"requiresAssistantAfterToolResult": True, "requiresToolResultName": True}
    sent = messages_of(
        said(call("1")), result("1", PNG), user("go"), said(call("2")), result("2"), user("on"), compat=compat
    )
    bridge = {"role": "assistant", "content": BRIDGE}
    assert [message["role"] for message in sent] == [
        *("assistant", "tool", "assistant", "user", "user"),
        *("assistant", "tool", "assistant", "user"),
    ]
    assert (sent[0]["content"], sent[1]["name"], sent[2], sent[7]) == ("", "ls", bridge, bridge)


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({}, "system"),
        ({"reasoning": True}, "developer"),
        ({"reasoning": True, "compat": {"supportsDeveloperRole": False}}, "system"),
        ({"reasoning": True, "provider": "openrouter", "id": "moonshotai/kimi"}, "system"),
        ({"reasoning": True, "provider": "openrouter", "id": "openai/gpt"}, "developer"),
        ({"reasoning": True, "base_url": "http://localhost:11434/v1"}, "system"),
    ],
)
def test_the_prompt_has_the_role_that_the_server_knows(changes: dict[str, Any], role: str) -> None:
    assert body_of(ask(make_model(**changes)))["messages"][0]["role"] == role


@pytest.mark.parametrize(
    ("form", "on", "off"),
    [
        ("openai", {"reasoning_effort": "high"}, {}),
        ("openrouter", {"reasoning": {"effort": "high"}}, {"reasoning": {"effort": "none"}}),
        (
            "deepseek",
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
            {"thinking": {"type": "disabled"}},
        ),
        (
            "zai",
            {"thinking": {"type": "enabled", "clear_thinking": False}, "reasoning_effort": "high"},
            {"thinking": {"type": "disabled"}},
        ),
        (
            "together",
            {"reasoning": {"enabled": True}, "reasoning_effort": "high"},
            {"reasoning": {"enabled": False}},
        ),
        ("qwen", {"enable_thinking": True, "reasoning_effort": "high"}, {"enable_thinking": False}),
        (
            "qwen-chat-template",
            {"chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True}},
            {"chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": True}},
        ),
        (
            "chat-template",
            {"chat_template_kwargs": {"think": True, "effort": "high", "keep": 1}},
            {"chat_template_kwargs": {"think": False, "keep": 1}},
        ),
        (
            "baseten",
            {"chat_template_args": {"budget": 16384}, "reasoning_effort": "high"},
            {"chat_template_args": {"budget": 0}},
        ),
        ("string-thinking", {"thinking": "high"}, {"thinking": "none"}),
        ("ant-ling", {}, {}),
    ],
)
def test_thinking_is_asked_for_in_the_servers_own_words(
    form: str, on: dict[str, Any], off: dict[str, Any]
) -> None:
    compat = {
        "thinkingFormat": form,
        "chatTemplateKwargs": {
            "think": {"$var": "thinking.enabled"},
            "effort": {"$var": "thinking.effort", "omitWhenOff": True},
            "keep": 1,
        },
        "chatTemplateArgs": {"budget": {"$var": "thinking.budget"}, "unknown": {"$var": "x"}},
    }
    plain = body_of(ask(make_model(compat=compat)))
    model = make_model(reasoning=True, compat=compat)
    for level, expected in (("high", on), ("off", off)):
        body = body_of(ask(model, thinking_level=level))
        assert {name: body[name] for name in body if name not in plain} == expected


@pytest.mark.parametrize(
    ("form", "level", "levels", "expected"),
    [
        ("openai", "off", {"off": "minimal"}, {"reasoning_effort": "minimal"}),
        ("openai", "xhigh", {"xhigh": "utmost"}, {"reasoning_effort": "utmost"}),
        ("openrouter", "off", {"off": "low"}, {"reasoning": {"effort": "low"}}),
        ("string-thinking", "off", {"off": "no"}, {"thinking": "no"}),
        ("ant-ling", "high", {"high": "h"}, {"reasoning": {"effort": "h"}}),
    ],
)
def test_the_models_own_words_for_a_level_are_sent(
    form: str, level: ThinkingLevel, levels: dict[str, str], expected: dict[str, Any]
) -> None:
    compat = {"thinkingFormat": form}
    plain = body_of(ask(make_model(compat=compat)))
    model = make_model(reasoning=True, compat=compat, thinking_level_map=levels)
    body = body_of(ask(model, thinking_level=level))
    assert {name: body[name] for name in body if name not in plain} == expected


def test_a_token_budget_leaves_room_for_the_answer() -> None:
    model = make_model(reasoning=True, max_tokens=4000, compat={"supportsThinkingTokenBudget": True})
    assert body_of(ask(model, thinking_level="low"))["thinking_token_budget"] == 2048
    assert body_of(ask(model, thinking_level="high"))["thinking_token_budget"] == 2976
    other = make_model(reasoning=True, compat={"thinkingTokenBudgetField": "thinking_budget"})
    assert body_of(ask(other, thinking_level="low", thinking_budgets={"low": 7}))["thinking_budget"] == 7


def test_routing_priority_and_streaming_of_tools_are_passed_on() -> None:
    compat = {
        "vllmPriority": 3,
        "openRouterRouting": {"only": ["a"]},
        "vercelGatewayRouting": {"order": ["b"]},
        "zaiToolStream": True,
        "supportsStore": False,
        "supportsUsageInStreaming": False,
        "supportsStrictMode": True,
    }
    body = body_of(ask(make_model(compat=compat), tools=(LS,)))
    assert (body["priority"], body["provider"], body["providerOptions"], body["tool_stream"]) == (
        3,
        {"only": ["a"]},
        {"gateway": {"order": ["b"]}},
        True,
    )
    assert not {"store", "stream_options"} & body.keys()
    assert body["tools"][0]["function"]["strict"] is False


def test_sampling_parameters_are_laid_over_the_body_last() -> None:
    model = make_model(
        reasoning=True,
        sampling_params={"top_p": 0.9, "store": True},
        sampling_params_by_thinking_level={"high": {"top_p": 0.5}},
    )
    body = body_of(ask(model, thinking_level="high"))
    assert (body["top_p"], body["store"]) == (0.5, True)
    assert body_of(ask(model, thinking_level="low"))["top_p"] == 0.9


@pytest.mark.parametrize(
    ("base_url", "retention", "members"),
    [
        ("https://api.openai.com/v1", None, {"prompt_cache_key": "s" * 64}),
        ("https://api.openai.com/v1", "none", {}),
        (
            "https://api.openai.com/v1",
            "long",
            {"prompt_cache_key": "s" * 64, "prompt_cache_retention": "24h"},
        ),
        ("https://api.acme.example/v1", None, {}),
        (
            "https://api.acme.example/v1",
            "long",
            {"prompt_cache_key": "s" * 64, "prompt_cache_retention": "24h"},
        ),
        ("https://api.together.ai/v1", "long", {}),
    ],
)
def test_the_cache_is_keyed_by_the_session(base_url: str, retention: Any, members: dict[str, str]) -> None:
    body = body_of(ask(make_model(base_url=base_url), session_id="s" * 70, cache_retention=retention))
    assert {name: body[name] for name in body if name.startswith("prompt_cache")} == members


def test_markers_for_the_cache_stand_on_prompt_last_tool_and_last_text() -> None:
    model = make_model(provider="openrouter", id="anthropic/claude")
    mark = {"cache_control": {"type": "ephemeral"}}
    body = body_of(ask(model, user("a"), user("b"), tools=(LS,)))
    assert body["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", **mark}]},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b", **mark}]},
    ]
    assert body["tools"][-1]["cache_control"] == mark["cache_control"]
    seen = UserMessage(timestamp=1, content=[TextBlock(text="a"), PNG])
    assert body_of(ask(model, seen))["messages"][1]["content"] == [
        {"type": "text", "text": "a", **mark},
        PNG_PART,
    ]
    assert body_of(ask(model, cache_retention="none"))["messages"][0]["content"] == "Be brief."


@pytest.mark.parametrize(
    ("changes", "headers"),
    [
        ({}, {}),
        ({"provider": "openrouter"}, {"x-session-id": "s"}),
        (
            {"compat": {"sendSessionAffinityHeaders": True}},
            {"session_id": "s", "x-client-request-id": "s", "x-session-affinity": "s"},
        ),
        (
            {"compat": {"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openai-nosession"}},
            {"x-client-request-id": "s", "x-session-affinity": "s"},
        ),
    ],
)
def test_a_session_stays_with_its_server_where_that_is_known_to_help(
    changes: dict[str, Any], headers: dict[str, str]
) -> None:
    sent = build_request(ask(make_model(**changes), session_id="s"), Credentials("x", "k")).headers
    usual = {"Content-Type", "Accept", "User-Agent", "Authorization"}
    assert {name: value for name, value in sent.items() if name not in usual} == headers


def test_configured_headers_win_over_the_adapters() -> None:
    sent = build_request(
        ask(make_model()), Credentials("x", "k", headers={"authorization": "Basic y"})
    ).headers
    assert (sent["authorization"], "Authorization" in sent) == ("Basic y", False)
    assert sent["User-Agent"].startswith("knightcode/")


def test_no_key_is_no_header() -> None:
    assert "Authorization" not in build_request(ask(make_model()), Credentials("x")).headers


def test_ids_of_other_models_are_made_acceptable() -> None:
    normalise, openai = id_normaliser("acme"), id_normaliser("openai")
    assert normalise("call_1|fc_2") == "call_1_fc_2"
    long = normalise("call_" + "x" * 60 + "|fc_1")
    assert (len(long), long[:32]) == (40, "call_" + "x" * 26 + "_")
    assert long != normalise("call_" + "x" * 60 + "|fc_2")
    assert normalise("x" * 50) == "x" * 50
    assert openai("x" * 50) == "x" * 40


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({}, {}),
        ({"base_url": "https://api.deepseek.com"}, {"deepseek", "max_tokens", "no store", "no developer"}),
        ({"provider": "xai"}, {"no effort", "no store", "no developer"}),
        ({"provider": "zai"}, {"zai", "max_tokens", "no effort", "no store", "no developer"}),
        ({"provider": "nvidia"}, {"max_tokens", "no effort", "no store", "no developer", "no long cache"}),
        ({"base_url": "http://10.0.0.5:8000/v1"}, {"max_tokens", "no store", "no developer"}),
        (
            {"base_url": "http://10.0.0.5/v1", "compat": {"supportsStore": True}},
            {"max_tokens", "no developer"},
        ),
    ],
)
def test_what_a_server_understands_is_known_by_its_name_or_address(
    changes: dict[str, Any], differing: set[str]
) -> None:
    compat = compat_of(make_model(**changes))
    found = {
        compat.thinking_format: compat.thinking_format != "openai",
        "max_tokens": compat.max_tokens_field == "max_tokens",
        "no effort": not compat.supports_reasoning_effort,
        "no store": not compat.supports_store,
        "no developer": not compat.supports_developer_role,
        "no long cache": not compat.supports_long_cache_retention,
    }
    assert {name for name, differs in found.items() if differs} == set(differing)
