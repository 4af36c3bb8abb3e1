"""One server over stdin and stdout, from its first byte to its exit code.

The writer is outermost: it outlives everything that writes. The stop is a sequence: reading ends,
threads unload side by side, accepted requests are answered, output drains.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Shutdown".
"""

import logging

import attrs
import trio

from knightcode.app_server.connection import Connection
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.host import Host, HostConfig, open_host
from knightcode.app_server.parent import wait_parent_gone
from knightcode.app_server.shutdown import ANSWER_BY, EXIT_BY, Stop, Watchdog, Why, exit_now
from knightcode.app_server.signals import StopSignals
from knightcode.app_server.transport.descriptors import Pipes, kept_blocking_mode
from knightcode.app_server.transport.stdio import open_streams, read_chunks, write_lines
from knightcode.processes.children import end_left, kill_all_now

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Output:
    """How the writing stands."""

    core: ConnectionCore
    finishing: bool = False
    drained: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)

    def finish(self) -> None:
        """Nothing more will be said: write what is left and end."""
        self.finishing = True
        self.core.outbox.wake()


async def serve_stdio(
    core: ConnectionCore,
    pipes: Pipes,
    config: HostConfig,
    signals: StopSignals,
    parent: int | None = None,
) -> int:
    """Serve one client until its end of input, a signal or its parent's end; returns the exit code.

    0 after a clean stop; 1 when the client stopped reading or answers could not be delivered.

    Args:
        parent: the process without which nobody needs this one; None to outlive it.
    """
    stop, output = Stop(), _Output(core)
    with kept_blocking_mode(pipes.reading, pipes.writing) as restore_mode:

        def last_act() -> None:
            restore_mode()
            kill_all_now()

        watchdog = Watchdog(last_act)
        watchdog.start()
        loop = trio.lowlevel.current_trio_token()

        def signalled() -> None:
            # In a signal handler, and perhaps in a loop that hangs: the watchdog first.
            watchdog.arm()
            loop.run_sync_soon(lambda: stop.ask("signal", signals.seconds_ago()))

        stdin, stdout = open_streams(pipes)
        with signals.listening(signalled, lambda code: exit_now(code, last_act)):
            async with stdin, stdout, trio.open_nursery() as process:
                process.start_soon(_write, output, stdout, stop)
                if parent is not None:
                    process.start_soon(_watch, parent, stop)
                async with open_host(config) as host:
                    await _serve_connection(host, core, pipes, stdin, stop, watchdog)
                await end_left()
                output.finish()
                with trio.move_on_at(stop.deadline(EXIT_BY)):
                    await output.ended.wait()
                watchdog.disarm()
                process.cancel_scope.cancel(reason="shutdown")
    clean = output.drained or stop.why == "reader gone"
    return 0 if clean else 1


async def _serve_connection(
    host: Host,
    core: ConnectionCore,
    pipes: Pipes,
    stdin: trio.abc.ReceiveStream,
    stop: Stop,
    watchdog: Watchdog,
) -> None:
    async with trio.open_nursery() as marks:
        async with trio.open_nursery() as requests:
            connection = host.connect(core, requests)
            reading = trio.CancelScope()
            requests.start_soon(_read, reading, connection, pipes, stdin, stop)
            await stop.asked.wait()
            # Time 0. From here on nothing is read, nothing new starts, and the clock runs.
            watchdog.arm()
            reading.cancel(reason="shutdown")
            connection.start_all()
            core.begin_shutdown()
            if core.outbox.closed:
                host.disconnect(connection)
            host.manager.refuse_new_work()
            answer_by = stop.deadline(ANSWER_BY)
            requests.cancel_scope.deadline = answer_by
            marks.start_soon(_answer_all_at, answer_by, core)
            await host.manager.close_all()
        core.abandon_unanswered()
        marks.cancel_scope.cancel(reason="everything is answered")


async def _answer_all_at(deadline: float, core: ConnectionCore) -> None:
    """Beside the requests' own deadline: whoever has no answer gets it also when its task does not end."""
    await trio.sleep_until(deadline)
    core.abandon_unanswered()


async def _read(
    scope: trio.CancelScope, connection: Connection, pipes: Pipes, stdin: trio.abc.ReceiveStream, stop: Stop
) -> None:
    with scope:
        if pipes.ahead:
            await connection.receive_at_pace(pipes.ahead)
        await read_chunks(stdin, connection.receive_at_pace)
        connection.finish()
        stop.ask("eof")


async def _watch(parent: int, stop: Stop) -> None:
    await wait_parent_gone(parent)
    log.info("parent gone", extra={"parent": parent})
    stop.ask("parent gone")


async def _write(output: _Output, stdout: trio.abc.SendStream, stop: Stop) -> None:
    try:
        outbox = output.core.outbox
        ended = await write_lines(outbox, stdout, lambda: output.finishing)
        output.drained = ended == "drained"
        if ended != "drained":
            why: Why = "overflow" if outbox.overflowed else "reader gone" if ended == "gone" else "lost"
            log.error("output ended", extra={"reason": why, "pending_bytes": outbox.pending_bytes})
            stop.ask(why)
            outbox.close()
    finally:
        output.ended.set()
