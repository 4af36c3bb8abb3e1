"""How a client of an in-memory host hears: whatever is said to it, as messages, in order."""

import json
from typing import Any

import attrs
import trio

from knightcode.app_server.connection import Connection
from tests.app_server.pipe import Message

TAKE_BYTES = 1 << 20


@attrs.define(eq=False)
class Hearing:
    """Attributes:
    heard: all messages of the server so far.
    news: unparked whenever there may be more.
    """

    connection: Connection
    heard: list[Message] = attrs.field(factory=list, init=False)
    news: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def was_told(self, message: Message) -> None:
        """What a client does with a message at once."""

    async def pump(self) -> None:
        """Hear what is said until the connection ends."""
        waiting = trio.lowlevel.ParkingLot()
        outbox = self.connection.core.outbox

        def wake() -> None:
            waiting.unpark_all()

        outbox.wake = wake
        while not outbox.closed:
            if self.drain():
                await trio.lowlevel.checkpoint()
            else:
                await waiting.park()
        self.drain()

    def drain(self) -> bool:
        """Hear all that waits; whether there was something."""
        data = self.connection.core.outbox.take(TAKE_BYTES)
        for line in data.split(b"\n")[:-1]:
            message: dict[str, Any] = json.loads(line)
            self.heard.append(message)
            self.was_told(message)
        self.news.unpark_all()
        return bool(data)
