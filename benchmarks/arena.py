"""The two that are compared, on equal terms: same interpreter, same provider, same client."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs

from benchmarks.pipes import Server, spawn

ROOT: Final = Path(__file__).parent.parent
HANDSHAKE: Final = '{"clientInfo":{"name":"bench","version":"1"}}'
PATIENCE_SECONDS: Final = 20.0

Who = Literal["product", "floor"]
WHO: Final[tuple[Who, ...]] = ("product", "floor")

_MODELS: Final = """{{"providers": {{"bench": {{
    "baseUrl": "http://127.0.0.1:{port}/v1", "api": "openai-completions", "apiKey": "none",
    "models": [{{"id": "one"}}, {{"id": "many"}}, {{"id": "endless"}}, {{"id": "shell"}}]
}}}}}}"""


@attrs.define(eq=False)
class Arena:
    """Everything that a measurement needs. Made by `open_arena`."""

    home: Path
    port: int
    environ: dict[str, str]
    _servers: dict[Who, Server] = attrs.field(factory=dict, init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)

    def start(self, who: Who) -> Server:
        """A new process, nothing said to it yet; the caller closes it."""
        product, floor = ("knightcode", "app-server"), ("benchmarks.floor", str(self.port))
        argv = (sys.executable, "-m", *(product if who == "product" else floor))
        return spawn(argv, self.environ, PATIENCE_SECONDS)

    def server(self, who: Who) -> Server:
        """The process that is kept for measurements which need no new one, ready for requests."""
        if who not in self._servers:
            self._servers[who] = server = self.start(who)
            self._stack.callback(server.close)
            shake_hands(server)
        return self._servers[who]

    def close(self) -> None:
        """End the kept processes."""
        self._servers.clear()
        self._stack.close()


def shake_hands(server: Server) -> None:
    """From a new process to one that has loaded everything and serves requests."""
    server.request("initialize", HANDSHAKE)
    server.exchange(b'{"method":"initialized"}\n' + server.line("x", "{}")[0], lambda seen: b"\n" in seen)
    server.request("thread/unsubscribe", '{"threadId":"none"}')


@contextmanager
def open_arena() -> Iterator[Arena]:
    """An empty home directory, a provider, and no server yet; on exit nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="knightcode-bench-") as name:
        home = Path(name)
        environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": name,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protocol"))),
        }
        with subprocess.Popen(
            (sys.executable, "-m", "benchmarks.provider"), stdout=subprocess.PIPE, env=environ, text=True
        ) as provider:
            try:
                assert provider.stdout is not None
                port = int(provider.stdout.readline())
                agent = home / ".knightcode" / "agent"
                agent.mkdir(parents=True)
                (agent / "models.json").write_text(_MODELS.format(port=port), encoding="utf-8")
                arena = Arena(home, port, environ)
                try:
                    yield arena
                finally:
                    arena.close()
            finally:
                provider.kill()
