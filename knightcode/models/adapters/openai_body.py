"""A request in the form of the Chat Completions api. Pure.

Source: models and providers, "OpenAI Chat Completions".
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    InputBlock,
    ModelMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.models.adapters.base import output_limit, user_agent
from knightcode.models.adapters.openai_compat import ChatCompat, compat_of
from knightcode.models.adapters.openai_thinking import thinking_members
from knightcode.models.adapters.transform import prepare_messages
from knightcode.models.auth import Credentials
from knightcode.models.headers import merge_headers
from knightcode.models.request import ModelRequest, ToolSpec

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_text")
NO_OUTPUT: Final = "(no output)"
IMAGES_ABOVE: Final = "Images from the tool results above:"
BRIDGE: Final = "The tool results have been received."

_BAD_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ID_CHARS: Final = 40
_HASH_CHARS: Final = 8
_CACHE_KEY_CHARS: Final = 64
_CACHE_MARKER: Final = {"type": "ephemeral"}


@attrs.frozen
class ChatRequest:
    """A request ready to be sent."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]
    compat: ChatCompat


def build_request(request: ModelRequest, credentials: Credentials) -> ChatRequest:
    """What is posted, and where."""
    model = request.model
    compat = compat_of(model)
    level = model.clamp(request.thinking_level)
    body: dict[str, Any] = {
        "model": model.id,
        "stream": True,
        "messages": _messages(request, compat),
        compat.max_tokens_field: output_limit(request),
        **thinking_members(request, compat, level),
        **_extras(request, compat),
    }
    tools = _tools(request.tools, compat)
    if tools or any(_is_of_tools(message) for message in request.messages):
        body["tools"] = tools  # some servers refuse a history with calls unless tools are named
    if tools and request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if compat.cache_control_format == "anthropic" and request.cache_retention != "none":
        _mark_for_cache(body)
    body |= {**model.sampling_params, **model.sampling_params_by_thinking_level.get(level, {})}
    headers = _headers(request, credentials, compat)
    return ChatRequest(f"{credentials.base_url}/chat/completions", headers, body, compat)


def id_normaliser(provider: str) -> Callable[[str], str]:
    """The function that makes another model's tool-call id one that the provider accepts."""

    def normalise(call_id: str) -> str:
        if "|" in call_id:
            clean = _BAD_IN_ID.sub("_", call_id)
            if len(clean) <= _ID_CHARS:
                return clean
            digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
            prefix = _BAD_IN_ID.sub("_", call_id.partition("|")[0])
            return f"{prefix[: _ID_CHARS - _HASH_CHARS - 1]}_{digest}"
        return call_id[:_ID_CHARS] if provider == "openai" else call_id

    return normalise


# --- messages ------------------------------------------------------------------------------------


def _messages(request: ModelRequest, compat: ChatCompat) -> list[dict[str, Any]]:
    model = request.model
    sent: list[dict[str, Any]] = []
    if request.system_prompt:
        developer = model.reasoning and compat.supports_developer_role
        sent.append({"role": "developer" if developer else "system", "content": request.system_prompt})
    images: list[ImageBlock] = []  # of the run of tool results that is being sent
    for message in prepare_messages(request.messages, model, id_normaliser(model.provider)):
        if isinstance(message, ToolResultMessage):
            sent.append(_tool_result(message, compat))
            images += [block for block in message.content if isinstance(block, ImageBlock)]
            continue
        sent += _images_after_results(images, sent, compat)
        images = []
        if isinstance(message, UserMessage):
            if compat.requires_assistant_after_tool_result and sent and sent[-1]["role"] == "tool":
                sent.append({"role": "assistant", "content": BRIDGE})
            content = _user(message)
            if content:
                sent.append({"role": "user", "content": content})
        elif (reply := _assistant(message, request, compat)) is not None:
            sent.append(reply)
    return sent + _images_after_results(images, sent, compat)


def _user(message: UserMessage) -> str | list[dict[str, Any]]:
    if isinstance(message.content, str):
        return message.content if message.content.strip() else ""
    return _parts(message.content)


def _parts(content: Sequence[InputBlock]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, ImageBlock):
            url = f"data:{block.mime_type};base64,{block.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif block.text.strip():
            parts.append({"type": "text", "text": block.text})
    return parts


def _assistant(message: AssistantMessage, request: ModelRequest, compat: ChatCompat) -> dict[str, Any] | None:
    texts = [block.text for block in message.content if isinstance(block, TextBlock) and block.text.strip()]
    calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
    thoughts = [block for block in message.content if isinstance(block, ThinkingBlock)]
    members: dict[str, Any] = {}
    if compat.requires_thinking_as_text:
        texts = [thought.thinking for thought in thoughts if thought.thinking.strip()] + texts
    else:
        members = _replayed_thinking(thoughts)
    if not texts and not calls:
        return None
    if compat.requires_reasoning_content_on_assistant_messages and request.model.reasoning:
        members.setdefault("reasoning_content", "")
    nothing = "" if compat.requires_assistant_after_tool_result else None
    reply: dict[str, Any] = {
        "role": "assistant",
        "content": "\n".join(texts) if texts else nothing,
        **members,
    }
    if calls:
        reply["tool_calls"] = [_call(call) for call in calls]
    return reply


