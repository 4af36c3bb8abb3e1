"""What a command printed: the end of it as text, in bounded memory, and all of it in a log if it is long.

Source: agent loop, "bash", "Truncation".
"""

import codecs
import os
import secrets
import tempfile
from contextlib import suppress
from typing import Any

import attrs
import trio

from knightcode.agent.tools.ansi import EscapeStripper
from knightcode.agent.tools.files import FILE_THREADS
from knightcode.agent.truncation import (
    MAX_BYTES,
    MAX_LINES,
    Truncation,
    format_size,
    truncate_tail,
    utf8_size,
)

_KEPT_CHARS = MAX_BYTES + 1
"""More characters than the byte limit always reach beyond it."""
_MAX_PIECES = 256
_WRITE_BYTES = 256 * 1024
"""Log data gathered for one visit of a worker thread, which costs as much as writing this much."""


@attrs.define(eq=False)
class ShellOutput:
    """Collects the output of one command.

    Attributes:
        log_path: of the raw output, escapes included; None while all of it fits into the limits, and
            when it could not be written.
        changed: whether output arrived since `text` was asked for.
    """

    log_path: str | None = attrs.field(default=None, init=False)
    changed: bool = attrs.field(default=False, init=False)
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )
    _escapes: EscapeStripper = attrs.field(factory=EscapeStripper, init=False)
    _tail: list[str] = attrs.field(factory=list, init=False)
    _tail_chars: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _breaks: int = attrs.field(default=0, init=False)
    _line_bytes: int = attrs.field(default=0, init=False)  # of the line that has not ended
    _last_line_bytes: int = attrs.field(default=0, init=False)  # of the line that ended last
    _raw: bytearray = attrs.field(factory=bytearray, init=False)  # not yet in the log
    _raw_total: int = attrs.field(default=0, init=False)
    _raw_breaks: int = attrs.field(default=0, init=False)
    _log: int | None = attrs.field(default=None, init=False)
    _log_failed: bool = attrs.field(default=False, init=False)

    async def feed(self, data: bytes | bytearray) -> None:
        """The next piece. Nothing of it is lost when this is cancelled."""
        self._raw += data
        self._raw_total += len(data)
        self._raw_breaks += data.count(b"\n")
        self._add(self._escapes.feed(self._decoder.decode(data)))
        if len(self._raw) > _WRITE_BYTES or (self._log is None and self._is_long()):
            await self._write_log()
        else:
            await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """All has arrived: complete text and log. Must be called, shielded, also after a cancellation."""
        self._add(self._escapes.feed(self._decoder.decode(b"", final=True)) + self._escapes.finish())
        if self._is_long():
            await self._write_log()
        if not self.tail().truncated:
            self._discard_log()  # long only by its escapes: nobody will be told of the log
        elif self._log is not None:
            os.close(self._log)
            self._log = None

    def tail(self) -> Truncation:
        """The end of the output so far, without escapes."""
        self.changed = False
        kept = "".join(self._tail)
        self._tail = [kept]
        unended = 1 if self._line_bytes else 0
        return truncate_tail(kept, total_lines=self._breaks + unended, total_bytes=self._bytes)

    def note(self, cut: Truncation) -> str:
        """What the model is told about the part that is not shown; empty when all of it is."""
        if not cut.truncated:
            return ""
        where = f"All of it: {self.log_path}" if self.log_path else "All of it could not be saved"
        if cut.last_line_partial:
            size = self._line_bytes or self._last_line_bytes
            return (
                f"[The last {format_size(cut.output_bytes)} of line {cut.total_lines} shown, "
                f"which is {format_size(size)}. {where}]"
            )
        first = cut.total_lines - cut.output_lines + 1
        size_note = f", cut at {format_size(MAX_BYTES)}" if cut.truncated_by == "bytes" else ""
        return f"[Lines {first}-{cut.total_lines} of {cut.total_lines} shown{size_note}. {where}]"

    def details(self, cut: Truncation) -> dict[str, Any]:
        """`truncation` and `fullOutputPath` when something is not shown, else nothing."""
        if not cut.truncated:
            return {}
        path = {"fullOutputPath": self.log_path} if self.log_path else {}
        return {"truncation": cut.details(), **path}

    def _is_long(self) -> bool:
        return self._raw_total > MAX_BYTES or self._raw_breaks > MAX_LINES

    def _add(self, text: str) -> None:
        if not text:
            return
        self.changed = True
        self._bytes += utf8_size(text)
        breaks = text.count("\n")
        self._breaks += breaks
        if breaks:
            ended = text.rsplit("\n", 2)
            before = self._line_bytes if breaks == 1 else 0
            self._last_line_bytes = before + utf8_size(ended[-2])
            self._line_bytes = 0
        self._line_bytes += utf8_size(text.rpartition("\n")[2])
        self._tail.append(text)
        self._tail_chars += len(text)
        if self._tail_chars > 4 * _KEPT_CHARS or len(self._tail) > _MAX_PIECES:
            kept = "".join(self._tail)[-_KEPT_CHARS:]
            self._tail, self._tail_chars = [kept], len(kept)

    async def _write_log(self) -> None:
        if not self._log_failed:
            data = bytes(self._raw)
            self._log_failed = not await FILE_THREADS.run(self._append, data)
        # Only now: a cancellation before the thread began must not lose the data.
        self._raw.clear()

    def _append(self, data: bytes) -> bool:
        """In a worker thread: append to the log, made when needed. False gives the log up."""
        try:
            if self._log is None:
                path = os.path.join(tempfile.gettempdir(), f"knightcode-bash-{secrets.token_hex(8)}.log")
                self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                self.log_path = path
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._log, rest) :]
        except OSError:
            self._discard_log()
            return False
        return True

    def _discard_log(self) -> None:
        """Close and remove the log: half of it under the name of all of it would mislead."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        if self.log_path is not None:
            with suppress(OSError):
                os.unlink(self.log_path)
            self.log_path = None
