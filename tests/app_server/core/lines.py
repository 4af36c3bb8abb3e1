"""A connection core, seen from its client."""

import json
from typing import Any

from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.core.handshake import ServerInfo

SERVER = ServerInfo(version="0.9.2", os="linux", arch="x64", home_dir="/home/ana")
INITIALIZE = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"example","version":"1.0"}}}\n'
INITIALIZED = b'{"method":"initialized","params":{}}\n'
METHODS = frozenset({"initialize", "thread/start", "thread/list", "turn/start"})


def new_core(**options: Any) -> ConnectionCore:
    """A core that has heard nothing yet."""
    return ConnectionCore(SERVER, methods=lambda: METHODS, **options)


def ready_core(**options: Any) -> ConnectionCore:
    """A core after the handshake, its output read."""
    core = new_core(**options)
    core.receive(INITIALIZE + INITIALIZED)
    sent(core)
    return core


def sent(core: ConnectionCore) -> list[dict[str, Any]]:
    """The messages that were sent since the last look."""
    return [json.loads(line) for line in core.outbox.take(1 << 30).splitlines()]
