"""Asks models: picks the adapter, resolves the credentials, and always ends with a finished reply.

One client serves the whole process. The HTTP library is loaded with the first request that needs it.

Source: models and providers, "Model object", "Credentials", "Errors".
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from knightcode.models.adapters.base import Adapter
from knightcode.models.auth import CredentialError
from knightcode.models.registry import ModelRegistry
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import CacheRetention, ModelRequest
from knightcode.models.settings import CLOSE_SECONDS, ModelSettings
from knightcode.models.wire import HttpWire, Wire

if TYPE_CHECKING:
    from knightcode.models.adapters.scripted import Scripted
    from knightcode.models.http import Http

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_model_client(
    registry: ModelRegistry, settings: ModelSettings | None = None
) -> AsyncIterator["ModelClient"]:
    """The process's client; on exit its connections are closed. Opening it does nothing slow."""
    client = ModelClient(registry, settings or ModelSettings())
    try:
        yield client
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await client.aclose()


@attrs.define(eq=False)
class ModelClient:
    """Sends requests to models. Made by `open_model_client`.

    Attributes:
        registry: whose credentials are used; replaced as a whole on a reload.
        settings: for requests that bring none of their own; replaced on a reload.
    """

    registry: ModelRegistry
    settings: ModelSettings
    _http: "Http | None" = attrs.field(default=None, init=False)
    _scripted: "Scripted | None" = attrs.field(default=None, init=False)

    async def stream(
        self, request: ModelRequest, reply: ReplyBuilder, settings: ModelSettings | None = None
    ) -> None:
        """Ask, and put what arrives into `reply`, which is finished on return.

        Whatever fails, the provider, the way to it or the program, ends the reply as an error.
        Cancelled passes through; the caller then aborts the reply.
        """
        try:
            await self._stream(request, reply, settings or self.settings)
        except* CredentialError as group:
            reply.fail(str(_first(group)))
        except* Exception as group:
            log.exception("request failed inside the program", extra={"model": "/".join(request.model.key)})
            reply.fail(f"the request failed inside the program: {_first(group)!r}")
        if not reply.finished:
            reply.fail(f"the adapter of {request.model.api} ended without a reply")

    async def prepare(self) -> None:
        """Load what the first request needs, in a worker thread, so that it need not wait."""
        await trio.to_thread.run_sync(_load_http)

    async def aclose(self) -> None:
        """Close the connections; what is still streaming over them fails."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _stream(self, request: ModelRequest, reply: ReplyBuilder, settings: ModelSettings) -> None:
        model = request.model
        adapter = self._adapter(model.api, settings)
        if adapter is None:
            reply.fail(f'no adapter for api "{model.api}" (provider {model.provider})')
            return
        credentials = await self.registry.auth.resolve(model)
        if request.cache_retention is None:
            request = attrs.evolve(request, cache_retention=self._cache_retention())
        await adapter.stream(request, reply, credentials)

    def _adapter(self, api: str, settings: ModelSettings) -> Adapter | None:
        match api:
            case "anthropic-messages":
                from knightcode.models.adapters.anthropic_messages import AnthropicMessages

                return AnthropicMessages(self._wire(settings))
            case "openai-completions":
                from knightcode.models.adapters.openai_chat import OpenAIChat

                return OpenAIChat(self._wire(settings))
            case "scripted":
                return self._script_player()
            case _:
                return None

    def _wire(self, settings: ModelSettings) -> Wire:
        if self._http is None:
            from knightcode.models.http import Http

            self._http = Http(self.registry.auth.environ, self.settings.http_proxy)
        return HttpWire(self._http, settings)

    def _script_player(self) -> "Scripted":
        from knightcode.models.adapters.scripted import Scripted

        if self._scripted is None:
            self._scripted = Scripted()
        self._scripted.given = self.registry.scripts
        return self._scripted

    def _cache_retention(self) -> CacheRetention:
        return "long" if self.registry.auth.environ.get("KNIGHTCODE_CACHE_RETENTION") == "long" else "short"


def _load_http() -> None:
    from knightcode.models import http  # noqa: F401 -- loading it is the purpose


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
