"""An app server as a child process.

Source: App Server, "Starting".
"""

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from knightcode.app_server.core.framing import LineSplitter, LineTooLong
from knightcode.client.client import AppServerClient, ConnectionLost

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024

EXIT_GRACE = 11.0
"""Seconds for the server's own stop, whose hard exit comes after ten, before it is killed."""

KILL_SECONDS = 2.0
"""For the system to end a process that was killed; it is left to it after that."""


@attrs.define(eq=False)
class ServerProcess:
    """A running server and the client connected to it. Made by `spawn_app_server`."""

    client: AppServerClient
    process: trio.Process
    _lines: trio.MemorySendChannel[bytes] = attrs.field(alias="lines", repr=False)
    _output_ended: trio.Event = attrs.field(alias="output_ended", repr=False)

    @property
    def exit_code(self) -> int | None:
        """The exit code once the server has ended, negative for a signal; None while it runs."""
        return self.process.returncode

    async def close(self) -> int:
        """Close the server's stdin, hear all that it still says, and wait for its end.

        What was sent before is delivered first. Returns the exit code. Closing twice is once.
        """
        self._lines.close()
        await self._output_ended.wait()
        return await self.process.wait()


@asynccontextmanager
async def spawn_app_server(
    arguments: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    command: Sequence[str] = (sys.executable, "-m", "knightcode"),
    grace_seconds: float = EXIT_GRACE,
) -> AsyncIterator[ServerProcess]:
    """Start `knightcode app-server` and connect to it; the handshake is the caller's.

    On exit the server's stdin is closed and its end awaited; one that does not end is killed. When the
    block fails, the server is told to stop and nothing more of it is heard; the error comes out in an
    exception group, as from a nursery. The server's stderr is this process's.

    Args:
        grace_seconds: how long an end is awaited, and after it the end of a server that was told to stop.
    """
    process = await trio.lowlevel.open_process(
        [*command, "app-server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=None if environ is None else dict(environ),
        cwd=cwd,
    )
    try:
        async with trio.open_nursery() as nursery:
            # Of no capacity: a line is the writer's, whole, or the cancelled caller's, whole.
            lines, to_write = trio.open_memory_channel[bytes](0)
            client = AppServerClient(send=lambda line: _send(lines, line), nursery=nursery)
            server = ServerProcess(client, process, lines=lines, output_ended=trio.Event())
            nursery.start_soon(_write, process, to_write)
            nursery.start_soon(_read, process, client, server._output_ended)
            try:
                yield server
                with trio.move_on_after(grace_seconds):
                    await server.close()
            finally:
                nursery.cancel_scope.cancel(reason="the server's block was left")
    finally:
        with trio.move_on_after(grace_seconds, shield=True):
            await _stop(process)
        if process.returncode is None:
            process.kill()
            with trio.move_on_after(KILL_SECONDS, shield=True):
                await process.wait()


async def _send(lines: trio.MemorySendChannel[bytes], line: bytes) -> None:
    try:
        await lines.send(line)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        raise ConnectionLost("The server takes no more requests") from None


async def _write(process: trio.Process, lines: trio.MemoryReceiveChannel[bytes]) -> None:
    """Write whole lines until there are no more senders, or nobody reads; then close stdin."""
    stdin = process.stdin
    assert stdin is not None
    try:
        with lines:
            async for line in lines:
                await stdin.send_all(line)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        log.info("the server closed its stdin", extra={"pid": process.pid})
    finally:
        await trio.aclose_forcefully(stdin)


async def _read(process: trio.Process, client: AppServerClient, ended: trio.Event) -> None:
    assert process.stdout is not None
    splitter = LineSplitter()
    try:
        while chunk := await process.stdout.receive_some(READ_BYTES):
            for line in splitter.feed(bytes(chunk)):
                if isinstance(line, LineTooLong):
                    log.error("a line of the server's was dropped", extra={"bytes": line.size})
                else:
                    client.receive(line)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        log.info("the server's output broke off", extra={"pid": process.pid})
    finally:
        client.lost()
        ended.set()


async def _stop(process: trio.Process) -> None:
    """Tell a server to stop and wait until it has; mostly it has already."""
    assert process.stdin is not None
    assert process.stdout is not None
    await trio.aclose_forcefully(process.stdin)
    await trio.aclose_forcefully(process.stdout)  # a server that cannot write any more stops at once
    if process.returncode is None:
        process.terminate()
    await process.wait()
