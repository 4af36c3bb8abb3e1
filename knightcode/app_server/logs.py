"""Logs of the server: one JSON object per line on stderr.

A reader that does not read stderr must not stop the event loop, so lines go through a bounded queue
to a thread of their own; what does not fit is counted and the count is logged.

Source: App Server, "Starting" (logs go to stderr).
"""

import json
import logging
import os
import queue
import threading
import time
import traceback

import msgspec

from knightcode.app_server.core.surrogates import replace_lone_surrogates

QUEUE_LINES = 1_000
LINE_CHARACTERS = 16_000
DRAIN_SECONDS = 0.2
"""Time for the last lines at exit; a stderr that nobody reads costs no more than this."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A record as one line of JSON: its event, its fields, and the failure if there was one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info and record.exc_info[1] is not None:
            line["failure"] = "".join(traceback.format_exception(record.exc_info[1]))[-LINE_CHARACTERS:]
        try:
            return msgspec.json.encode(line, enc_hook=repr).decode()
        except UnicodeEncodeError:  # half a surrogate pair, as in the name of a file that is not UTF-8
            return replace_lone_surrogates(json.dumps(line, default=repr).encode()).decode()


class StderrHandler(logging.Handler):
    """Writes to descriptor 2 from a thread of its own. Never raises, never waits."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log writer", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record).encode("utf-8", "backslashreplace") + b"\n"
            if self._dropped:
                note = msgspec.json.encode(
                    {"level": "warning", "event": "log lines dropped", "count": self._dropped}
                )
                self._queue.put_nowait(note + b"\n")
                self._dropped = 0
            self._queue.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        except Exception:
            self._dropped += 1

    def close(self) -> None:
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            pass
        else:
            self._thread.join(DRAIN_SECONDS)
        super().close()

    def _write_all(self) -> None:
        while (line := self._queue.get()) is not None:
            while line:
                try:
                    line = line[os.write(2, line) :]
                except OSError:
                    break


def log_to_stderr() -> StderrHandler:
    """Send the product's log to stderr; whoever calls this closes the handler."""
    handler = StderrHandler()
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    return handler
