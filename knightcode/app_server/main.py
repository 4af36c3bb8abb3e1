"""From the command line to a running server.

The first answer does not wait for the rest of the program: framing and the handshake's core are
enough for it, and if the client's `initialize` is there already it is answered before trio, the HTTP
client and all the rest are loaded.

Source: App Server, "Starting", "Handshake".
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from knightcode import __version__
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.core.handshake import ServerInfo, arch_of
from knightcode.app_server.transport.descriptors import Pipes

if TYPE_CHECKING:
    from knightcode.app_server.signals import StopSignals

USAGE = """\
usage: knightcode app-server [--session-dir DIR] [--scripted-model FILE]

Hosts conversation threads for one client that speaks newline-delimited JSON over stdin and stdout.

  --session-dir DIR      where session files are stored and looked up
  --scripted-model FILE  offer the model scripted/scripted, which plays the conversation in FILE
  -h, --help             show this text
"""


class UsageError(Exception):
    """The arguments cannot be used; the text says why."""


class Options:
    """What the arguments ask for."""

    def __init__(self) -> None:
        self.session_dir: str | None = None
        self.scripted: str | None = None
        self.help = False


def parse(arguments: Sequence[str]) -> Options:
    """The options in `arguments`.

    Raises:
        UsageError: an unknown option, or one without its value.
    """
    options = Options()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in ("-h", "--help"):
            options.help = True
            return options
        if argument in ("-e", "--extension"):
            raise UsageError(f"{argument}: this version cannot load extensions yet; start without it")
        if argument not in ("--session-dir", "--scripted-model"):
            raise UsageError(f"unknown argument {argument}")
        if not rest or not rest[0]:
            raise UsageError(f"{argument} needs a value")
        value = rest.pop(0)
        if argument == "--session-dir":
            options.session_dir = value
        else:
            options.scripted = value
    return options


def server_info() -> ServerInfo:
    """What `initialize` tells about this process."""
    system: Literal["win32", "darwin", "linux"] = "linux"
    if sys.platform == "win32" or sys.platform == "darwin":
        system = sys.platform
    machine = os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return ServerInfo(
        version=__version__,
        os=system,
        arch=arch_of(machine),
        home_dir=os.path.abspath(os.path.expanduser("~")),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the server; returns the exit code: 0 clean or help, 1 forced, 2 for wrong arguments."""
    try:
        options = parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"knightcode app-server: {error}\n\n{USAGE}")
        return 2
    if options.help:
        sys.stderr.write(USAGE)
        return 0
    from knightcode.app_server.signals import StopSignals, hangup_is_ignored

    # Windows never tells of another parent than the first.
    parent = None if hangup_is_ignored() or sys.platform == "win32" else os.getppid()
    signals = StopSignals()
    signals.install()  # the stop is a sequence, also for a signal that comes this early
    pipes = Pipes.claim()
    core = ConnectionCore(server_info())
    early = pipes.first_line()
    if early is not None:
        core.receive(early)  # a first line never yields an action: nothing is accepted before the handshake
        rest = pipes.write_early(core.outbox.take(1))
        if rest:
            core.outbox.post(rest)
    return _serve(core, pipes, options, signals, parent)


def _serve(
    core: ConnectionCore, pipes: Pipes, options: Options, signals: "StopSignals", parent: int | None
) -> int:
    from pathlib import Path

    import trio

    from knightcode.app_server.host import HostConfig
    from knightcode.app_server.logs import log_to_stderr
    from knightcode.app_server.serve import serve_stdio

    os.environ |= {"AI_AGENT": "knightcode", "KNIGHTCODE_CODING_AGENT": "true"}
    cwd = Path.cwd()
    config = HostConfig(
        environ=dict(os.environ),
        cwd=cwd,
        session_dir=options.session_dir,
        scripted=None if options.scripted is None else cwd / Path(options.scripted).expanduser(),
    )
    handler = log_to_stderr()
    try:
        code: int = trio.run(serve_stdio, core, pipes, config, signals, parent)
        signals.ignore()
        return code
    finally:
        handler.close()
