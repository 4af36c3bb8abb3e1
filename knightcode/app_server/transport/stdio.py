"""A connection over two descriptors: one task reads, one task writes whole lines.

Source: App Server, "Starting", "Limits and client reference".
"""

import os
from collections.abc import Callable

import trio

from knightcode.app_server.core.outbox import Outbox
from knightcode.app_server.transport.descriptors import Pipes

READ_BYTES = 256 * 1024
WRITE_BYTES = 256 * 1024


class ThreadedDescriptor(trio.abc.SendStream, trio.abc.ReceiveStream):
    """A descriptor where the system cannot wait for many at once: each call is in a worker thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._limiter = trio.CapacityLimiter(1)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await trio.to_thread.run_sync(
            os.read, self._descriptor, max_bytes or READ_BYTES, limiter=self._limiter, abandon_on_cancel=True
        )

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            written = await trio.to_thread.run_sync(
                os.write, self._descriptor, view, limiter=self._limiter, abandon_on_cancel=True
            )
            view = view[written:]

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def open_streams(pipes: Pipes) -> tuple[trio.abc.ReceiveStream, trio.abc.SendStream]:
    """Streams over the descriptors; whoever opens them closes them."""
    if os.name == "posix":
        return trio.lowlevel.FdStream(pipes.reading), trio.lowlevel.FdStream(pipes.writing)
    return ThreadedDescriptor(pipes.reading), ThreadedDescriptor(pipes.writing)


async def read_chunks(stream: trio.abc.ReceiveStream, receive: Callable[[bytes], None]) -> None:
    """Hand over every chunk until the end of input. A broken pipe is an end of input."""
    while chunk := await _next_chunk(stream):
        receive(chunk)


async def _next_chunk(stream: trio.abc.ReceiveStream) -> bytes:
    try:
        return bytes(await stream.receive_some(READ_BYTES))
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        return b""


async def write_lines(outbox: Outbox, stream: trio.abc.SendStream, finishing: Callable[[], bool]) -> bool:
    """Write what comes into the outbox until it is closed, or `finishing` and nothing is left.

    Returns whether everything was written; False when the reader is gone, and when the outbox was
    closed: then a write that waits for the reader is given up. Whoever makes `finishing` true calls
    `outbox.wake`.
    """
    waiting = trio.lowlevel.ParkingLot()
    writing = trio.CancelScope()

    def wake() -> None:
        waiting.unpark_all()
        if outbox.closed:
            writing.cancel(reason="the outbox is closed")

    outbox.wake = wake
    wake()
    with writing:
        while not outbox.closed:
            data = outbox.take(WRITE_BYTES)
            if data:
                try:
                    await stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    return False
            elif finishing():
                return True
            else:
                await waiting.park()
    return False
