"""A client and a server in one process. The same lines pass as over a pipe, so all limits hold alike.

Source: App Server, "Limits and client reference"; App Server notes, "In-process client and host".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from knightcode.client.client import AppServerClient, ConnectionLost
from knightcode_protocol.handshake import Mode

if TYPE_CHECKING:
    from knightcode.app_server.connection import Connection
    from knightcode.app_server.core.connection import ConnectionCore
    from knightcode.app_server.host import Host

TAKE_BYTES = 1024 * 1024


@asynccontextmanager
async def create_in_process_client(
    host: "Host", *, mode: Mode = "terminal"
) -> AsyncIterator[AppServerClient]:
    """A client of `host`; the handshake is the caller's. Leaving the block is a disconnect.

    An error of the block comes out in an exception group, as from a nursery.
    """
    from knightcode.app_server.core.connection import ConnectionCore
    from knightcode.app_server.main import server_info

    core = ConnectionCore(server_info(), default_mode=mode)
    connection = host.connect(core, host.requests, in_process=True)

    async def send(line: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if core.outbox.closed:
            raise ConnectionLost("The server has ended this connection")
        await connection.receive_at_pace(line)

    async with trio.open_nursery() as nursery:
        client = AppServerClient(send=send, nursery=nursery)
        nursery.start_soon(_pump, host, connection, core, client)
        try:
            yield client
        finally:
            host.disconnect(connection)
            client.lost()
            nursery.cancel_scope.cancel(reason="the client disconnected")


async def _pump(
    host: "Host", connection: "Connection", core: "ConnectionCore", client: AppServerClient
) -> None:
    """Hand the server's lines to the client until the connection ends, on either side."""
    waiting = trio.lowlevel.ParkingLot()

    def wake() -> None:
        waiting.unpark_all()

    core.outbox.wake = wake
    while not core.outbox.closed:
        data = core.outbox.take(TAKE_BYTES)
        if data:
            for line in data.split(b"\n")[:-1]:
                client.receive(line)
            await trio.lowlevel.checkpoint()
        else:
            await waiting.park()
    client.lost()
    host.disconnect(connection)  # too much unread output closes the outbox alone
