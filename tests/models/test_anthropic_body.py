"""Requests in the form of the Anthropic Messages api."""

from typing import Any

import pytest

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    ModelMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.models.adapters.anthropic_body import IMAGES_FOLLOW, build_request, normalise_id
from knightcode.models.auth import Credentials
from knightcode.models.errors import RequestFailedError
from knightcode.models.request import ModelRequest, ToolSpec
from tests.models.asking import ask, make_model, user

MODEL = make_model("anthropic-messages", max_tokens=20_000)
MARK = {"cache_control": {"type": "ephemeral"}}
PNG = ImageBlock(data="aWk=", mime_type="image/png")
PNG_PART = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWk="}}
READ = ToolSpec(
    "read", "Read a file", {"type": "object", "properties": {"path": {}}, "required": ["path"], "title": "x"}
)


def body_of(request: ModelRequest) -> dict[str, Any]:
    return build_request(request, Credentials("https://api.acme.example", "k")).body


def headers_of(request: ModelRequest, **credentials: Any) -> dict[str, str]:
    headers = build_request(request, Credentials("https://api.acme.example", **credentials)).headers
    return {
        name: value for name, value in headers.items() if name not in ("User-Agent", "Accept", "Content-Type")
    }


def said(*content: Any, **changes: Any) -> AssistantMessage:
    known = {"provider": "acme", "api": "anthropic-messages", "model": "m-1"}
    return AssistantMessage(timestamp=2, content=list(content), **{**known, **changes})


def result(call_id: str, *content: Any, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=3, tool_call_id=call_id, tool_name="read", content=list(content), is_error=is_error
    )


def test_a_whole_conversation_becomes_one_body() -> None:
    """Models and providers, "Anthropic Messages"."""
    messages: list[ModelMessage] = [
        UserMessage(timestamp=1, content=[TextBlock(text="What is in a.txt?"), TextBlock(text=" "), PNG]),
        said(
            ThinkingBlock(thinking="Look.", thinking_signature="Ep"),
            ThinkingBlock(thinking="", thinking_signature="secret", redacted=True),
            ThinkingBlock(thinking="unsigned"),
            TextBlock(text="\n"),
            ToolCallBlock(id="t1", name="read", arguments={"path": "a"}),
            ToolCallBlock(id="t2", name="read", arguments={}),
        ),
        result("t1", TextBlock(text="one"), TextBlock(text="two")),
        result("t2", PNG, is_error=True),
    ]
    request = ask(
        MODEL, *messages, tools=(READ, ToolSpec("ls", "List", {})), tool_choice="auto", temperature=0.5
    )
    assert body_of(request) == {
        "model": "m-1",
        "max_tokens": 20_000,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is in a.txt?"}, PNG_PART]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Look.", "signature": "Ep"},
                    {"type": "redacted_thinking", "data": "secret"},
                    {"type": "text", "text": "unsigned"},
                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "one\ntwo", "is_error": False},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": IMAGES_FOLLOW}, PNG_PART],
                        "is_error": True,
                        **MARK,
                    },
                ],
            },
        ],
        "tools": [
            {
                "name": "read",
                "description": "Read a file",
                "input_schema": {"type": "object", "properties": {"path": {}}, "required": ["path"]},
                "eager_input_streaming": True,
            },
            {
                "name": "ls",
                "description": "List",
                "input_schema": {"type": "object", "properties": {}, "required": []},
                "eager_input_streaming": True,
                **MARK,
            },
        ],
        "tool_choice": {"type": "auto"},
        "temperature": 0.5,
    }


def test_blank_messages_are_left_out() -> None:
    messages = (
        user("hi"),
        said(TextBlock(text=" ")),
        user("  "),
        UserMessage(timestamp=1, content=[]),
        user("there"),
    )
    assert body_of(ask(MODEL, *messages, cache_retention="none"))["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "there"},
    ]


def test_cache_markers_follow_the_retention() -> None:
    def marks(**changes: Any) -> Any:
        body = body_of(ask(MODEL, tools=(READ,), **changes))
        parts = (body["system"][-1], body["tools"][-1], body["messages"][-1]["content"][-1])
        return [part.get("cache_control") if isinstance(part, dict) else None for part in parts]

    hour = {"type": "ephemeral", "ttl": "1h"}
    assert marks(cache_retention="none") == [None, None, None]
    assert marks(cache_retention="long") == [hour, hour, hour]


