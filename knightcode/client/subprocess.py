"""An app server as a child process.

Source: App Server, "Starting".
"""

import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from knightcode.app_server.core.framing import LineSplitter, LineTooLong
from knightcode.client.client import AppServerClient

READ_BYTES = 256 * 1024

EXIT_GRACE = 11.0
"""Seconds for the server's own stop, whose hard exit comes after ten, before it is killed."""


@attrs.define(eq=False)
class ServerProcess:
    """A running server and the client connected to it. `exit_code` is known after the block."""

    client: AppServerClient
    process: trio.Process
    exit_code: int | None = attrs.field(default=None, init=False)

    async def close(self) -> int:
        """Close the server's stdin and wait for its end; returns the exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        self.exit_code = await self.process.wait()
        return self.exit_code


@asynccontextmanager
async def spawn_app_server(
    arguments: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    cwd: str | None = None,
    command: Sequence[str] = (sys.executable, "-m", "knightcode"),
) -> AsyncIterator[ServerProcess]:
    """Start `knightcode app-server` and connect to it; the handshake is the caller's.

    On exit the server's stdin is closed and its end awaited; one that does not end is killed.
    The server's stderr is this process's.
    """
    process = await trio.lowlevel.open_process(
        [*command, "app-server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=None if environ is None else dict(environ),
        cwd=cwd,
    )
    assert process.stdin is not None
    sending = trio.Lock()
    stdin = process.stdin

    async def send(line: bytes) -> None:
        # Shielded so that a cancelled caller never leaves half a line; the reader on the other side
        # is our own server, which always reads.
        async with sending:
            with trio.CancelScope(shield=True):
                try:
                    await stdin.send_all(line)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    client.lost()

    try:
        async with trio.open_nursery() as nursery:
            client = AppServerClient(send=send, nursery=nursery)
            server = ServerProcess(client, process)
            nursery.start_soon(_read, process, client)
            try:
                yield server
                with trio.move_on_after(EXIT_GRACE):
                    await server.close()
            finally:
                nursery.cancel_scope.cancel(reason="the server's block was left")
    finally:
        with trio.move_on_after(EXIT_GRACE, shield=True):
            await stdin.aclose()
            if process.returncode is None:
                process.terminate()
            await process.wait()
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _read(process: trio.Process, client: AppServerClient) -> None:
    assert process.stdout is not None
    lines = LineSplitter()
    try:
        while chunk := await process.stdout.receive_some(READ_BYTES):
            for line in lines.feed(bytes(chunk)):
                if not isinstance(line, LineTooLong):
                    client.receive(line)
    except trio.BrokenResourceError:
        pass
    finally:
        client.lost()
