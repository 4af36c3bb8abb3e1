"""A request in the form of the Anthropic Messages api. Pure.

Source: models and providers, "Anthropic Messages", "Thinking levels".
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    InputBlock,
    ModelMessage,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.models.adapters.base import (
    ANSWER_TOKENS,
    output_limit,
    output_room,
    read_compat,
    thinking_budget,
    user_agent,
)
from knightcode.models.adapters.transform import prepare_messages
from knightcode.models.auth import Credentials
from knightcode.models.headers import merge_headers
from knightcode.models.model import Model
from knightcode.models.request import ModelRequest, ToolSpec

_VERSION: Final = "2023-06-01"
_EAGER_BETA: Final = "fine-grained-tool-streaming-2025-05-14"
_INTERLEAVED_BETA: Final = "interleaved-thinking-2025-05-14"
_BAD_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_EFFORT: Final[Mapping[ThinkingLevel, str]] = {"minimal": "low", "low": "low", "medium": "medium"}

IMAGES_FOLLOW: Final = "(see the attached image)"


class AnthropicCompat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server of this api can do."""

    supports_eager_tool_input_streaming: bool = True
    supports_long_cache_retention: bool = True
    supports_cache_control_on_tools: bool = True
    supports_temperature: bool = True
    force_adaptive_thinking: bool = False
    allow_empty_signature: bool = False
    send_session_affinity_headers: bool = False
    session_affinity_format: str = "openai"


@attrs.frozen
class AnthropicRequest:
    """A request ready to be sent."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]


def compat_of(model: Model) -> AnthropicCompat:
    """What the model's server can do: detected, under what the model says."""
    detected = {}
    if model.provider == "openrouter" or "openrouter.ai" in model.base_url:
        detected = {"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"}
    return read_compat(AnthropicCompat, detected, model)


def build_request(request: ModelRequest, credentials: Credentials) -> AnthropicRequest:
    """What is posted, and where."""
    model = request.model
    compat = compat_of(model)
    level = model.clamp(request.thinking_level)
    marker = _cache_marker(request, compat)
    thinking = _thinking(request, compat, level)
    body: dict[str, Any] = {
        "model": model.id,
        "max_tokens": output_limit(request),
        "stream": True,
        "messages": _messages(request, compat, marker),
        **thinking,
    }
    if request.system_prompt.strip():
        body["system"] = [{"type": "text", "text": request.system_prompt, **marker}]
    if request.tools:
        body["tools"] = _tools(request.tools, compat, marker)
        if request.tool_choice is not None:
            body["tool_choice"] = {"type": request.tool_choice}
    thinks = thinking.get("thinking", {}).get("type", "disabled") != "disabled"
    if request.temperature is not None and compat.supports_temperature and not thinks:
        body["temperature"] = request.temperature
    headers = _headers(request, credentials, compat, thinking)
    return AnthropicRequest(f"{credentials.base_url}/v1/messages", headers, body)


def normalise_id(call_id: str) -> str:
    """A tool-call id that the api accepts."""
    return _BAD_IN_ID.sub("_", call_id)[:64] or "call"


# --- messages ------------------------------------------------------------------------------------


def _messages(
    request: ModelRequest, compat: AnthropicCompat, marker: Mapping[str, Any]
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []  # of the message that is being filled
    for message in prepare_messages(request.messages, request.model, normalise_id):
        if isinstance(message, ToolResultMessage):
            if not results:
                sent.append({"role": "user", "content": results})
            results.append(_tool_result(message))
            continue
        results = []
        content = _user(message) if isinstance(message, UserMessage) else _assistant(message, compat)
        if content:
            sent.append({"role": _role(message), "content": content})
    if marker and sent and sent[-1]["role"] == "user":
        sent[-1]["content"] = _marked(sent[-1]["content"], marker)
    return sent


def _role(message: ModelMessage) -> str:
    return "user" if isinstance(message, UserMessage) else "assistant"


def _user(message: UserMessage) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content if message.content.strip() else ""
    return _blocks(message.content)


def _assistant(message: AssistantMessage, compat: AnthropicCompat) -> list[dict[str, Any]]:
    return [part for block in message.content if (part := _reply_part(block, compat)) is not None]


def _reply_part(block: ReplyBlock, compat: AnthropicCompat) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text.strip() else None
        case ToolCallBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case ThinkingBlock(redacted=True):
            return {"type": "redacted_thinking", "data": block.thinking_signature or ""}
        case ThinkingBlock() if block.thinking_signature or compat.allow_empty_signature:
            return {
                "type": "thinking",
                "thinking": block.thinking,
                "signature": block.thinking_signature or "",
            }
        case _:
            return {"type": "text", "text": block.thinking} if block.thinking.strip() else None


def _tool_result(message: ToolResultMessage) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = text_of(message.content)
    if any(isinstance(block, ImageBlock) for block in message.content):
        content = _blocks(message.content)
        if not any(part["type"] == "text" for part in content):
            content.insert(0, {"type": "text", "text": IMAGES_FOLLOW})
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": content,
        "is_error": message.is_error,
    }


