"""What the process's connections share: models, threads, and the table of connections.

Source: App Server, "Limits and client reference" (a host owns the shared context and the threads).
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from knightcode.agent.compaction import CompactionSettings
from knightcode.agent.retry import RetryPolicy
from knightcode.agent.tools.builtin import builtin_tools
from knightcode.app_server.connection import Connection, Connections
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.handlers.table import HANDLERS
from knightcode.app_server.shutdown import ANSWER_BY
from knightcode.clock import now_ms
from knightcode.config.paths import agent_dir, session_dir_override
from knightcode.config.settings import Settings, load_settings, select_tools
from knightcode.models.client import open_model_client
from knightcode.models.model import Model
from knightcode.models.registry import ModelRegistry
from knightcode.models.settings import ModelSettings
from knightcode.threads.manager import ThreadManager, open_thread_manager
from knightcode.threads.services import Services, SessionPlaces

log = logging.getLogger(__name__)


@attrs.frozen
class HostConfig:
    """What a host is made from. Nothing inside reads the process's environment.

    Attributes:
        cwd: the process's working directory; relative paths of options resolve against it.
        session_dir: `--session-dir`.
        scripted: the file of `--scripted-model`.
    """

    environ: Mapping[str, str]
    cwd: Path
    session_dir: str | None = None
    scripted: Path | None = None


@attrs.define(eq=False)
class Host:
    """One server's shared state. Made by `open_host`."""

    manager: ThreadManager
    connections: Connections
    requests: trio.Nursery
    """For waiting requests of connections that can end before their host."""

    def connect(self, core: ConnectionCore, nursery: trio.Nursery, *, in_process: bool = False) -> Connection:
        """A connection whose waiting requests run in `nursery`."""
        connection = Connection(
            id=self.connections.new_id(),
            core=core,
            manager=self.manager,
            handlers=HANDLERS,
            nursery=nursery,
            in_process=in_process,
        )
        self.connections.add(connection)
        return connection

    def disconnect(self, connection: Connection) -> None:
        """The client is gone: nothing is sent to it, and what it was asked goes to others."""
        connection.core.close()
        self.connections.remove(connection)
        self.manager.connection_left(connection.id)


@asynccontextmanager
async def open_host(config: HostConfig) -> AsyncIterator[Host]:
    """A host; on exit every thread has been unloaded and the model connections are closed."""
    agent = agent_dir(config.environ)
    settings = load_settings(agent / "settings.json")
    registry = ModelRegistry.load(agent, config.environ, config.scripted)
    warnings = (*settings.warnings, *registry.warnings)
    for text in warnings:
        log.warning("configuration problem", extra={"reason": text})
    connections = Connections()
    places = SessionPlaces(
        agent,
        session_dir_override(
            config.environ, cwd=config.cwd, flag=config.session_dir, setting=settings.session_dir
        ),
    )
    built_in = builtin_tools()
    names = select_tools(settings.default_tools, tuple(tool.name for tool in built_in))
    tries, requests_tries = settings.retry, settings.retry.provider
    retry = RetryPolicy(tries.enabled, tries.max_retries, tries.base_delay_ms, tries.max_agent_delay_ms)
    model_settings = ModelSettings(
        timeout_ms=requests_tries.timeout_ms,
        idle_timeout_ms=settings.http_idle_timeout_ms,
        max_retries=requests_tries.max_retries,
        max_retry_delay_ms=requests_tries.max_retry_delay_ms,
    )

    def compaction_settings(model: Model) -> CompactionSettings:
        found = settings.compaction.for_model(model.provider, model.id)
        return CompactionSettings(found.enabled, found.reserve_tokens, found.keep_recent_tokens)

    async with open_model_client(registry, model_settings) as models:

        def services(calls: trio.Nursery) -> Services:
            return Services(
                models=models,
                catalogue=_Catalogue(registry, settings),
                publisher=connections,
                asker=connections,
                calls=calls,
                tools=tuple(tool for name in names for tool in built_in if tool.name == name),
                places=places,
                agent_dir=agent,
                environ=config.environ,
                now_ms=now_ms,
                default_thinking_level=settings.default_thinking_level,
                shell_path=settings.shell_path,
                shell_command_prefix=settings.shell_command_prefix,
                retry=retry,
                compaction_settings=compaction_settings,
                steering_mode=settings.steering_mode,
                warnings=warnings,
            )

        async with open_thread_manager(services) as manager, trio.open_nursery() as requests:
            try:
                yield Host(manager, connections, requests)
            finally:
                # As a server's stop: nothing new is accepted, all threads begin to unload, and what was
                # accepted has its time to be answered.
                for connection in connections.all():
                    connection.core.begin_shutdown()
                manager.refuse_new_work()
                requests.cancel_scope.deadline = trio.current_time() + ANSWER_BY


@attrs.frozen
class _Catalogue:
    """The registry, with the settings' choice of a default."""

    registry: ModelRegistry
    settings: Settings

    @property
    def models(self) -> tuple[Model, ...]:
        return self.registry.models

    def find(self, provider: str, model_id: str) -> Model | None:
        return self.registry.find(provider, model_id)

    def available(self, model: Model) -> bool:
        return self.registry.available(model)

    def default_model(self) -> Model | None:
        return self.registry.default_model(self.settings.default_provider, self.settings.default_model)
