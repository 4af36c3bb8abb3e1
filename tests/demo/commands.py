"""Running the real `knightcode demo` as a child, away from the user's files and keys."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

import knightcode
import knightcode_protocol

SECONDS = 60.0
"""For a child to do anything at all; a demo takes about two on an idle machine."""

COMMAND = (sys.executable, "-m", "knightcode", "demo")
_KEPT = ("PATH", "LANG", "LC_ALL", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


def private_environ(folder: Path, **more: str) -> dict[str, str]:
    """An environment without keys, whose home and temporary folder are below `folder`."""
    packages = [Path(str(package.__file__)).parent.parent for package in (knightcode, knightcode_protocol)]
    for name in ("home", "temporary"):
        (folder / name).mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        **more,
    }


@attrs.frozen
class Done:
    """How a child ended."""

    code: int
    out: str
    err: str


def run_demo(environ: dict[str, str], *arguments: str) -> Done:
    """A demo without a terminal, from start to end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def kept_folders(folder: Path) -> list[Path]:
    """What demos left in the temporary folder."""
    return sorted((folder / "temporary").iterdir())


def running_below(folder: Path) -> list[str]:
    """Command lines of processes that were started with a path below `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def server_below(folder: Path) -> int:
    """The process id of the one server that a demo in `folder` runs."""
    (found,) = (
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and str(folder).encode() in (line := (entry / "cmdline").read_bytes())
        and b"app-server" in line
    )
    return found


@attrs.define(eq=False)
class TerminalDemo:
    """A demo whose input and output are a terminal."""

    process: trio.Process
    terminal: int
    shown: str = attrs.field(default="", init=False)

    async def wait_for(self, text: str) -> None:
        """Read until `text` has been shown since the last call, and forget what was before its end."""
        while text not in self.shown:
            await self._read()
        self.shown = self.shown.partition(text)[2]

    async def wait_for_end(self) -> tuple[int, str]:
        """The exit code, and what was shown since the last `wait_for`."""
        code = await self.process.wait()
        while await self._read():
            pass
        return code, self.shown

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.terminal, text.encode())

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self.terminal)
        try:
            data = os.read(self.terminal, 65536)
        except OSError:  # Linux: nobody has the other end open any more
            return False
        self.shown += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


@asynccontextmanager
async def open_terminal_demo(
    environ: dict[str, str], *arguments: str, stdout: int | None = None
) -> AsyncIterator[TerminalDemo]:
    """A demo in the foreground of a terminal of its own, so that Ctrl-C reaches what a user's would.

    Args:
        stdout: a descriptor for what it shows, in place of the terminal.
    """
    ours, theirs = pty.openpty()
    # setsid makes the terminal the child's controlling one, which only a shell's helper can do from outside.
    launcher = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    launcher += "os.execv(sys.argv[1], sys.argv[1:])"
    try:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", "-c", launcher, *COMMAND, *arguments],
            env=environ,
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
        )
    finally:
        os.close(theirs)
    try:
        yield TerminalDemo(process, ours)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()
        os.close(ours)
