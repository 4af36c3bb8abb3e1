"""The catalogue in the box: providers in their order, and the models known of each.

The facts are in `catalog.json` beside this module; a change of prices or models is a change of data.

Source: models and providers, "Built-in providers", "Small catalogue to ship".
"""

from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from knightcode.messages import ThinkingLevel
from knightcode.models.model import CostTier, Model, Prices

_DATA: Final = Path(__file__).with_name("catalog.json")


class TierFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A price tier as files have it."""

    input_tokens_above: int
    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class PriceFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Prices as files have them, US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    tiers: tuple[TierFacts, ...] = ()

    def prices(self) -> Prices:
        """The same prices for use."""
        tiers = tuple(CostTier(**msgspec.structs.asdict(tier)) for tier in self.tiers)
        return Prices(self.input, self.output, self.cache_read, self.cache_write, tiers)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the catalogue."""

    id: str
    name: str
    reasoning: bool = False
    thinking_level_map: dict[ThinkingLevel, str | None] = {}
    input: tuple[Literal["text", "image"], ...] = ("text",)
    cost: PriceFacts = PriceFacts()
    context_window: int
    max_tokens: int
    compat: dict[str, Any] = {}


class Provider(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One provider. Without an api its models name their own; without a base URL they need one.

    Attributes:
        bearer_keys: variables whose value is sent as a bearer token; they are looked up first.
        keys: variables whose value is sent as the api wants keys to be sent.
    """

    id: str
    name: str
    api: str | None = None
    base_url: str | None = None
    bearer_keys: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    default_model: str | None = None
    compat: dict[str, Any] = {}
    models: tuple[ModelFacts, ...] = ()


class _Catalog(msgspec.Struct, frozen=True):
    providers: tuple[Provider, ...]


def load_catalog() -> tuple[Provider, ...]:
    """Every built-in provider, in the order in which a model is chosen."""
    return msgspec.json.decode(_DATA.read_bytes(), type=_Catalog).providers


def models_of(provider: Provider) -> list[Model]:
    """The models that the catalogue has of a provider."""
    return [
        Model(
            provider=provider.id,
            provider_name=provider.name,
            id=row.id,
            name=row.name,
            api=provider.api or "",
            base_url=provider.base_url or "",
            reasoning=row.reasoning,
            thinking_level_map=row.thinking_level_map,
            input=row.input,
            prices=row.cost.prices(),
            context_window=row.context_window,
            max_tokens=row.max_tokens,
            compat={**provider.compat, **row.compat},
        )
        for row in provider.models
    ]
