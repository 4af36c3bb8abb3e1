"""A model as the catalogue describes it, and the rules of thinking levels.

Source: models and providers, "Model object", "Thinking levels".
"""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from knightcode.messages import Cost, ThinkingLevel

LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
_EXPLICIT_ONLY = frozenset({"xhigh", "max"})


@attrs.frozen
class CostTier:
    """Prices that hold for a whole request once its input is larger than `input_tokens_above`."""

    input_tokens_above: int
    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


@attrs.frozen
class Prices:
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    tiers: tuple[CostTier, ...] = ()

    def cost_of(
        self,
        *,
        input: int,  # noqa: A002 -- the word of the price list
        output: int,
        cache_read: int,
        cache_write: int,
        cache_write_1h: int = 0,
    ) -> Cost:
        """What a request cost. One-hour cache writes, a part of `cache_write`, cost twice the input rate."""
        rate: Prices | CostTier = self
        for tier in sorted(self.tiers, key=lambda tier: tier.input_tokens_above):
            if input + cache_read + cache_write > tier.input_tokens_above:
                rate = tier
        parts = {
            "input": input * rate.input / 1e6,
            "output": output * rate.output / 1e6,
            "cache_read": cache_read * rate.cache_read / 1e6,
            "cache_write": (
                (cache_write - cache_write_1h) * rate.cache_write + cache_write_1h * 2 * rate.input
            )
            / 1e6,
        }
        return Cost(**parts, total=sum(parts.values()))


@attrs.frozen
class Model:
    """One model of one provider. Equal models are interchangeable.

    Attributes:
        headers: request headers whose values are still in value syntax (`$NAME`, `!command`).
        compat: what the adapter must know of the server's habits; the adapter adds the defaults.
    """

    provider: str
    id: str
    name: str
    api: str
    base_url: str
    provider_name: str = ""
    type: Literal["chat", "image", "classifier"] = "chat"
    reasoning: bool = False
    thinking_level_map: Mapping[ThinkingLevel, str | None] = attrs.field(factory=dict)
    input: tuple[Literal["text", "image"], ...] = ("text",)
    prices: Prices = Prices()
    context_window: int = 128_000
    max_tokens: int = 16_384
    sampling_params: Mapping[str, Any] = attrs.field(factory=dict)
    sampling_params_by_thinking_level: Mapping[ThinkingLevel, Mapping[str, Any]] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    compat: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Provider and id, which name the model."""
        return (self.provider, self.id)

    def thinking_levels(self) -> tuple[ThinkingLevel, ...]:
        """The levels that this model supports, lowest first; `("off",)` when it does not reason."""
        if not self.reasoning:
            return ("off",)
        levels = self.thinking_level_map
        return tuple(
            level
            for level in LEVELS
            if (
                levels.get(level, "") is not None
                if level not in _EXPLICIT_ONLY
                else levels.get(level) is not None
            )
        )

    def clamp(self, level: ThinkingLevel) -> ThinkingLevel:
        """The level itself if supported, else the next one above, else the nearest below."""
        supported = self.thinking_levels()
        if level in supported:
            return level
        wanted = LEVELS.index(level)
        above = [other for other in supported if LEVELS.index(other) > wanted]
        return above[0] if above else supported[-1]
