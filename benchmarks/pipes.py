"""A server as a child process, driven over its raw pipes: bytes in, bytes out, nothing decoded.

Blocking, and deliberately dumb: what this side costs is part of every number.
"""

import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

READ_BYTES = 1024 * 1024


class TooSlowError(Exception):
    """The server did not say in time what was waited for; holds the end of what it did say."""


class GoneError(Exception):
    """The server closed its output."""


@attrs.define(eq=False)
class Server:
    """A running server. `close` ends it."""

    process: "subprocess.Popen[bytes]"
    patience_seconds: float
    _in: int = attrs.field(init=False)
    _out: int = attrs.field(init=False)
    _count: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)

    def exchange(
        self, data: bytes, is_over: Callable[[bytes], bool], refill: Callable[[int], bytes] | None = None
    ) -> bytes:
        """Write `data` while reading, until `is_over` says so of what was read last; returns all of it.

        Args:
            is_over: gets the last chunk with some bytes of the one before, so that no mark is missed.
            refill: gets the number of lines in each chunk; what it returns is written as well.
        Raises:
            TooSlowError, GoneError: see there.
        """
        chunks: list[bytes] = []
        tail = b""
        end = time.monotonic() + self.patience_seconds
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._in, select.POLLOUT if data else 0)
        while True:
            ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if not ready:
                raise TooSlowError(f"nothing came for {self.patience_seconds:g} s after {tail[-500:]!r}")
            for descriptor, _ in ready:
                if descriptor == self._in:
                    data = data[os.write(self._in, data) :]
                else:
                    chunk = os.read(self._out, READ_BYTES)
                    if not chunk:
                        raise GoneError(f"the server ended after {tail[-500:]!r}")
                    chunks.append(chunk)
                    seen, tail = tail + chunk, chunk[-200:]
                    if is_over(seen):
                        return b"".join(chunks)
                    if refill is not None:
                        data += refill(chunk.count(b"\n"))
                poll.modify(self._in, select.POLLOUT if data else 0)

    def request(self, method: str, params: str) -> bytes:
        """Send one request and return all lines up to its answer."""
        line, mark = self.line(method, params)
        return self.exchange(line, lambda seen: mark in seen)

    def line(self, method: str, params: str) -> tuple[bytes, bytes]:
        """The line of a request, and how its answer begins."""
        self._count += 1
        line = f'{{"id":{self._count},"method":"{method}","params":{params}}}\n'
        return line.encode(), b'{"id":%d,' % self._count

    def finish(self) -> bytes:
        """Close its input and read to the end of the process; returns what still came."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        chunks: list[bytes] = []
        end = time.monotonic() + self.patience_seconds
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        while True:
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise TooSlowError(f"the server did not end in {self.patience_seconds:g} s")
            chunk = os.read(self._out, READ_BYTES)
            if not chunk:
                break
            chunks.append(chunk)
        self.process.wait(max(0.1, end - time.monotonic()))
        return b"".join(chunks)

    def resident_bytes(self) -> int:
        """The memory that the process has in use; Linux."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        """Close its input, and kill it if that does not end it."""
        with self.process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def spawn(argv: Sequence[str], environ: Mapping[str, str], patience_seconds: float) -> Server:
    """Start a server; its log goes nowhere."""
    return Server(
        subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            bufsize=0,
        ),
        patience_seconds,
    )