def _blocks(content: Sequence[InputBlock]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, ImageBlock):
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            parts.append({"type": "image", "source": source})
        elif block.text.strip():
            parts.append({"type": "text", "text": block.text})
    return parts


def _marked(content: str | list[dict[str, Any]], marker: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The content with a cache marker on its last block."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*blocks[:-1], {**blocks[-1], **marker}]


# --- the rest of the body ------------------------------------------------------------------------


def _tools(
    tools: Sequence[ToolSpec], compat: AnthropicCompat, marker: Mapping[str, Any]
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    for tool in tools:
        schema = {
            "type": "object",
            "properties": tool.parameters.get("properties", {}),
            "required": tool.parameters.get("required", []),
        }
        entry: dict[str, Any] = {"name": tool.name, "description": tool.description, "input_schema": schema}
        if compat.supports_eager_tool_input_streaming:
            entry["eager_input_streaming"] = True
        sent.append(entry)
    if compat.supports_cache_control_on_tools:
        sent[-1] |= marker
    return sent


def _cache_marker(request: ModelRequest, compat: AnthropicCompat) -> dict[str, Any]:
    if request.cache_retention == "none":
        return {}
    control = {"type": "ephemeral"}
    if request.cache_retention == "long" and compat.supports_long_cache_retention:
        control["ttl"] = "1h"
    return {"cache_control": control}


def _thinking(request: ModelRequest, compat: AnthropicCompat, level: ThinkingLevel) -> dict[str, Any]:
    """The members of the body that ask for thinking, `max_tokens` included where a budget raises it."""
    model = request.model
    if not model.reasoning:
        return {}
    if level == "off":
        omit = "off" in model.thinking_level_map and model.thinking_level_map["off"] is None
        return {} if omit else {"thinking": {"type": "disabled"}}
    if compat.force_adaptive_thinking:
        effort = model.thinking_level_map.get(level) or _EFFORT.get(level, "high")
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": effort},
        }
    budget = thinking_budget(request, level)
    limit = min(output_limit(request) + budget, model.max_tokens)
    if limit <= budget:
        budget = limit - ANSWER_TOKENS
    room = output_room(request)
    if limit > room:
        limit, budget = room, min(budget, room - ANSWER_TOKENS)
    if budget < ANSWER_TOKENS:
        return {}
    return {
        "max_tokens": limit,
        "thinking": {"type": "enabled", "budget_tokens": budget, "display": "summarized"},
    }


def _headers(
    request: ModelRequest, credentials: Credentials, compat: AnthropicCompat, thinking: Mapping[str, Any]
) -> dict[str, str]:
    own = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "User-Agent": user_agent(),
        "anthropic-version": _VERSION,
    }
    if credentials.api_key is not None and credentials.bearer:
        own["Authorization"] = f"Bearer {credentials.api_key}"
    elif credentials.api_key is not None:
        own["x-api-key"] = credentials.api_key
    betas = []
    if request.tools and not compat.supports_eager_tool_input_streaming:
        betas.append(_EAGER_BETA)
    if thinking.get("thinking", {}).get("type") == "enabled":
        betas.append(_INTERLEAVED_BETA)
    if betas:
        own["anthropic-beta"] = ",".join(betas)
    if request.session_id and compat.send_session_affinity_headers:
        name = "x-session-id" if compat.session_affinity_format == "openrouter" else "x-session-affinity"
        own[name] = request.session_id
    return merge_headers(own, credentials.headers)
