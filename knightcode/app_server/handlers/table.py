"""Which function serves which method. A test compares it with the protocol's method table."""

from collections.abc import Mapping
from typing import Any

from knightcode.app_server.connection import Handler
from knightcode.app_server.handlers import models, threads, turns

_TABLE: dict[str, Any] = {
    "thread/start": threads.start,
    "thread/resume": threads.resume,
    "thread/read": threads.read,
    "thread/list": threads.list_threads,
    "thread/unsubscribe": threads.unsubscribe,
    "thread/settings/update": threads.update_settings,
    "turn/start": turns.start,
    "turn/interrupt": turns.interrupt,
    "model/list": models.list_models,
}

HANDLERS: Mapping[str, Handler] = _TABLE
"""Without `initialize`, which the core answers."""
