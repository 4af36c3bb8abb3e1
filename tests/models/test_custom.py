"""models.json: problems of shape, and how entries change what is built in."""

import os
from pathlib import Path
from typing import Any

import pytest

from knightcode.models.catalog import Provider, load_catalog
from knightcode.models.custom import compose, read_models_file, structure_providers
from knightcode.models.jsonc import BadJsonError, parse_jsonc
from knightcode.models.model import CostTier, Model, Prices

BUILT_IN = {provider.id: provider for provider in load_catalog()}


def composed(provider_id: str, **entry: Any) -> tuple[Provider, dict[str, Model]]:
    providers, problems = structure_providers({"providers": {provider_id: entry}})
    assert problems == []
    provider, models = compose(provider_id, providers[provider_id], BUILT_IN.get(provider_id))
    return provider, {model.id: model for model in models}


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ([], ["the file must hold one object"]),
        ({"providers": []}, ["providers: must be an object of provider ids"]),
        ({"providers": {"x": 1}}, ["providers.x: must be an object"]),
        (
            {"providers": {"x": {"baseUrl": "", "authHeader": "yes", "headers": {"a": 1}, "oauth": "other"}}},
            [
                "providers.x.baseUrl: expected `str` of length >= 1",
                "providers.x.headers.*: expected `str`, got `int`",
                "providers.x.authHeader: expected `bool`, got `str`",
                "providers.x.oauth: invalid enum value 'other'",
            ],
        ),
        (
            {"providers": {"x": {"models": {}, "modelOverrides": [], "api": None}}},
            [
                "providers.x.models: must be a list",
                "providers.x.modelOverrides: must be an object",
                "providers.x.api: expected `str`, got `null`",
            ],
        ),
        (
            {
                "providers": {
                    "x": {"models": [{"id": ""}, 5, {"id": "m", "contextWindow": 0, "input": ["sound"]}]}
                }
            },
            [
                "providers.x.models.0.id: expected `str` of length >= 1",
                "providers.x.models.1: must be an object",
                "providers.x.models.2.input.0: invalid enum value 'sound'",
                "providers.x.models.2.contextWindow: expected `float` > 0.0",
            ],
        ),
        (
            {
                "providers": {
                    "x": {
                        "modelOverrides": {"m": {"cost": {"input": "1"}, "thinkingLevelMap": {"lots": "x"}}}
                    }
                }
            },
            [
                "providers.x.modelOverrides.m.thinkingLevelMap: invalid enum value 'lots' - at `key` in `$`",
                "providers.x.modelOverrides.m.cost.input: expected `float`, got `str`",
            ],
        ),
    ],
)
def test_every_problem_of_shape_is_named_with_its_path(value: Any, problems: list[str]) -> None:
    """Models and providers, "models.json"."""
    assert structure_providers(value)[1] == problems


def test_unknown_members_are_allowed() -> None:
    providers, problems = structure_providers(
        {"providers": {"x": {"future": 1, "models": [{"id": "m", "new": 2}]}}, "y": 1}
    )
    assert (list(providers), problems) == (["x"], [])


def test_a_base_url_and_compat_reach_the_built_in_models() -> None:
    provider, models = composed(
        "deepseek", baseUrl="https://proxy.example", compat={"supportsStore": True}, name="Mine"
    )
    assert (provider.name, provider.base_url) == ("Mine", "https://proxy.example")
    assert {model.base_url for model in models.values()} == {"https://proxy.example"}
    assert models["deepseek-v4-pro"].compat == {"thinkingFormat": "deepseek", "supportsStore": True}
    assert models["deepseek-v4-pro"].provider_name == "Mine"


def test_a_model_of_the_same_id_replaces_and_a_new_one_is_added() -> None:
    _, models = composed("groq", models=[{"id": "llama-3.3-70b-versatile", "maxTokens": 9}, {"id": "new"}])
    assert list(models) == ["openai/gpt-oss-120b", "llama-3.3-70b-versatile", "new"]
    replaced = models["llama-3.3-70b-versatile"]
    assert (replaced.max_tokens, replaced.context_window, replaced.prices) == (9, 128_000, Prices())
    assert (replaced.api, replaced.base_url) == ("openai-completions", "https://api.groq.com/openai/v1")
    assert models["new"].base_url == "https://api.groq.com/openai/v1"


