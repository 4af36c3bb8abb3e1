"""Asks models: picks the adapter, resolves the credentials, and always ends with a finished reply.

One client serves the whole process. The HTTP library is loaded with the first request that needs it,
in a worker thread.

Source: models and providers, "Model object", "Credentials", "Errors".
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs

from knightcode.failures import first_leaf
from knightcode.models.adapters.base import Adapter
from knightcode.models.auth import CredentialError
from knightcode.models.registry import ModelRegistry
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import CacheRetention, ModelRequest
from knightcode.models.settings import ModelSettings
from knightcode.models.wire import HttpWire, Wire
from knightcode.processes.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from knightcode.models.adapters.scripted import Scripted
    from knightcode.models.http import Http

log = logging.getLogger(__name__)

_LIBRARY_THREADS = WorkerThreads("HTTP library threads", 1)


@asynccontextmanager
async def open_model_client(
    registry: ModelRegistry, settings: ModelSettings | None = None
) -> AsyncIterator["ModelClient"]:
    """The process's client; on exit its connections are closed. Opening it does nothing slow."""
    client = ModelClient(registry, settings or ModelSettings())
    try:
        yield client
    finally:
        await client.aclose()


@attrs.define(eq=False)
class ModelClient:
    """Sends requests to models. Made by `open_model_client`.

    Attributes:
        registry: whose credentials are used; replaced as a whole on a reload.
        settings: what requests follow; replaced on a reload.
    """

    registry: ModelRegistry
    settings: ModelSettings
    _http: "Http | None" = attrs.field(default=None, init=False)
    _scripted: "Scripted | None" = attrs.field(default=None, init=False)

    async def stream(self, request: ModelRequest, reply: ReplyBuilder) -> None:
        """Ask, and put what arrives into `reply`, which is finished on return.

        Whatever fails, the provider, the way to it or the program, ends the reply as an error.
        Cancelled passes through; the caller then aborts the reply.
        """
        try:
            await self._stream(request, reply)
        except* CredentialError as group:
            reply.fail(str(first_leaf(group)))
        except* Exception as group:
            log.exception("request failed inside the program", extra={"model": "/".join(request.model.key)})
            reply.fail(f"the request failed inside the program: {first_leaf(group)!r}")
        if not reply.finished:
            reply.fail(f"the adapter of {request.model.api} ended without a reply")

    async def aclose(self) -> None:
        """Close the connections, in bounded time; what is still streaming over them fails."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def _stream(self, request: ModelRequest, reply: ReplyBuilder) -> None:
        model = request.model
        adapter = await self._adapter(model.api)
        if adapter is None:
            reply.fail(f'no adapter for api "{model.api}" (provider {model.provider})')
            return
        credentials = await self.registry.auth.resolve(model)
        if request.cache_retention is None:
            request = attrs.evolve(request, cache_retention=self._cache_retention())
        await adapter.stream(request, reply, credentials)

    async def _adapter(self, api: str) -> Adapter | None:
        match api:
            case "anthropic-messages":
                from knightcode.models.adapters.anthropic_messages import AnthropicMessages

                return AnthropicMessages(await self._wire())
            case "openai-completions":
                from knightcode.models.adapters.openai_chat import OpenAIChat

                return OpenAIChat(await self._wire())
            case "scripted":
                return self._script_player()
            case _:
                return None

    async def _wire(self) -> Wire:
        return HttpWire(await self._loaded_http(), self.settings)

    async def _loaded_http(self) -> "Http":
        if self._http is None:
            http_type = await _LIBRARY_THREADS.run(_load_http)  # a tenth of a second
            if self._http is None:  # else another request was faster
                self._http = http_type(self.registry.auth.environ, self.settings.http_proxy)
        return self._http

    def _script_player(self) -> "Scripted":
        from knightcode.models.adapters.scripted import Scripted

        if self._scripted is None:
            self._scripted = Scripted()
        self._scripted.given = self.registry.scripts
        return self._scripted

    def _cache_retention(self) -> CacheRetention:
        return "long" if self.registry.auth.environ.get("KNIGHTCODE_CACHE_RETENTION") == "long" else "short"


def _load_http() -> "type[Http]":
    from knightcode.models.http import Http

    return Http
