"""What servers of the Chat Completions api understand: they agree on little beyond the basics. Pure.

Source: models and providers, "OpenAI Chat Completions".
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from knightcode.models.adapters.base import read_compat
from knightcode.models.model import Model
from knightcode.models.proxies import is_local

ThinkingFormat = Literal[
    "openai",
    "openrouter",
    "deepseek",
    "zai",
    "together",
    "qwen",
    "qwen-chat-template",
    "chat-template",
    "baseten",
    "string-thinking",
    "ant-ling",
]


class ChatCompat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one server understands. The defaults are OpenAI's own."""

    supports_store: bool = True
    supports_developer_role: bool = True
    supports_reasoning_effort: bool = True
    supports_usage_in_streaming: bool = True
    supports_finish_reason: bool = True
    supports_strict_mode: bool = False
    supports_long_cache_retention: bool = True
    supports_thinking_token_budget: bool = False
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    thinking_format: ThinkingFormat = "openai"
    thinking_token_budget_field: str | None = None
    cache_control_format: Literal["anthropic"] | None = None
    send_session_affinity_headers: bool = False
    session_affinity_format: str = "openai"
    requires_tool_result_name: bool = False
    requires_assistant_after_tool_result: bool = False
    requires_thinking_as_text: bool = False
    requires_reasoning_content_on_assistant_messages: bool = False
    zai_tool_stream: bool = False
    vllm_priority: int | None = None
    open_router_routing: dict[str, Any] | None = None
    vercel_gateway_routing: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] = {}
    chat_template_args: dict[str, Any] = {}


_SERVERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "nvidia": (("nvidia",), ("api.nvidia.com",)),
    "cerebras": (("cerebras",), ("cerebras.ai",)),
    "xai": (("xai",), ("api.x.ai",)),
    "together": (("together",), ("together.ai", "together.xyz")),
    "chutes": (("chutes",), ("chutes.ai",)),
    "deepseek": (("deepseek",), ("deepseek.com",)),
    "zai": (("zai", "zai-coding-cn"), ("api.z.ai", "bigmodel.cn")),
    "moonshot": (("moonshotai", "moonshotai-cn"), ("moonshot.ai", "moonshot.cn")),
    "opencode": (("opencode", "opencode-go"), ("opencode.ai",)),
    "workers-ai": (("cloudflare-workers-ai",), ("api.cloudflare.com",)),
    "ai-gateway": (("cloudflare-ai-gateway",), ("gateway.ai.cloudflare.com",)),
    "ant-ling": (("ant-ling",), ("ant-ling.com",)),
    "openrouter": (("openrouter",), ("openrouter.ai",)),
}
"""Servers with habits of their own: provider ids, and parts of base URLs."""

_NO_STORE: Final = frozenset(
    {
        "nvidia",
        "cerebras",
        "xai",
        "together",
        "chutes",
        "deepseek",
        "zai",
        "moonshot",
        "opencode",
        "workers-ai",
        "ai-gateway",
        "ant-ling",
    }
)
_NO_EFFORT: Final = frozenset({"xai", "zai", "moonshot", "together", "ai-gateway", "nvidia", "ant-ling"})
_OLD_MAX_TOKENS: Final = frozenset(
    {"chutes", "deepseek", "moonshot", "ai-gateway", "together", "nvidia", "ant-ling", "zai"}
)
_NO_LONG_CACHE: Final = frozenset({"together", "workers-ai", "ai-gateway", "nvidia", "ant-ling"})
_OWN_THINKING: Final = frozenset({"deepseek", "zai", "together", "ant-ling", "openrouter"})


def compat_of(model: Model) -> ChatCompat:
    """What the model's server understands: detected, under what the model says.

    Raises:
        RequestFailedError: what the model says cannot be read.
    """
    return read_compat(ChatCompat, detect(model), model)


def detect(model: Model) -> dict[str, Any]:
    """What is known of the server by its provider's id or its address."""
    server = _server(model)
    found: dict[str, Any] = {}
    if is_local(model.base_url):
        found = {"supportsStore": False, "supportsDeveloperRole": False, "maxTokensField": "max_tokens"}
    if server in _NO_STORE:
        found |= {"supportsStore": False, "supportsDeveloperRole": False}
    if server in _NO_EFFORT:
        found["supportsReasoningEffort"] = False
    if server in _OLD_MAX_TOKENS:
        found["maxTokensField"] = "max_tokens"
    if server in _NO_LONG_CACHE:
        found["supportsLongCacheRetention"] = False
    if server in _OWN_THINKING:
        found["thinkingFormat"] = server
    if server == "deepseek":
        found["requiresReasoningContentOnAssistantMessages"] = True
    if server == "openrouter":
        found |= {"sendSessionAffinityHeaders": True, "sessionAffinityFormat": "openrouter"}
        found["supportsDeveloperRole"] = model.id.startswith(("anthropic/", "openai/"))
        if model.id.startswith("anthropic/"):
            found["cacheControlFormat"] = "anthropic"
    if "api.openai.com" in model.base_url:
        found["supportsStrictMode"] = True
    return found


def _server(model: Model) -> str | None:
    for name, (providers, addresses) in _SERVERS.items():
        if model.provider in providers or any(part in model.base_url for part in addresses):
            return name
    return None
