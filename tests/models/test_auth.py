"""Keys: what counts as configured, and what a request is sent with."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from knightcode.models.auth import CredentialError, Credentials
from knightcode.models.errors import error_kind
from knightcode.models.model import Model
from knightcode.models.registry import ModelRegistry
from knightcode.models.values import UnresolvedValueError, is_configured, resolve_value

PATH = {"PATH": os.environ["PATH"]}


def registry_of(tmp_path: Path, environ: dict[str, str], **providers: Any) -> ModelRegistry:
    (tmp_path / "models.json").write_bytes(msgspec.json.encode({"providers": providers}))
    registry = ModelRegistry.load(tmp_path, {**PATH, **environ})
    assert registry.warnings == ()
    return registry


def custom(**entry: Any) -> dict[str, Any]:
    return {
        "baseUrl": "https://x.example/v1/",
        "api": "openai-completions",
        "models": [{"id": "m"}],
        **entry,
    }


def found(registry: ModelRegistry, provider: str, model: str) -> Model:
    wanted = registry.find(provider, model)
    assert wanted is not None
    return wanted


async def resolved(tmp_path: Path, environ: dict[str, str], **entry: Any) -> tuple[bool, Credentials | str]:
    """Whether the model of a custom provider is available, and its credentials or the error."""
    registry = registry_of(tmp_path, environ, x=custom(**entry))
    model = found(registry, "x", "m")
    available = registry.available(model)
    with trio.fail_after(5):
        try:
            return available, await registry.auth.resolve(model)
        except CredentialError as error:
            text = str(error)
    assert error_kind(text) == "auth"
    return available, text


@pytest.mark.parametrize(
    ("environ", "credentials"),
    [
        ({"ANTHROPIC_API_KEY": " k\n"}, Credentials("https://api.anthropic.com", "k")),
        (
            {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_OAUTH_TOKEN": "o"},
            Credentials("https://api.anthropic.com", "o", bearer=True),
        ),
        (
            {"ANTHROPIC_OAUTH_TOKEN": "o", "ANTHROPIC_AUTH_TOKEN": "t"},
            Credentials("https://api.anthropic.com", "t", bearer=True),
        ),
    ],
)
async def test_the_environment_gives_keys_in_its_order(
    tmp_path: Path, environ: dict[str, str], credentials: Credentials
) -> None:
    """Models and providers, "Resolution for a request"."""
    registry = registry_of(tmp_path, environ)
    model = found(registry, "anthropic", "claude-opus-5")
    assert registry.available(model)
    assert await registry.auth.resolve(model) == credentials


async def test_a_key_of_the_file_beats_the_environment(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, {"ANTHROPIC_AUTH_TOKEN": "t"}, anthropic={"apiKey": "f"})
    model = found(registry, "anthropic", "claude-opus-5")
    assert await registry.auth.resolve(model) == Credentials("https://api.anthropic.com", "f")


async def test_no_key_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    registry = registry_of(tmp_path, {})
    model = found(registry, "groq", "openai/gpt-oss-120b")
    assert not registry.available(model)
    with pytest.raises(CredentialError) as failure:
        await registry.auth.resolve(model)
    text = "no API key for groq; set GROQ_API_KEY or give the provider an apiKey in models.json"
    assert (str(failure.value), error_kind(text)) == (text, "auth")


@pytest.mark.parametrize(
    ("environ", "entry", "expected"),
    [
        ({}, {"apiKey": "plain"}, (True, Credentials("https://x.example/v1", "plain"))),
        ({"K": "v"}, {"apiKey": "a-${K}-$K$$b$!"}, (True, Credentials("https://x.example/v1", "a-v-v$b!"))),
        ({}, {"apiKey": "$K-$L"}, (False, "could not resolve the API key of x: $K and $L is not set")),
        ({"K": ""}, {"apiKey": "$K"}, (False, "could not resolve the API key of x: $K is not set")),
        ({}, {"apiKey": "!echo ' k '; echo noise >&2"}, (True, Credentials("https://x.example/v1", "k"))),
        ({"K": "v"}, {"apiKey": "!echo $K"}, (True, Credentials("https://x.example/v1", "v"))),
        (
            {},
            {"apiKey": "!echo secret; exit 3"},
            (
                True,
                "could not resolve the API key of x: the command `echo secret; exit 3` ended with status 3",
            ),
        ),
        (
            {},
            {"apiKey": "! true"},
            (True, "could not resolve the API key of x: the command `true` printed nothing"),
        ),
        ({}, {}, (False, "no API key for x")),
        (
            {},
            {"headers": {"X-Api-Key": "h"}},
            (True, Credentials("https://x.example/v1", None, headers={"X-Api-Key": "h"})),
        ),
        (
            {},
            {"apiKey": "k", "headers": {"x-team": "$TEAM"}},
            (True, "could not resolve the API key of x: its header x-team: $TEAM is not set"),
        ),
        (
            {},
            {"apiKey": "k", "authHeader": True},
            (True, Credentials("https://x.example/v1", "k", headers={"Authorization": "Bearer k"})),
        ),
        (
            {},
            {"apiKey": "k", "authHeader": True, "headers": {"authorization": "Basic h"}},
            (True, Credentials("https://x.example/v1", "k", headers={"authorization": "Basic h"})),
        ),
        ({}, {"baseUrl": "http://127.0.0.1:11434/v1"}, (True, Credentials("http://127.0.0.1:11434/v1"))),
        ({}, {"baseUrl": "http://192.168.0.9/v1"}, (True, Credentials("http://192.168.0.9/v1"))),
        (
            {"ACCOUNT": "a1"},
            {"baseUrl": "https://x.example/{ACCOUNT}/v1", "apiKey": "k"},
            (True, Credentials("https://x.example/a1/v1", "k")),
        ),
        (
            {},
            {"baseUrl": "https://x.example/{ACCOUNT}/v1", "apiKey": "k"},
            (False, "no API key for x: its address needs ACCOUNT, which is not set"),
        ),
    ],
)
async def test_credentials_of_a_custom_provider(
    tmp_path: Path, environ: dict[str, str], entry: dict[str, Any], expected: tuple[bool, Credentials | str]
) -> None:
    """Models and providers, "Value syntax", "Resolution for a request"."""
    assert await resolved(tmp_path, environ, **entry) == expected


def test_credentials_do_not_show_their_secrets() -> None:
    shown = repr(Credentials("https://x.example", "secret", headers={"authorization": "secret"}))
    assert "secret" not in shown


async def test_a_command_that_takes_too_long_is_ended() -> None:
    with trio.fail_after(5), trio.move_on_after(0.2) as scope:
        await resolve_value("!exec sleep 60", PATH)
    assert scope.cancelled_caught


async def test_a_command_gets_no_input_and_its_output_is_bounded() -> None:
    with trio.fail_after(5):
        assert await resolve_value("!cat; echo end", PATH) == "end"
        with pytest.raises(UnresolvedValueError, match="printed more than 65536 bytes"):
            await resolve_value("!head -c 100000 /dev/zero", PATH)


async def test_children_that_a_command_leaves_behind_are_ended() -> None:
    with trio.fail_after(5):
        child = int(await resolve_value("!sleep 60 >/dev/null & echo $!", PATH))
        try:
            handle = os.pidfd_open(child)
        except ProcessLookupError:
            return  # ended and reaped already
        try:
            await trio.lowlevel.wait_readable(handle)  # which a process is once it has ended
        finally:
            os.close(handle)


def test_a_value_counts_as_configured_without_running_anything() -> None:
    assert is_configured("!exit 1", {})
    assert not is_configured("", {})
    assert is_configured("$$HOME", {})
