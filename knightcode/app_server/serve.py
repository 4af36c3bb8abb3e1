"""One server over stdin and stdout, from its first byte to its exit code.

The writer is outermost: it outlives everything that writes. The stop is a sequence: reading ends,
threads unload side by side, accepted requests are answered, output drains.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Shutdown".
"""

import attrs
import trio

from knightcode.agent.processes import kill_all_now
from knightcode.app_server.connection import Connection
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.host import Host, HostConfig, open_host
from knightcode.app_server.shutdown import ANSWER_BY, EXIT_BY, Stop, Watchdog, watch_signals
from knightcode.app_server.transport.descriptors import Pipes, kept_blocking_mode
from knightcode.app_server.transport.stdio import open_streams, read_chunks, write_lines


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
    core: ConnectionCore, pipes: Pipes, config: HostConfig, noted_signals: list[int]
) -> int:
    """Serve one client until its end of input or a signal; returns the exit code.

    0 after a clean stop; 1 when the client stopped reading or answers could not be delivered.
    """
    stop, output = Stop(), _Output(core)
    with kept_blocking_mode(pipes.reading, pipes.writing) as restore_mode:

        def last_act() -> None:
            restore_mode()
            kill_all_now()

        watchdog = Watchdog(last_act)
        stdin, stdout = open_streams(pipes)
        async with stdin, stdout, trio.open_nursery() as process:
            await process.start(watch_signals, stop, last_act, lambda: bool(noted_signals))
            process.start_soon(_write, output, stdout, stop)
            async with open_host(config) as host:
                await _serve_connection(host, core, pipes, stdin, stop, watchdog)
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
    async with trio.open_nursery() as requests:
        connection = host.connect(core, requests)
        reading = trio.CancelScope()
        requests.start_soon(_read, reading, connection, pipes, stdin, stop)
        await stop.asked.wait()
        # Time 0. From here on nothing is read, nothing new starts, and the clock runs.
        watchdog.start()
        reading.cancel(reason="shutdown")
        core.begin_shutdown()
        if core.outbox.closed:
            host.disconnect(connection)
        host.manager.refuse_new_work()
        requests.cancel_scope.deadline = stop.deadline(ANSWER_BY)
        await host.manager.close_all()
    core.abandon_unanswered()


async def _read(
    scope: trio.CancelScope, connection: Connection, pipes: Pipes, stdin: trio.abc.ReceiveStream, stop: Stop
) -> None:
    with scope:
        if pipes.ahead:
            connection.receive(pipes.ahead)
        await read_chunks(stdin, connection.receive)
        connection.finish()
        stop.ask("eof")


async def _write(output: _Output, stdout: trio.abc.SendStream, stop: Stop) -> None:
    try:
        output.drained = await write_lines(output.core.outbox, stdout, lambda: output.finishing)
        if not output.drained:
            stop.ask("overflow" if output.core.outbox.overflowed else "reader gone")
            output.core.outbox.close()
    finally:
        output.ended.set()
