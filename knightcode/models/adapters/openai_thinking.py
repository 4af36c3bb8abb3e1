"""How thinking is asked for in the Chat Completions api: every server has its own members. Pure.

Source: models and providers, "OpenAI Chat Completions".
"""

from collections.abc import Mapping
from typing import Any, Final

from knightcode.messages import ThinkingLevel
from knightcode.models.adapters.base import ANSWER_TOKENS, output_limit, thinking_budget
from knightcode.models.adapters.openai_compat import ChatCompat
from knightcode.models.request import ModelRequest

_EFFORT_TOO: Final = frozenset({"deepseek", "zai", "together", "qwen", "baseten"})
_MISSING: Final = object()


def thinking_members(request: ModelRequest, compat: ChatCompat, level: ThinkingLevel) -> dict[str, Any]:
    """The members of the body that ask for thinking, or for none; empty for a model that cannot.

    Args:
        level: supported by the model.
    """
    if not request.model.reasoning:
        return {}
    members = _on(request, compat, level) if level != "off" else _off(request, compat)
    if level != "off" and compat.supports_reasoning_effort and compat.thinking_format in _EFFORT_TOO:
        members["reasoning_effort"] = _effort(request, level)
    field = compat.thinking_token_budget_field
    if field is None and compat.supports_thinking_token_budget:
        field = "thinking_token_budget"
    if field and level != "off":
        members[field] = max(0, min(thinking_budget(request, level), output_limit(request) - ANSWER_TOKENS))
    return members


def _effort(request: ModelRequest, level: ThinkingLevel) -> str:
    return request.model.thinking_level_map.get(level) or level


def _on(request: ModelRequest, compat: ChatCompat, level: ThinkingLevel) -> dict[str, Any]:
    effort = _effort(request, level)
    match compat.thinking_format:
        case "openrouter":
            return {"reasoning": {"effort": effort}}
        case "deepseek":
            return {"thinking": {"type": "enabled"}}
        case "zai":
            return {"thinking": {"type": "enabled", "clear_thinking": False}}
        case "together":
            return {"reasoning": {"enabled": True}}
        case "qwen":
            return {"enable_thinking": True}
        case "qwen-chat-template":
            return {"chat_template_kwargs": {"enable_thinking": True, "preserve_thinking": True}}
        case "chat-template":
            return _template("chat_template_kwargs", compat.chat_template_kwargs, request, level)
        case "baseten":
            return _template("chat_template_args", compat.chat_template_args, request, level)
        case "string-thinking":
            return {"thinking": effort}
        case "ant-ling":
            mapped = request.model.thinking_level_map.get(level)
            return {"reasoning": {"effort": mapped}} if mapped is not None else {}
        case "openai":
            return {"reasoning_effort": effort} if compat.supports_reasoning_effort else {}


def _off(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    levels: Mapping[ThinkingLevel, Any] = request.model.thinking_level_map
    mapped = levels.get("off", _MISSING)  # None: the model has no way to be told
    word = mapped if isinstance(mapped, str) else "none"
    match compat.thinking_format:
        case "openrouter":
            return {} if mapped is None else {"reasoning": {"effort": word}}
        case "deepseek":
            return {} if mapped is None else {"thinking": {"type": "disabled"}}
        case "zai":
            return {"thinking": {"type": "disabled"}}
        case "together":
            return {"reasoning": {"enabled": False}}
        case "qwen":
            return {"enable_thinking": False}
        case "qwen-chat-template":
            return {"chat_template_kwargs": {"enable_thinking": False, "preserve_thinking": True}}
        case "chat-template":
            return _template("chat_template_kwargs", compat.chat_template_kwargs, request, "off")
        case "baseten":
            return _template("chat_template_args", compat.chat_template_args, request, "off")
        case "string-thinking":
            return {} if mapped is None else {"thinking": word}
        case "ant-ling":
            return {}
        case "openai":
            sent = isinstance(mapped, str) and compat.supports_reasoning_effort
            return {"reasoning_effort": mapped} if sent else {}


def _template(
    field: str, template: Mapping[str, Any], request: ModelRequest, level: ThinkingLevel
) -> dict[str, Any]:
    """The template's arguments, `{"$var": ...}` filled in."""
    on = level != "off"
    values: dict[str, Any] = {
        "thinking.enabled": on,
        "thinking.effort": _effort(request, level) if on else "none",
        "thinking.budget": thinking_budget(request, level) if on else 0,
    }
    filled: dict[str, Any] = {}
    for key, value in template.items():
        if not isinstance(value, Mapping) or "$var" not in value:
            filled[key] = value
        elif (on or not value.get("omitWhenOff")) and value["$var"] in values:
            filled[key] = values[value["$var"]]
    return {field: filled} if filled else {}
