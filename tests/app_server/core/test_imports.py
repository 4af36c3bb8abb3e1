"""Source: architecture, "Performance budget": the first answer comes before the product is loaded."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent

PROGRAM = """
import sys
import msgspec, re
before = set(sys.modules)
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.core.handshake import ServerInfo
core = ConnectionCore(ServerInfo(version="1", os="linux", arch="x64", home_dir="/h"))
core.receive(b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"n","version":"1"}}}\\n')
assert b'"homeDir":"/h"' in core.outbox.take(1000)
print(*sorted(set(sys.modules) - before), sep="\\n")
"""

ALLOWED = {
    "knightcode",
    "knightcode.app_server",
    *(
        f"knightcode.app_server.core{module}"
        for module in (
            "", ".connection", ".framing", ".handshake", ".messages", ".nesting", ".outbox", ".pending",
            ".recovery", ".server_requests", ".surrogates",
        )
    ),
    "knightcode_protocol",
    *(f"knightcode_protocol.{module}" for module in ("envelope", "errors", "handshake", "limits", "wire")),
}  # fmt: skip


def test_the_first_answer_loads_nothing_but_the_core_and_the_handshake() -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protocol'}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=30,
    )
    loaded = set(done.stdout.split())
    assert loaded - ALLOWED <= set(sys.stdlib_module_names)
    assert not loaded & {"asyncio", "inspect", "json", "logging", "pathlib", "socket", "subprocess"}
