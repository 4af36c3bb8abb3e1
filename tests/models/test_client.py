"""The client: whatever happens, the reply is finished."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from knightcode.models.client import ModelClient, open_model_client
from knightcode.models.errors import error_kind
from knightcode.models.registry import ModelRegistry
from knightcode.models.script import ScriptedConversation
from knightcode.models.settings import ModelSettings
from tests.models.asking import Asked, ask
from tests.models.loopback import END, SSE, Silence, named, open_loopback, plain, records

HI = {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}


def registry_for(
    tmp_path: Path, base_url: str, environ: dict[str, str] | None = None, **entry: Any
) -> ModelRegistry:
    provider = {"baseUrl": base_url, "api": "openai-completions", "models": [{"id": "m"}], **entry}
    (tmp_path / "models.json").write_bytes(msgspec.json.encode({"providers": {"x": provider}}))
    return ModelRegistry.load(tmp_path, environ or {})


async def stream(client: ModelClient, **changes: Any) -> Asked:
    model = client.registry.find("x", "m") or client.registry.models[-1]
    asked = Asked(model)
    await client.stream(ask(model, **changes), asked.reply)
    assert asked.reply.finished
    return asked


async def test_requests_of_one_client_share_a_connection(tmp_path: Path) -> None:
    answer = [SSE + records(HI, "[DONE]") + END]
    with trio.fail_after(5):
        async with open_loopback(answer, answer) as server:
            registry = registry_for(tmp_path, f"{server.url}/v1", {"http_proxy": "http://127.0.0.1:1"})
            async with open_model_client(registry) as client:
                outcomes = [(await stream(client)).outcome for _ in range(2)]
    assert outcomes == [("stop", None), ("stop", None)]
    assert [(seen.path, seen.connection) for seen in server.requests] == [("/v1/chat/completions", 1)] * 2
    assert "authorization" not in server.requests[0].headers


async def test_each_api_has_its_own_adapter(tmp_path: Path) -> None:
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    answer = [SSE + named({"type": "message_start"}, stop, {"type": "message_stop"}) + END]
    with trio.fail_after(5):
        async with open_loopback(answer) as server:
            registry = registry_for(tmp_path, server.url, api="anthropic-messages", apiKey="k")
            async with open_model_client(registry) as client:
                assert (await stream(client)).outcome == ("stop", None)
    assert (server.requests[0].path, server.requests[0].headers["x-api-key"]) == ("/v1/messages", "k")


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
async def test_the_wait_that_a_provider_asks_for_is_told_beside_the_message(tmp_path: Path, api: str) -> None:
    """Models and providers, "Agent-level retry"."""
    with trio.fail_after(5):
        async with open_loopback([plain(429, b"slow down", retry_after="5")]) as server:
            registry = registry_for(tmp_path, server.url, api=api, apiKey="k")
            async with open_model_client(registry) as client:
                asked = await stream(client)
    assert (asked.outcome, asked.reply.retry_after_ms) == (("error", "429 slow down"), 5_000)
    assert b"5000" not in msgspec.json.encode(asked.message)


async def test_an_api_without_adapter_ends_as_an_error(tmp_path: Path) -> None:
    """Models and providers, "Model object"."""
    registry = registry_for(tmp_path, "https://x.example", api="smoke-signals", apiKey="k")
    async with open_model_client(registry) as client:
        asked = await stream(client)
    assert asked.outcome == ("error", 'no adapter for api "smoke-signals" (provider x)')
    assert error_kind(asked.message.error_message or "") == "provider"


async def test_missing_credentials_end_as_an_error(tmp_path: Path) -> None:
    async with open_model_client(registry_for(tmp_path, "https://x.example")) as client:
        assert (await stream(client)).outcome == ("error", "no API key for x")


async def test_a_fault_of_the_program_ends_as_an_error_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def before_request(self, body: dict[str, Any]) -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            raise ZeroDivisionError("oops")

        async def after_response(self, status: int, headers: Any) -> None:
            await trio.lowlevel.checkpoint()

    with caplog.at_level(logging.ERROR):
        async with open_model_client(registry_for(tmp_path, "http://127.0.0.1:1")) as client:
            asked = await stream(client, inspector=Broken())
    assert asked.outcome == ("error", "the request failed inside the program: ZeroDivisionError('oops')")
    assert [record.message for record in caplog.records] == ["request failed inside the program"]


async def test_cancelling_leaves_the_reply_to_the_caller(tmp_path: Path) -> None:
    with trio.fail_after(5):
        async with (
            open_loopback([Silence()]) as server,
            open_model_client(registry_for(tmp_path, server.url)) as client,
        ):
            asked = Asked(client.registry.models[-1])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.stream, ask(asked.model), asked.reply)
                await server.requested.wait()
                nursery.cancel_scope.cancel()
            assert not asked.reply.finished
            await server.client_left.wait()


async def test_a_request_follows_the_settings_of_the_client(tmp_path: Path) -> None:
    settings = ModelSettings(timeout_ms=50, idle_timeout_ms=0)
    with trio.fail_after(5):
        async with (
            open_loopback([Silence()]) as server,
            open_model_client(registry_for(tmp_path, server.url), settings) as client,
        ):
            asked = await stream(client)
    assert asked.outcome == ("error", "request timed out: no response within 0.05 s")


async def test_the_environment_asks_for_long_caching(tmp_path: Path) -> None:
    answer = [SSE + records(HI) + END]
    with trio.fail_after(5):
        async with open_loopback(answer, answer) as server:
            for environ in ({}, {"KNIGHTCODE_CACHE_RETENTION": "long"}):
                async with open_model_client(registry_for(tmp_path, server.url, environ)) as client:
                    await stream(client, session_id="s")
    assert [seen.json().get("prompt_cache_retention") for seen in server.requests] == [None, "24h"]


async def test_a_given_script_is_played_and_keeps_its_place(tmp_path: Path) -> None:
    written = '{"replies": [{"steps": [{"text": "a"}]}, {"steps": [{"text": "b"}], "stop": "length"}]}'
    registry = ModelRegistry.load(tmp_path, {}, ScriptedConversation.parse(written))
    async with open_model_client(registry) as client:
        assert [(await stream(client)).outcome[0] for _ in range(3)] == ["stop", "length", "error"]


FIRST_REQUEST = """
import pathlib, sys, threading, trio
from knightcode.models import client, registry
from tests.models.asking import Asked, ask