def _replayed_thinking(thoughts: Sequence[ThinkingBlock]) -> dict[str, Any]:
    """The members in which a server wants its own thinking back."""
    details: list[Any] = []
    joined: dict[str, list[str]] = {}
    for thought in thoughts:
        signature = thought.thinking_signature or ""
        if signature in REASONING_FIELDS:
            joined.setdefault(signature, []).append(thought.thinking)
        elif signature.startswith("["):
            details += _details(signature)
    members: dict[str, Any] = {name: "\n".join(texts) for name, texts in joined.items()}
    if details:
        members["reasoning_details"] = details
    return members


def _details(signature: str) -> list[Any]:
    try:
        return msgspec.json.decode(signature, type=list[Any])
    except msgspec.DecodeError:
        return []


def _call(call: ToolCallBlock) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool_result(message: ToolResultMessage, compat: ChatCompat) -> dict[str, Any]:
    has_images = any(isinstance(block, ImageBlock) for block in message.content)
    text = text_of(message.content) or ("(see the image below)" if has_images else NO_OUTPUT)
    result: dict[str, Any] = {"role": "tool", "tool_call_id": message.tool_call_id, "content": text}
    if compat.requires_tool_result_name:
        result["name"] = message.tool_name
    return result


def _images_after_results(
    images: Sequence[ImageBlock], sent: Sequence[Mapping[str, Any]], compat: ChatCompat
) -> list[dict[str, Any]]:
    """Tool messages hold text alone, so the images of a run of them follow in the user's name."""
    if not images:
        return []
    bridge = compat.requires_assistant_after_tool_result and sent[-1]["role"] == "tool"
    message = {"role": "user", "content": [{"type": "text", "text": IMAGES_ABOVE}, *_parts(images)]}
    return [{"role": "assistant", "content": BRIDGE}, message] if bridge else [message]


def _is_of_tools(message: ModelMessage) -> bool:
    if isinstance(message, AssistantMessage):
        return any(isinstance(block, ToolCallBlock) for block in message.content)
    return isinstance(message, ToolResultMessage)


# --- the rest of the body ------------------------------------------------------------------------


def _tools(tools: Sequence[ToolSpec], compat: ChatCompat) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    for tool in tools:
        function: dict[str, Any] = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        if compat.supports_strict_mode:
            function["strict"] = False
        sent.append({"type": "function", "function": function})
    return sent


def _extras(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if compat.supports_usage_in_streaming:
        extras["stream_options"] = {"include_usage": True}
    if compat.supports_store:
        extras["store"] = False
    if request.temperature is not None:
        extras["temperature"] = request.temperature
    if compat.vllm_priority is not None:
        extras["priority"] = compat.vllm_priority
    if compat.open_router_routing:
        extras["provider"] = compat.open_router_routing
    if compat.vercel_gateway_routing:
        extras["providerOptions"] = {"gateway": compat.vercel_gateway_routing}
    if compat.zai_tool_stream and request.tools:
        extras["tool_stream"] = True
    return extras | _cache_members(request, compat)


def _cache_members(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    retention = request.cache_retention or "short"
    members: dict[str, Any] = {}
    long = retention == "long" and compat.supports_long_cache_retention
    official = "api.openai.com" in request.model.base_url
    if request.session_id and (long or (official and retention != "none")):
        members["prompt_cache_key"] = request.session_id[:_CACHE_KEY_CHARS]
    if long:
        members["prompt_cache_retention"] = "24h"
    return members


def _mark_for_cache(body: dict[str, Any]) -> None:
    """Markers as Anthropic has them: on the system text, the last tool, the last message with text."""
    messages: list[dict[str, Any]] = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        _mark_last_text(messages[0])
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = _CACHE_MARKER
    for message in reversed(messages):
        if message["role"] in ("user", "assistant", "tool") and _mark_last_text(message):
            break


def _mark_last_text(message: dict[str, Any]) -> bool:
    content = message["content"]
    if isinstance(content, str) and content:
        message["content"] = [{"type": "text", "text": content, "cache_control": _CACHE_MARKER}]
        return True
    texts = [part for part in content or [] if part["type"] == "text"]
    if texts:
        texts[-1]["cache_control"] = _CACHE_MARKER
    return bool(texts)


def _headers(request: ModelRequest, credentials: Credentials, compat: ChatCompat) -> dict[str, str]:
    own = {"Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": user_agent()}
    if credentials.api_key is not None:
        own["Authorization"] = f"Bearer {credentials.api_key}"
    if request.session_id and compat.send_session_affinity_headers:
        own |= _affinity(request.session_id, compat.session_affinity_format)
    return merge_headers(own, credentials.headers)


def _affinity(session_id: str, form: str) -> dict[str, str]:
    if form == "openrouter":
        return {"x-session-id": session_id}
    headers = {"x-client-request-id": session_id, "x-session-affinity": session_id}
    return headers if form == "openai-nosession" else {"session_id": session_id, **headers}