def test_markers_go_where_the_server_takes_them() -> None:
    compat = {"supportsCacheControlOnTools": False, "supportsLongCacheRetention": False}
    body = body_of(
        ask(make_model("anthropic-messages", compat=compat), tools=(READ,), cache_retention="long")
    )
    assert "cache_control" not in body["tools"][-1]
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("level", "changes", "members"),
    [
        ("off", {}, {"thinking": {"type": "disabled"}, "max_tokens": 20_000}),
        ("off", {"thinking_level_map": {"off": None}}, None),
        (
            "low",
            {"compat": {"forceAdaptiveThinking": True}},
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
                "max_tokens": 20_000,
            },
        ),
        (
            "max",
            {"compat": {"forceAdaptiveThinking": True}, "thinking_level_map": {"max": "utmost"}},
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "utmost"},
                "max_tokens": 20_000,
            },
        ),
        (
            "low",
            {},
            {
                "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
                "max_tokens": 20_000,
            },
        ),
        (
            "low",
            {"max_tokens": 64_000},
            {
                "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
                "max_tokens": 34_048,
            },
        ),
        (
            "high",
            {"max_tokens": 10_000},
            {
                "thinking": {"type": "enabled", "budget_tokens": 8976, "display": "summarized"},
                "max_tokens": 10_000,
            },
        ),
        ("high", {"max_tokens": 2000}, {"max_tokens": 2000}),
        (
            "high",
            {"context_window": 10_000},
            {
                "thinking": {"type": "enabled", "budget_tokens": 4875, "display": "summarized"},
                "max_tokens": 5899,
            },
        ),
    ],
)
def test_thinking_is_asked_for_as_the_model_wants_it(
    level: ThinkingLevel, changes: dict[str, Any], members: dict[str, Any] | None
) -> None:
    """Models and providers, "Thinking levels"."""
    model = make_model("anthropic-messages", reasoning=True, **{"max_tokens": 20_000, **changes})
    body = body_of(ask(model, thinking_level=level))
    found = {name: body[name] for name in ("thinking", "output_config", "max_tokens") if name in body}
    if members is None:  # `off` cannot be said; the next level is asked for
        assert found["thinking"]["type"] == "enabled"
    else:
        assert found == members


def test_temperature_is_not_sent_while_the_model_thinks_or_where_it_is_not_taken() -> None:
    thinker = make_model("anthropic-messages", reasoning=True)
    without = make_model("anthropic-messages", compat={"supportsTemperature": False})
    assert "temperature" not in body_of(ask(thinker, thinking_level="high", temperature=1.0))
    assert body_of(ask(thinker, thinking_level="off", temperature=1.0))["temperature"] == 1.0
    assert "temperature" not in body_of(ask(without, temperature=1.0))


def test_a_key_is_sent_as_the_api_wants_it_or_as_a_bearer() -> None:
    assert headers_of(ask(MODEL), api_key="k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert headers_of(ask(MODEL), api_key="k", bearer=True) == {
        "anthropic-version": "2023-06-01",
        "Authorization": "Bearer k",
    }


def test_betas_are_asked_for_where_needed_and_the_users_header_replaces_them() -> None:
    model = make_model(
        "anthropic-messages", reasoning=True, compat={"supportsEagerToolInputStreaming": False}
    )
    request = ask(model, tools=(READ,), thinking_level="low")
    both = "fine-grained-tool-streaming-2025-05-14,interleaved-thinking-2025-05-14"
    assert headers_of(request)["anthropic-beta"] == both
    assert "eager_input_streaming" not in body_of(request)["tools"][0]
    assert headers_of(request, headers={"Anthropic-Beta": "own"}) == {
        "anthropic-version": "2023-06-01",
        "Anthropic-Beta": "own",
    }


def test_a_session_stays_with_its_server_where_that_is_asked_for() -> None:
    model = make_model("anthropic-messages", compat={"sendSessionAffinityHeaders": True})
    router = make_model("anthropic-messages", provider="openrouter")
    assert headers_of(ask(model, session_id="s"))["x-session-affinity"] == "s"
    assert headers_of(ask(router, session_id="s"))["x-session-id"] == "s"
    assert "x-session-affinity" not in headers_of(ask(MODEL, session_id="s"))


def test_compat_of_the_wrong_shape_is_a_failed_request() -> None:
    model = make_model("anthropic-messages", compat={"supportsTemperature": "yes"})
    with pytest.raises(RequestFailedError, match="compat settings of acme/m-1 are wrong"):
        body_of(ask(model))


def test_ids_of_other_models_are_made_acceptable() -> None:
    assert normalise_id("call_1|fc/2") == "call_1_fc_2"
    assert len(normalise_id("x" * 100)) == 64
    assert normalise_id("") == "call"


def test_empty_signatures_are_sent_to_servers_that_take_them() -> None:
    model = make_model("anthropic-messages", compat={"allowEmptySignature": True})
    body = body_of(
        ask(model, user("hi"), said(ThinkingBlock(thinking="hm"), TextBlock(text="yes")), user("go"))
    )
    assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "hm", "signature": ""}
