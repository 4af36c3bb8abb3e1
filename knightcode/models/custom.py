"""models.json: providers and models of the user's own, and changes to the built-in ones.

A file with any problem of shape is left out as a whole, all problems named; a provider that cannot be
composed keeps its built-in models. Pure but for `read_models_file`.

Source: models and providers, "models.json".
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import attrs
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from knightcode.messages import ThinkingLevel
from knightcode.models.catalog import PriceFacts, Provider, TierFacts, models_of
from knightcode.models.headers import merge_headers
from knightcode.models.jsonc import BadJsonError, parse_jsonc
from knightcode.models.model import Model, Prices
from knightcode.regular_file import read_regular

Name = Annotated[str, Meta(min_length=1)]
Tokens = Annotated[float, Meta(gt=0)]
Compat = dict[str, Any]

_MERGED_IN_COMPAT: Final = (
    "openRouterRouting",
    "vercelGatewayRouting",
    "chatTemplateKwargs",
    "chatTemplateArgs",
)


class PricePatch(Struct, frozen=True, kw_only=True, rename="camel"):
    """Some prices of a model."""

    input: float | UnsetType = UNSET
    output: float | UnsetType = UNSET
    cache_read: float | UnsetType = UNSET
    cache_write: float | UnsetType = UNSET
    tiers: tuple[TierFacts, ...] | UnsetType = UNSET


class Override(Struct, frozen=True, kw_only=True, rename="camel"):
    """A change of a model that exists."""

    name: Name | UnsetType = UNSET
    reasoning: bool | UnsetType = UNSET
    thinking_level_map: dict[ThinkingLevel, str | None] | UnsetType = UNSET
    input: tuple[Literal["text", "image"], ...] | UnsetType = UNSET
    cost: PricePatch | UnsetType = UNSET
    context_window: Tokens | UnsetType = UNSET
    max_tokens: Tokens | UnsetType = UNSET
    sampling_params: dict[str, Any] | UnsetType = UNSET
    sampling_params_by_thinking_level: dict[ThinkingLevel, dict[str, Any]] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    compat: Compat | UnsetType = UNSET


class ModelDef(Struct, frozen=True, kw_only=True, rename="camel"):
    """A model as the user describes it."""

    id: Name
    name: Name | UnsetType = UNSET
    api: Name | UnsetType = UNSET
    base_url: Name | UnsetType = UNSET
    reasoning: bool = False
    thinking_level_map: dict[ThinkingLevel, str | None] = {}
    input: tuple[Literal["text", "image"], ...] = ("text",)
    cost: PriceFacts = PriceFacts()
    context_window: Tokens = 128_000
    max_tokens: Tokens = 16_384
    sampling_params: dict[str, Any] = {}
    sampling_params_by_thinking_level: dict[ThinkingLevel, dict[str, Any]] = {}
    headers: dict[str, str] = {}
    compat: Compat = {}


class ProviderDef(Struct, frozen=True, kw_only=True, rename="camel"):
    """What models.json says of one provider."""

    name: Name | UnsetType = UNSET
    base_url: Name | UnsetType = UNSET
    api_key: Name | UnsetType = UNSET
    api: Name | UnsetType = UNSET
    headers: dict[str, str] = {}
    auth_header: bool = False
    compat: Compat = {}
    models: tuple[ModelDef, ...] = ()
    model_overrides: dict[str, Override] = {}
    oauth: Literal["radius"] | UnsetType = UNSET


class CompositionError(Exception):
    """A provider's entry is well formed but makes no usable provider."""


@attrs.frozen
class ModelsFile:
    """What models.json holds; `problem` says why nothing of it counts."""

    providers: Mapping[str, ProviderDef] = attrs.field(factory=dict)
    problem: str | None = None


def read_models_file(path: Path) -> ModelsFile:
    """The file's content; a file that is not there is empty, one that cannot be used has a problem."""
    try:
        value = parse_jsonc(read_regular(path))
    except FileNotFoundError:
        return ModelsFile()
    except OSError as error:
        return ModelsFile(problem=f"{path}: cannot be read: {error.strerror}")
    except BadJsonError as error:
        return ModelsFile(problem=f"{path}: {error}")
    providers, problems = structure_providers(value)
    if problems:
        return ModelsFile(problem="\n".join(f"{path}: {problem}" for problem in problems))
    return ModelsFile(providers)


