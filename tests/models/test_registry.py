"""Which models there are, which can be used, and which one is first."""

import subprocess
import sys
from pathlib import Path

import pytest

from knightcode.models.model import Model, Prices
from knightcode.models.registry import ModelRegistry
from knightcode.models.script import ScriptedConversation

OPENAI_KEY = {"OPENAI_API_KEY": "k"}


def load(tmp_path: Path, text: str | None = None, **environ: str) -> ModelRegistry:
    if text is not None:
        (tmp_path / "models.json").write_text(text)
    return ModelRegistry.load(tmp_path, environ)


def test_the_catalogue_in_the_box_has_its_providers_in_the_order_of_choice(tmp_path: Path) -> None:
    """Models and providers, "Built-in providers"."""
    registry = load(tmp_path)
    listed = list(dict.fromkeys(model.provider for model in registry.models))
    assert listed == ["openrouter", "anthropic", "openai", "deepseek", "google", "xai", "groq"]
    assert registry.warnings == ()
    assert not any(registry.available(model) for model in registry.models)


def test_a_row_of_the_catalogue_has_all_its_facts(tmp_path: Path) -> None:
    assert load(tmp_path).find("anthropic", "claude-sonnet-5") == Model(
        provider="anthropic",
        provider_name="Anthropic",
        id="claude-sonnet-5",
        name="Claude Sonnet 5",
        api="anthropic-messages",
        base_url="https://api.anthropic.com",
        reasoning=True,
        thinking_level_map={"xhigh": "xhigh", "max": "max"},
        input=("text", "image"),
        prices=Prices(input=2, output=10, cache_read=0.2, cache_write=2.5),
        context_window=1_000_000,
        max_tokens=128_000,
        compat={"forceAdaptiveThinking": True, "supportsStrictTools": True},
    )


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({}, None),
        ({"ANTHROPIC_API_KEY": "k"}, ("anthropic", "claude-opus-4-8")),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, ("anthropic", "claude-opus-4-8")),
        ({"ANTHROPIC_API_KEY": "k", "OPENROUTER_API_KEY": "k"}, ("openrouter", "moonshotai/kimi-k2.6")),
        ({"XAI_API_KEY": "k"}, ("xai", "grok-4.3")),
        ({"XAI_API_KEY": "k", "GROQ_API_KEY": "k"}, ("groq", "openai/gpt-oss-120b")),
        (OPENAI_KEY, None),
        ({"ANTHROPIC_API_KEY": ""}, None),
    ],
)
def test_the_first_model_is_the_first_default_that_can_be_used(
    tmp_path: Path, environ: dict[str, str], key: tuple[str, str] | None
) -> None:
    """Models and providers, "Start-up order"."""
    found = load(tmp_path, **environ).default_model()
    assert (found.key if found else None) == key


def test_the_saved_default_comes_first_if_it_is_known_and_available(tmp_path: Path) -> None:
    registry = load(tmp_path, ANTHROPIC_API_KEY="k", OPENAI_API_KEY="k")

    def first(provider: str | None, model: str | None) -> str | None:
        found = registry.default_model(provider, model)
        return found.id if found else None

    assert first("anthropic", "claude-haiku-4-5") == "claude-haiku-4-5"
    assert first("openai", "gpt-5.4") == "gpt-5.4"
    assert first("anthropic", "gone") == "claude-opus-4-8"
    assert first("deepseek", "deepseek-v4-pro") == "claude-opus-4-8"
    assert first("anthropic", None) == "claude-opus-4-8"


def test_custom_providers_come_after_the_built_in_ones(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        """\ufeff// mine
        {"providers": {"ollama": {"baseUrl": "http://localhost:11434/v1", "api": "openai-completions",
          "models": [{"id": "qwen", "contextWindow": 65536.0}]}}} /* end */""",
    )
    assert registry.warnings == ()
    assert registry.models[-1] == registry.find("ollama", "qwen") == registry.default_model()
    assert registry.models[-1] == Model(
        provider="ollama",
        provider_name="ollama",
        id="qwen",
        name="qwen",
        api="openai-completions",
        base_url="http://localhost:11434/v1",
        context_window=65536,
    )


