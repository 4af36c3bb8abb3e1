"""The same client over a child process and over memory, and the same facts about each."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from knightcode.app_server.host import Host, HostConfig, open_host
from knightcode.client import AppServerClient, create_in_process_client, spawn_app_server
from knightcode.threads.opening import SESSION_FILES
from knightcode_protocol.handshake import ClientInfo
from knightcode_protocol.notifications import ThreadStatusChanged
from knightcode_protocol.objects import StatusIdle
from knightcode_protocol.params import ThreadStartParams, TurnStartParams
from knightcode_protocol.wire import Wire
from tests.app_server.pipe import PATIENCE, environment

INFO = ClientInfo(name="test", version="1")
COMMAND = (sys.executable, "-m", "knightcode")


@attrs.frozen
class Link:
    """A client that is connected, and what a test does to its server.

    Attributes:
        die: ends the server's side of the connection without a word.
        stall: inside the block the server does not answer requests that read saved sessions.
    """

    client: AppServerClient
    die: Callable[[], None]
    stall: Callable[[], AbstractAsyncContextManager[None]]


class Transport(Protocol):
    """Opens a connection to a server of its own. The handshake is the caller's."""

    def __call__(self, folder: Path, script: Path) -> AbstractAsyncContextManager[Link]: ...


@asynccontextmanager
async def over_a_process(folder: Path, script: Path) -> AsyncIterator[Link]:
    """A child process. It stalls by being stopped, as a debugger or a suspended shell stops it."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    arguments = ("--scripted-model", str(script))
    async with spawn_app_server(
        arguments, environ=environment(home), cwd=str(home), command=COMMAND
    ) as server:

        @asynccontextmanager
        async def stall() -> AsyncIterator[None]:
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(server.process.pid, signal.SIGCONT)

        yield Link(server.client, server.process.kill, stall)


@asynccontextmanager
async def over_memory(folder: Path, script: Path) -> AsyncIterator[Link]:
    """The in-memory pair. It stalls for want of the worker threads that read session files."""
    async with (
        open_scripted_host(folder, script) as host,
        create_in_process_client(host, mode="desktop") as client,
    ):
        (connection,) = host.connections.all()
        yield Link(client, lambda: host.disconnect(connection), no_session_files)


@asynccontextmanager
async def no_session_files() -> AsyncIterator[None]:
    """Inside the block nothing in this process can read a session file; what wants to waits."""
    holders = [object() for _ in range(int(SESSION_FILES.total_tokens))]
    for holder in holders:
        SESSION_FILES.acquire_on_behalf_of_nowait(holder)
    try:
        yield
    finally:
        for holder in holders:
            SESSION_FILES.release_on_behalf_of(holder)


@asynccontextmanager
async def open_scripted_host(folder: Path, script: Path) -> AsyncIterator[Host]:
    """A host whose threads begin with the scripted model."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    async with open_host(HostConfig(environ=environment(home), cwd=home, scripted=script)) as host:
        yield host


@asynccontextmanager
async def open_clients(host: Host, count: int, **options: Any) -> AsyncIterator[list["Listener"]]:
    """Clients of one host after their handshake, each with its ear."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(create_in_process_client(host, mode="desktop"))
            for _ in range(count)
        ]
        listeners = [Listener(client) for client in clients]
        for client in clients:
            await client.initialize(INFO, **options)
        yield listeners


@attrs.define(eq=False)
class Listener:
    """Everything that a client is told, in order."""

    client: AppServerClient
    heard: list[tuple[str, Any]] = attrs.field(factory=list, init=False)
    _news: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __attrs_post_init__(self) -> None:
        self.client.on_any(self._note)

    async def until(self, wanted: Callable[[str, Any], bool], *, since: int = 0) -> Any:
        """The params of the first notification as wanted among those from `since` on, heard or to come."""
        with trio.fail_after(PATIENCE):
            while True:
                for method, params in self.heard[since:]:
                    if wanted(method, params):
                        return params
                since = len(self.heard)
                await self._news.park()

    async def until_method(self, method: str, *, since: int = 0) -> Any:
        """The params of the first notification of a method."""
        return await self.until(lambda name, _: name == method, since=since)

    async def until_idle(self, *, since: int = 0) -> None:
        """Until a thread says that it is idle."""
        await self.until(
            lambda _, params: (
                isinstance(params, ThreadStatusChanged) and isinstance(params.status, StatusIdle)
            ),
            since=since,
        )

    async def catch_up(self) -> int:
        """Hear all that was sent so far: an answer comes after it. How much has been heard, as a `since`."""
        with trio.fail_after(PATIENCE):
            await self.client.model_list()
        return len(self.heard)

    def methods(self) -> list[str]:
        return [method for method, _ in self.heard]

    async def start_thread(self, cwd: Path, **more: Any) -> str:
        """A new thread's id."""
        with trio.fail_after(PATIENCE):
            return (await self.client.thread_start(ThreadStartParams(cwd=str(cwd), **more))).thread.id

    async def start_turn(self, thread_id: str, text: str = "go") -> None:
        """Start a turn, which must begin."""
        with trio.fail_after(PATIENCE):
            started = await self.client.turn_start(TurnStartParams(thread_id=thread_id, text=text))
        assert started.status == "started"

    async def run_turn(self, thread_id: str, text: str = "go") -> None:
        """A turn, to its end."""
        since = len(self.heard)
        await self.start_turn(thread_id, text)
        await self.until_idle(since=since)

    def _note(self, method: str, params: Wire) -> None:
        self.heard.append((method, params))
        self._news.unpark_all()


TRANSPORTS: tuple[Transport, ...] = (over_a_process, over_memory)


def name_of(transport: Transport) -> str:
    """For the ids of parametrised tests."""
    return getattr(transport, "__name__", "transport").replace("_", " ")
