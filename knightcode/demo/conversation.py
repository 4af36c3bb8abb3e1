"""One turn of one thread with a real server in a child process, from the handshake to its end.

Source: app server, "Handshake", "Threads and turns", "Approvals".
"""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import attrs
import trio

from knightcode import __version__
from knightcode.client import AppServerClient, AppServerError, ConnectionLost, ServerProcess, spawn_app_server
from knightcode.demo.approvals import Approver
from knightcode.demo.failures import DemoError
from knightcode.demo.screen import Screen
from knightcode.demo.show import Transcript
from knightcode_protocol.handshake import ClientInfo
from knightcode_protocol.notifications import TurnCompleted, TurnStarted
from knightcode_protocol.objects import Model, ModelRef, Thread, TokenUsage, TurnSummary
from knightcode_protocol.params import (
    ThreadReadParams,
    ThreadStartParams,
    TurnInterruptParams,
    TurnStartParams,
)
from knightcode_protocol.results import ThreadStartResult
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams
from knightcode_protocol.wire import Wire

START_SECONDS = 30.0
"""For a server to start, and for each request that does not wait for a model."""


@attrs.frozen
class Server:
    """How the demo starts a server.

    Attributes:
        command: what runs `knightcode`.
        arguments: of `knightcode app-server`.
        log: the file for its stderr.
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environ: Mapping[str, str] = attrs.field(repr=False)
    log: Path

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ServerProcess]:
        """A server that has answered the handshake; it has ended when the block is left."""
        detached = Path(__file__).with_name("detached.py")
        launcher = (sys.executable, "-I", "-S", str(detached), str(self.log), *self.command)
        async with spawn_app_server(self.arguments, environ=self.environ, command=launcher) as server:
            with _answered_in_time("the handshake"):
                await server.client.initialize(
                    ClientInfo(name="knightcode-demo", version=__version__, title="KnightCode demo")
                )
            yield server


@attrs.define(eq=False)
class Interrupt:
    """A wish to end the running turn. It is thrown once, from wherever Ctrl-C arrives."""

    thrown: trio.Event = attrs.field(factory=trio.Event, init=False)
    turn_runs: bool = attrs.field(default=False, init=False)


@attrs.frozen
class Ended:
    """What a turn left behind. `turn` is None when the server ended first."""

    thread: Thread
    turn: TurnSummary | None
    usage: TokenUsage | None


@attrs.define(eq=False)
class Conversation:
    """Shows one turn while it runs. Used once.

    Attributes:
        known_warnings: what the user has been told already.
        begun: the turn was accepted, so there is something to look at afterwards.
    """

    screen: Screen
    interrupt: Interrupt
    terminal: int | None = None
    known_warnings: tuple[str, ...] = ()
    transcript: Transcript = attrs.field(init=False)
    approver: Approver = attrs.field(init=False)
    begun: bool = attrs.field(default=False, init=False)
    _turn: TurnSummary | None = attrs.field(default=None, init=False)
    _over: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.transcript = Transcript(self.screen.style)
        self.approver = Approver(self.screen, self.transcript, self.terminal)

    async def run(self, server: ServerProcess, cwd: Path, ask: str, model: ModelRef | None) -> Ended:
        """Have the turn.

        Raises:
            AppServerError: the server refuses.
            ConnectionLost: it ends before the turn has started.
            DemoError: it does not answer, or the turn was interrupted before it began.
        All of them may come inside a group.
        """
        client = server.client
        client.on_any(self._noticed)
        client.on_request(ToolCallRequestApprovalParams, self.approver.answer)
        wanted = ThreadStartParams(cwd=str(cwd), approval_mode="ask", model=model, name="KnightCode demo")
        with _answered_in_time("thread/start"):
            begun = await client.thread_start(wanted)
        thread = begun.thread
        for text in _warnings_of(begun):
            if text not in self.known_warnings:
                self.screen.write(self.transcript.warn(text))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_server, server)
            nursery.start_soon(self._watch_interrupt, client, thread.id)
            self.interrupt.turn_runs = True
            with _answered_in_time("turn/start"):
                started = await client.turn_start(TurnStartParams(thread_id=thread.id, text=ask))
            if started.status != "started":
                raise DemoError(f"the turn did not begin: it was {started.status}")
            await self._over.wait()
            self.interrupt.turn_runs = False
            nursery.cancel_scope.cancel(reason="the turn is over")
        return Ended(await self._as_it_stands(client, thread), self._turn, self.transcript.usage)

    def _noticed(self, _method: str, params: Wire) -> None:
        if isinstance(params, TurnStarted):
            self.begun = True
        elif isinstance(params, TurnCompleted):
            self._turn = params.turn
            self._over.set()
        self.screen.write(self.transcript.tell(params))

    async def _watch_server(self, server: ServerProcess) -> None:
        await server.process.wait()
        self._over.set()

    async def _watch_interrupt(self, client: AppServerClient, thread_id: str) -> None:
        await self.interrupt.thrown.wait()
        self.screen.write(
            self.transcript.interject(
                self.screen.style.asks("Interrupting the turn. Ctrl-C again ends the server.")
            )
        )
        # Refused or lost means that there is nothing left to interrupt.
        with suppress(AppServerError, ConnectionLost):
            await client.turn_interrupt(TurnInterruptParams(thread_id=thread_id))

    async def _as_it_stands(self, client: AppServerClient, thread: Thread) -> Thread:
        """The thread with its session file, which it has once something is saved."""
        with suppress(AppServerError, ConnectionLost), _answered_in_time("thread/read"):
            return (await client.thread_read(ThreadReadParams(thread_id=thread.id))).thread
        return thread


@contextmanager
def _answered_in_time(what: str) -> Iterator[None]:
    with trio.move_on_after(START_SECONDS) as limit:
        yield
    if limit.cancelled_caught:
        raise DemoError(f"the server did not answer within {START_SECONDS:.0f} seconds: {what}")


def server_command() -> tuple[str, ...]:
    """What runs `knightcode` with the interpreter that runs the demo."""
    return (sys.executable, "-m", "knightcode")


@attrs.frozen
class Offer:
    """The models that there are.

    Attributes:
        warnings: what of the user's configuration does not count, and why.
    """

    models: tuple[Model, ...] = ()
    warnings: tuple[str, ...] = ()


async def what_is_offered(server: Server, cwd: Path) -> Offer:
    """Every model that a server of its own lists, and its warnings.

    Raises:
        AppServerError, ConnectionLost, DemoError: it cannot be asked; inside a group.
    """
    models: tuple[Model, ...] = ()
    warnings: tuple[str, ...] = ()
    async with server.open() as process:
        with _answered_in_time("model/list"):
            models = (await process.client.model_list()).models
        # A server warns whoever starts a thread. This one is never used, so it leaves no file.
        with _answered_in_time("thread/start"):
            warnings = _warnings_of(await process.client.thread_start(ThreadStartParams(cwd=str(cwd))))
    return Offer(models, warnings)


def _warnings_of(started: ThreadStartResult) -> tuple[str, ...]:
    return tuple(warning.message for warning in started.warnings)