def test_a_file_that_cannot_be_used_leaves_the_built_in_models_and_a_warning(tmp_path: Path) -> None:
    registry = load(tmp_path, '{"providers": {"a": {"models": [{"name": 5}]}, "b": []}}')
    path = tmp_path / "models.json"
    assert registry.warnings == (
        f"{path}: providers.a.models.0.id: is missing\n"
        f"{path}: providers.a.models.0.name: expected `str`, got `int`\n"
        f"{path}: providers.b: must be an object",
    )
    assert len(registry.models) == len(load(tmp_path, "{}").models)


def test_a_file_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.mkdir()
    assert load(tmp_path).warnings == (f"{path}: cannot be read: Is a directory",)


def test_a_file_that_is_not_json_is_a_warning_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    assert load(tmp_path, '{"providers": }').warnings == (f"{path}: line 1, column 15: Expecting value",)


def test_a_provider_that_cannot_be_composed_harms_no_other(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        """{"providers": {
          "new": {"baseUrl": "https://x.example", "models": [{"id": "m"}]},
          "groq": {"oauth": "radius"},
          "deepseek": {},
          "good": {"baseUrl": "https://y.example", "api": "openai-completions", "models": [{"id": "m"}]}}}""",
    )
    path = tmp_path / "models.json"
    assert registry.warnings == (
        f"{path}: provider deepseek: the entry says nothing; give it a baseUrl, models or modelOverrides",
        f"{path}: provider groq: oauth needs a baseUrl",
        f"{path}: provider new, model m: no api; set it on the model or the provider",
    )
    assert registry.find("good", "m") is not None
    assert registry.find("new", "m") is None
    assert registry.find("groq", "llama-3.3-70b-versatile") is not None


def test_a_scripted_model_is_there_and_first_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text('{"replies": [], "model": {"contextWindow": 1000}}')
    registry = ModelRegistry.load(tmp_path, {"ANTHROPIC_API_KEY": "k"}, path)
    model = registry.default_model("anthropic", "claude-haiku-4-5")
    assert model is registry.models[-1]
    assert (model.key, model.context_window, model.base_url) == (("scripted", "scripted"), 1000, str(path))
    assert registry.available(model)


def test_a_script_can_be_given_without_a_file(tmp_path: Path) -> None:
    conversation = ScriptedConversation.parse('{"replies": []}')
    registry = ModelRegistry.load(tmp_path, {}, conversation)
    model = registry.default_model()
    assert model is not None
    assert registry.scripts[model.base_url] is conversation


def test_a_script_that_cannot_be_read_is_a_warning_and_its_model_is_listed(tmp_path: Path) -> None:
    registry = ModelRegistry.load(tmp_path, {}, tmp_path / "none.json")
    assert registry.warnings == (
        f"{tmp_path}/none.json: cannot be read: No such file or directory; name a file that holds a script",
    )
    assert registry.find("scripted", "scripted") is registry.default_model()


def test_a_script_listed_in_the_file_is_found_beside_it(tmp_path: Path) -> None:
    registry = load(
        tmp_path,
        '{"providers": {"demo": {"api": "scripted", "baseUrl": "file://t.json", "models": [{"id": "t"}]}}}',
    )
    model = registry.find("demo", "t")
    assert model is not None
    assert (model.base_url, registry.available(model)) == (str(tmp_path / "t.json"), True)


def test_a_registry_loads_without_the_http_library() -> None:
    code = (
        "import sys, pathlib, knightcode.models.registry as r, knightcode.models.client;"
        "r.ModelRegistry.load(pathlib.Path('/nonexistent'), {});"
        "print([name for name in sys.modules if name.startswith(('httpx', 'httpcore', 'h11', 'anyio'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
