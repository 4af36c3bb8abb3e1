"""A connection over two descriptors: one task reads, one task writes whole lines.

Source: App Server, "Starting", "Limits and client reference".
"""

import errno
import os
from collections.abc import Awaitable, Callable
from typing import Literal

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


async def read_chunks(stream: trio.abc.ReceiveStream, receive: Callable[[bytes], Awaitable[None]]) -> None:
    """Hand over every chunk until the end of input. A broken pipe is an end of input."""
    while chunk := await _next_chunk(stream):
        await receive(chunk)


async def _next_chunk(stream: trio.abc.ReceiveStream) -> bytes:
    try:
        return bytes(await stream.receive_some(READ_BYTES))
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        return b""


async def write_lines(
    outbox: Outbox, stream: trio.abc.SendStream, finishing: Callable[[], bool]
) -> Literal["drained", "gone", "lost"]:
    """Write what comes into the outbox until it is closed, or `finishing` and nothing is left.

    Returns how it ended: all was written; nobody reads any more; or output is lost, because the system
    refused it or because the outbox was closed, which gives up a write that waits for the reader.
    Whoever makes `finishing` true calls `outbox.wake`.
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
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
                    return "gone" if _reader_is_gone(error) else "lost"
            elif finishing():
                return "drained"
            else:
                await waiting.park()
    return "lost"


def _reader_is_gone(error: BaseException) -> bool:
    """Whether a write failed because nobody reads; a full disk behind stdout is another matter."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EPIPE, errno.ECONNRESET)
