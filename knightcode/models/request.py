"""What a model is asked: one request, ready for an adapter."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import attrs

from knightcode.messages import ModelMessage, ThinkingLevel
from knightcode.models.model import Model

CacheRetention = Literal["none", "short", "long"]


@attrs.frozen
class ToolSpec:
    """A tool as a model is told about it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class RequestInspector(Protocol):
    """Sees a request's body and the head of the answer on their way; both before the body is read."""

    async def before_request(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body that is sent instead."""

    async def after_response(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer's status and headers, names in lower case."""


@attrs.frozen
class ModelRequest:
    """One request. `messages` end in a user message or a tool result.

    Attributes:
        max_tokens: of the reply; None is the model's limit, 32,000 at most.
        thinking_budgets: tokens, over the defaults, for providers that want a number.
        session_id: names the conversation to the provider's cache, and to scripts.
        temperature, tool_choice: sent where given and where the model takes them.
        inspector: asked before the request and told of the answer; its failures fail the request.
        cache_retention: None is `short`, or `long` when KNIGHTCODE_CACHE_RETENTION says so.
    """

    model: Model
    system_prompt: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking_level: ThinkingLevel = "off"
    max_tokens: int | None = None
    thinking_budgets: Mapping[ThinkingLevel, int] = attrs.field(factory=dict)
    session_id: str | None = None
    inspector: RequestInspector | None = None
    temperature: float | None = None
    tool_choice: Literal["auto", "none"] | None = None
    cache_retention: CacheRetention | None = None