def structure_providers(value: object) -> tuple[dict[str, ProviderDef], list[str]]:
    """The providers of a file's JSON value, and what is wrong with it: `providers.x.models.0.id: <what>`."""
    if not isinstance(value, dict):
        return {}, ["the file must hold one object"]
    entries = value.get("providers", {})
    if not isinstance(entries, dict):
        return {}, ["providers: must be an object of provider ids"]
    problems: list[str] = []
    found = {name: _provider(f"providers.{name}", entry, problems) for name, entry in entries.items()}
    return {name: entry for name, entry in found.items() if entry is not None}, problems


def compose(provider_id: str, entry: ProviderDef, builtin: Provider | None) -> tuple[Provider, list[Model]]:
    """The provider and its models, built-in ones included, as the entry changes them.

    Raises:
        CompositionError: the entry makes no usable provider; the text names it.
    """
    where = f"provider {provider_id}"
    if entry.oauth is not UNSET and entry.base_url is UNSET:
        raise CompositionError(f"{where}: oauth needs a baseUrl")
    if entry == ProviderDef():
        raise CompositionError(
            f"{where}: the entry says nothing; give it a baseUrl, models or modelOverrides"
        )
    known = builtin or Provider(id=provider_id, name=provider_id)
    provider = msgspec.structs.replace(
        known,
        name=_given(entry.name, known.name),
        api=_given(entry.api, known.api),
        base_url=_given(entry.base_url, known.base_url),
        compat=merge_compat(known.compat, entry.compat),
    )
    models = {model.id: _under_provider(model, provider, entry) for model in models_of(known)}
    own = [
        _custom_model(definition, provider, entry, list(models.values()), where)
        for definition in entry.models
    ]
    models.update((model.id, model) for model in own)
    own_headers = {definition.id: definition.headers for definition in entry.models}
    for model_id, override in entry.model_overrides.items():
        if model_id in models:
            models[model_id] = _overridden(models[model_id], override, entry, own_headers.get(model_id, {}))
    return provider, list(models.values())