def test_a_built_in_provider_without_models_gives_its_address_to_new_ones() -> None:
    _, models = composed("mistral", models=[{"id": "devstral"}])
    assert (models["devstral"].api, models["devstral"].base_url) == (
        "openai-completions",
        "https://api.mistral.ai/v1",
    )
    assert models["devstral"].compat["maxTokensField"] == "max_tokens"


def test_overrides_patch_members_and_merge_maps() -> None:
    _, models = composed(
        "openai",
        modelOverrides={
            "gpt-5.5": {
                "name": "Mine",
                "maxTokens": 10.0,
                "thinkingLevelMap": {"off": "none"},
                "cost": {"output": 9, "tiers": [{"inputTokensAbove": 5, "input": 1}]},
                "samplingParams": {"top_p": 1},
                "samplingParamsByThinkingLevel": {"high": {"top_p": 2}},
            },
            "unknown": {"name": "x"},
        },
    )
    model = models["gpt-5.5"]
    assert (model.name, model.max_tokens, model.context_window) == ("Mine", 10, 272_000)
    assert model.thinking_level_map == {"off": "none", "xhigh": "xhigh"}
    tier = CostTier(input_tokens_above=5, input=1)
    assert model.prices == Prices(input=5, output=9, cache_read=0.5, tiers=(tier,))
    assert model.sampling_params == {"top_p": 1}
    assert model.sampling_params_by_thinking_level == {"high": {"top_p": 2}}


def test_headers_of_a_model_beat_overrides_and_those_beat_the_providers() -> None:
    _, models = composed(
        "x",
        baseUrl="https://x.example",
        api="openai-completions",
        headers={"X-A": "provider", "X-B": "provider", "X-C": "provider"},
        models=[{"id": "m", "headers": {"x-a": "model"}}],
        modelOverrides={"m": {"headers": {"x-a": "override", "x-b": "override"}}},
    )
    assert models["m"].headers == {"x-a": "model", "x-b": "override", "X-C": "provider"}


def test_routing_maps_in_compat_merge_by_key() -> None:
    _, models = composed(
        "openrouter",
        compat={"openRouterRouting": {"only": ["a"], "sort": "price"}},
        modelOverrides={"openai/gpt-5.5": {"compat": {"openRouterRouting": {"only": ["b"]}}}},
    )
    assert models["openai/gpt-5.5"].compat == {"openRouterRouting": {"only": ["b"], "sort": "price"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            b'{"a": "// no comment", "b": "/* none */ \\" //"} // x',
            {"a": "// no comment", "b": '/* none */ " //'},
        ),
        (b"\xef\xbb\xbf/* a\n b */ [1, /* in */ 2] /* never ends", [1, 2]),
        (b'"\\ud83d"', "\ufffd"),
    ],
)
def test_comments_and_a_byte_order_mark_are_ignored(text: bytes, value: Any) -> None:
    assert parse_jsonc(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "line 1, column 1: Expecting value"),
        (b'// one\n/* two\n*/ {"a" 1}', "line 3, column 9: Expecting ':' delimiter"),
        (b"\xff", "byte 0: not UTF-8 text"),
        (b"[Infinity]", "Infinity is not a JSON value"),
        (b"[-1e999]", "the number -1e999 is out of range"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "unended // x', "line 1, column 7: Unterminated string starting at"),
    ],
)
def test_text_that_is_not_json_says_where(text: bytes, problem: str) -> None:
    with pytest.raises(BadJsonError) as failure:
        parse_jsonc(text)
    assert str(failure.value) == problem


def test_a_pipe_under_the_files_name_is_a_problem_and_blocks_nobody(tmp_path: Path) -> None:
    """Models and providers: models.json."""
    os.mkfifo(tmp_path / "models.json")
    problem = read_models_file(tmp_path / "models.json").problem
    assert problem is not None and str(tmp_path / "models.json") in problem