seen = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("httpcore2", "knightcode.models.http"):
            seen.append((name, threading.current_thread() is threading.main_thread()))

async def main():
    known = registry.ModelRegistry.load(pathlib.Path(sys.argv[1]), {})
    async with client.open_model_client(known) as models, trio.open_nursery() as nursery:
        asked = [Asked(known.find("x", "m")) for _ in range(2)]
        for one in asked:
            nursery.start_soon(models.stream, ask(one.model), one.reply)
    print([one.outcome[0] for one in asked], sorted(seen))

sys.modules.pop("knightcode.models.http", None)  # a helper of the tests has it
sys.modules.pop("httpcore2", None)
sys.meta_path.insert(0, Watch())
trio.run(main)
"""


def test_the_http_library_is_loaded_outside_of_the_event_loop(tmp_path: Path) -> None:
    registry_for(tmp_path, "http://127.0.0.1:1")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", FIRST_REQUEST, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(root), str(root / "protocol")))},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    told = "['error', 'error'] [('httpcore2', False), ('knightcode.models.http', False)]\n"
    assert (done.stdout, done.stderr) == (told, "")


async def test_closing_the_client_is_bounded_and_goes_through_when_cancelled(tmp_path: Path) -> None:
    answer = [SSE + records(HI, "[DONE]") + END]
    with trio.fail_after(5):
        async with open_loopback(answer) as server:
            with trio.CancelScope() as scope:
                async with open_model_client(registry_for(tmp_path, server.url)) as client:
                    assert (await stream(client)).outcome == ("stop", None)
                    scope.cancel()
            await server.client_left.wait()


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (ModelSettings(), (300.0, 300.0)),
        (ModelSettings(idle_timeout_ms=0), (None, None)),
        (ModelSettings(timeout_ms=0), (None, 300.0)),
        (ModelSettings(timeout_ms=1500, idle_timeout_ms=0), (1.5, None)),
    ],
)
def test_limits_of_zero_are_none(settings: ModelSettings, seconds: tuple[float | None, float | None]) -> None:
    assert (settings.header_seconds, settings.idle_seconds) == seconds