def merge_compat(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two compat objects; the later one wins, the routing and template maps in them merge by key."""
    merged = {**base, **over}
    for key in _MERGED_IN_COMPAT:
        if isinstance(base.get(key), Mapping) and isinstance(over.get(key), Mapping):
            merged[key] = {**base[key], **over[key]}
    return merged


# --- composing ---------------------------------------------------------------------------------

_T = TypeVar("_T")


def _given(value: _T | UnsetType, otherwise: _T) -> _T:
    return otherwise if isinstance(value, UnsetType) else value


def _under_provider(model: Model, provider: Provider, entry: ProviderDef) -> Model:
    """A built-in model with what the entry says for all of its provider's models."""
    return attrs.evolve(
        model,
        provider_name=provider.name,
        base_url=_given(entry.base_url, model.base_url),
        headers=merge_headers(model.headers, entry.headers),
        compat=merge_compat(model.compat, entry.compat),
    )


def _custom_model(
    definition: ModelDef, provider: Provider, entry: ProviderDef, existing: list[Model], where: str
) -> Model:
    api, base_url = _given(definition.api, None) or _given(entry.api, None), _given(definition.base_url, None)
    base_url = base_url or _given(entry.base_url, None)
    kin = next((model for model in existing if model.id == definition.id), None)
    api = api or (kin.api if kin else None) or provider.api
    kin = kin or next((model for model in existing if model.api == api), None)
    base_url = base_url or (kin.base_url if kin else None) or provider.base_url
    if not api:
        raise CompositionError(f"{where}, model {definition.id}: no api; set it on the model or the provider")
    if not base_url:
        raise CompositionError(
            f"{where}, model {definition.id}: no baseUrl; set it on the model or the provider"
        )
    return Model(
        provider=provider.id,
        provider_name=provider.name,
        id=definition.id,
        name=_given(definition.name, definition.id),
        api=api,
        base_url=base_url,
        reasoning=definition.reasoning,
        thinking_level_map=definition.thinking_level_map,
        input=definition.input,
        prices=definition.cost.prices(),
        context_window=int(definition.context_window),
        max_tokens=int(definition.max_tokens),
        sampling_params=definition.sampling_params,
        sampling_params_by_thinking_level=definition.sampling_params_by_thinking_level,
        headers=merge_headers(entry.headers, definition.headers),
        compat=merge_compat(provider.compat, definition.compat),
    )


def _overridden(
    model: Model, override: Override, entry: ProviderDef, own_headers: Mapping[str, str]
) -> Model:
    """A patched model. Maps merge by key; headers that the model itself names stay."""
    levels = {key: dict(value) for key, value in model.sampling_params_by_thinking_level.items()}
    for level, params in _given(override.sampling_params_by_thinking_level, {}).items():
        levels[level] = {**levels.get(level, {}), **params}
    return attrs.evolve(
        model,
        name=_given(override.name, model.name),
        reasoning=_given(override.reasoning, model.reasoning),
        thinking_level_map={**model.thinking_level_map, **_given(override.thinking_level_map, {})},
        input=_given(override.input, model.input),
        prices=_patched_prices(model.prices, override.cost),
        context_window=int(_given(override.context_window, model.context_window)),
        max_tokens=int(_given(override.max_tokens, model.max_tokens)),
        sampling_params={**model.sampling_params, **_given(override.sampling_params, {})},
        sampling_params_by_thinking_level=levels,
        headers=merge_headers(model.headers, entry.headers, _given(override.headers, {}), own_headers),
        compat=merge_compat(model.compat, _given(override.compat, {})),
    )


def _patched_prices(prices: Prices, patch: PricePatch | UnsetType) -> Prices:
    if isinstance(patch, UnsetType):
        return prices
    given = {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not UNSET}
    if "tiers" in given:
        given["tiers"] = PriceFacts(tiers=given["tiers"]).prices().tiers
    return attrs.evolve(prices, **given)


# --- structuring: every problem, not only the first -----------------------------------------------

_S = TypeVar("_S", bound=Struct)


def _provider(path: str, value: object, problems: list[str]) -> ProviderDef | None:
    if not isinstance(value, dict):
        problems.append(f"{path}: must be an object")
        return None
    rest = dict(value)
    models = _items(f"{path}.models", rest.pop("models", []), list, enumerate, problems)
    overrides = _items(f"{path}.modelOverrides", rest.pop("modelOverrides", {}), dict, dict.items, problems)
    entry = _structure(ProviderDef, path, rest, problems)
    definitions = [_structure(ModelDef, f"{path}.models.{at}", item, problems) for at, item in models]
    patches = {
        key: _structure(Override, f"{path}.modelOverrides.{key}", item, problems) for key, item in overrides
    }
    if entry is None:
        return None
    return msgspec.structs.replace(
        entry,
        models=tuple(definition for definition in definitions if definition is not None),
        model_overrides={key: patch for key, patch in patches.items() if patch is not None},
    )


def _items(
    path: str, value: Any, kind: type, pairs: Callable[[Any], Iterable[tuple[Any, Any]]], problems: list[str]
) -> list[tuple[Any, Any]]:
    if isinstance(value, kind):
        return list(pairs(value))
    problems.append(f"{path}: must be {'a list' if kind is list else 'an object'}")
    return []


def _structure(kind: type[_S], path: str, value: object, problems: list[str]) -> _S | None:
    """The struct that `value` holds; what is wrong with any of its members goes into `problems`."""
    if not isinstance(value, dict):
        problems.append(f"{path}: must be an object")
        return None
    before = len(problems)
    members: dict[str, Any] = {}
    for member in msgspec.structs.fields(kind):
        if member.encode_name not in value:
            if member.required:
                problems.append(f"{path}.{member.encode_name}: is missing")
            continue
        try:
            members[member.name] = msgspec.convert(value[member.encode_name], member.type)
        except msgspec.ValidationError as error:
            problems.append(f"{path}.{member.encode_name}{_place(str(error))}")
    return kind(**members) if len(problems) == before else None


def _place(text: str) -> str:
    """msgspec's text with its path, if it has one, in front: `.0: expected ...`."""
    what, _, inner = text.partition(" - at `$")
    inside = inner.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "")
    return f"{inside}: {what[:1].lower()}{what[1:]}"
