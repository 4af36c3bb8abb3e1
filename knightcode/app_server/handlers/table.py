"""Which function serves which method. A test compares it with the protocol's method table."""

from collections.abc import Mapping
from typing import Any

from knightcode.app_server.connection import Handler
from knightcode.app_server.handlers import models, server, threads, turns

_TABLE: dict[str, Any] = {
    "thread/start": threads.start,
    "thread/resume": threads.resume,
    "thread/read": threads.read,
    "thread/list": threads.list_threads,
    "thread/unsubscribe": threads.unsubscribe,
    "thread/settings/update": threads.update_settings,
    "thread/compact": turns.compact,
    "turn/start": turns.start,
    "turn/steer": turns.steer,
    "turn/queue/add": turns.add_to_queue,
    "turn/queue/remove": turns.remove_from_queue,
    "turn/interrupt": turns.interrupt,
    "model/list": models.list_models,
    "server/diagnostics": server.diagnostics,
}

HANDLERS: Mapping[str, Handler] = _TABLE
"""Without `initialize`, which the core answers."""
