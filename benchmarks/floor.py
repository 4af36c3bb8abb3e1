"""The floor: trio and msgspec, and only what the measured conversations need.

It keeps no history, checks nothing, and knows one client; what it costs is what no server in this
language on these libraries can avoid. `python -m benchmarks.floor PORT` speaks on stdin and stdout,
and asks the provider at that port.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import msgspec
import trio

READ_BYTES = 256 * 1024


class Line(msgspec.Struct):
    """What a client writes."""

    method: str
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Model(msgspec.Struct):
    """Which model."""

    id: str


class Params(msgspec.Struct, rename="camel"):
    """The params that matter."""

    model: Model | None = None
    thread_id: str = ""


class Part(msgspec.Struct):
    """What an event adds."""

    content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class Choice(msgspec.Struct):
    """One of an event's choices."""

    delta: Part


class Event(msgspec.Struct):
    """One event of the provider."""

    choices: list[Choice]


class Delta(msgspec.Struct, rename="camel"):
    """Params of a delta."""

    thread_id: str
    turn_id: str
    item_id: str
    delta: str


LINES = msgspec.json.Decoder(Line)
EVENTS = msgspec.json.Decoder(Event)
PARAMS = msgspec.json.Decoder(Params)
ENCODER = msgspec.json.Encoder()


class Floor:
    """The process: one reader, one writer, one turn at a time."""

    def __init__(self, port: int, turns: trio.Nursery) -> None:
        self.port = port
        self.turns = turns
        self.out: list[bytes] = []
        self.waiting = trio.lowlevel.ParkingLot()
        self.threads: list[str] = []
        self.running = trio.CancelScope()
        self.provider: trio.SocketStream | None = None

    def say(self, line: bytes) -> None:
        """Queue a line."""
        self.out.append(line)
        self.waiting.unpark_all()

    def serve(self, line: bytes) -> None:
        """Do what one line asks for."""
        message = LINES.decode(line)
        if message.method == "initialized":
            return
        result = b"{}"
        if message.method == "initialize":
            result = b'{"serverInfo":{"name":"floor","version":"0"},"platform":{"os":"linux"}}'
        elif message.method == "thread/unsubscribe":
            PARAMS.decode(message.params)
            result = b'{"status":"notSubscribed"}'
        elif message.method == "thread/start":
            model = PARAMS.decode(message.params).model
            self.threads.append("one" if model is None else model.id)
            result = b'{"thread":{"id":"%d"}}' % (len(self.threads) - 1)
        elif message.method == "turn/start":
            thread = PARAMS.decode(message.params).thread_id
            result = b'{"status":"started","threadId":"%b"}' % thread.encode()
            self.turns.start_soon(self.run_turn, thread)
        elif message.method == "turn/interrupt":
            self.running.cancel()
        self.say(b'{"id":%b,"result":%b}\n' % (message.id, result))

    async def run_turn(self, thread: str) -> None:
        """Ask the provider and pass on what it says."""
        stream, self.provider = self.provider, None  # the one that is kept serves the first who asks
        with trio.CancelScope() as self.running:
            if stream is None:
                stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            try:
                await self.pass_on(thread, stream)
                self.provider = stream
            finally:
                if self.provider is not stream:
                    with trio.move_on_after(1, shield=True):
                        await trio.aclose_forcefully(stream)
        self.say(b'{"method":"turn/completed","params":{"turn":{"id":"t"}}}\n')
        self.say(b'{"method":"thread/status/changed","params":{"status":{"type":"idle"}}}\n')

    async def pass_on(self, thread: str, provider: trio.SocketStream) -> None:
        """One request to the provider, and its events."""
        body = b'{"model":"%b","stream":true}' % self.threads[int(thread)].encode()
        await provider.send_all(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        rest, before, calls = b"", b"", False
        while before != b"0\r" or rest:
            *lines, rest = (rest + await provider.receive_some(READ_BYTES)).split(b"\n")
            batch: list[bytes] = []
            for line in lines:
                if line != b"\r":
                    before = line  # a line "0" is the last chunk, which is empty
                if not line.startswith(b"data: {"):
                    continue
                for choice in EVENTS.decode(line[6:]).choices:
                    if choice.delta.content is not None:
                        params = ENCODER.encode(Delta(thread, "t", "i", choice.delta.content))
                        batch.append(b'{"method":"item/agentMessage/delta","params":%b}\n' % params)
                    calls = calls or choice.delta.tool_calls is not None
            if batch:
                self.say(b"".join(batch))
        if calls:
            await self.run_command()

    async def run_command(self) -> None:
        """Run the one command that is ever asked for; nothing of it is left."""
        from benchmarks.provider import COMMAND

        child = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", COMMAND], stdout=subprocess.PIPE, start_new_session=True
        )
        assert child.stdout is not None
        try:
            while await child.stdout.receive_some(READ_BYTES):
                self.say(b'{"method":"item/toolCall/outputDelta","params":{}}\n')
        finally:
            with trio.move_on_after(2, shield=True):
                os.killpg(child.pid, signal.SIGTERM)
                await child.wait()
                await child.stdout.aclose()


async def read(receive: Callable[[bytes], None]) -> None:
    """Hand over every line of stdin until its end."""
    stdin, rest = trio.lowlevel.FdStream(os.dup(0)), b""
    async with stdin:
        while data := await stdin.receive_some(READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                receive(line)


async def write(floor: Floor) -> None:
    """Write what is queued, for ever."""
    async with trio.lowlevel.FdStream(os.dup(1)) as stdout:
        while True:
            if floor.out:
                data, floor.out = b"".join(floor.out), []
                await stdout.send_all(data)
            else:
                await floor.waiting.park()


async def main(port: int) -> None:
    """Serve until the end of input."""
    async with trio.open_nursery() as nursery:
        floor = Floor(port, nursery)
        nursery.start_soon(write, floor)
        await read(floor.serve)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
