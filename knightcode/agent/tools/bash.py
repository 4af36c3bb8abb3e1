"""The bash tool: runs a shell command and shows the end of what it prints.

A finished command leaves nothing behind: what it put into the background ends with the call, as it
does when the call is interrupted or runs out of time.

Source: agent loop, "bash".
"""

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import trio

from knightcode.agent.tools.arguments import number_argument, text_argument
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.agent.tools.shell_output import ShellOutput
from knightcode.processes.children import Child, open_child

MAX_TIMEOUT_SECONDS = 2_147_483.647
UPDATE_SECONDS = 0.1
DRAIN_SECONDS = 0.1
"""How long a descendant may keep the output open once the shell has exited."""
_QUIET_SECONDS = 0.01
"""Without output for this long, what had been printed when the shell exited has been read."""
_MAX_DRAINED_BYTES = 1024 * 1024
"""No pipe holds more, so the rest is printed by a descendant that goes on and on."""
_LOG_SECONDS = 2.0
"""For getting a thread that writes the last of the log; writing itself is not given up half-way."""
_READ_BYTES = 64 * 1024


@attrs.frozen
class BashTool:
    """Runs commands, each in a process group of its own, without input."""

    name: ClassVar[str] = "bash"
    description: ClassVar[str] = (
        "Run a shell command in the working directory; stdout and stderr come back together. The last 2000 "
        "lines or 50KB are shown, longer output is saved to a file. There is no input, no time limit unless "
        "timeout is given, and processes left in the background end with the call."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "Command line for the shell"},
            "timeout": {"type": "number", "description": "Seconds after which the command is ended"},
        },
        "required": ["command"],
    }
    snippet: ClassVar[str | None] = "run shell commands"
    guidelines: ClassVar[tuple[str, ...]] = ()
    sequential: ClassVar[bool] = False
    builtin: ClassVar[bool] = True

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as they are."""
        return arguments

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the command to its end. Raises ToolError when it cannot be started."""
        command = text_argument(arguments, "command")
        if "\0" in command:
            raise ToolError("command must not hold a NUL character")
        timeout = _timeout(arguments)
        if not context.cwd.is_dir():
            raise ToolError(f"The working directory {context.cwd} does not exist")
        prefix = f"{context.shell_command_prefix}\n" if context.shell_command_prefix else ""
        argv = (_shell(context.shell_path, context.environment), "-c", prefix + command)
        run = _Run(context)
        context.aborted = run.aborted
        try:
            code = await run.run(argv, timeout)
        except OSError as error:
            raise ToolError(f"The shell {argv[0]} could not be started: {error.strerror or error}") from error
        return run.result(code, timeout)


@attrs.define(eq=False)
class _Run:
    """One command while it runs, and its outcome."""

    context: ToolContext
    output: ShellOutput = attrs.field(factory=ShellOutput, init=False)
    _at_end: bool = attrs.field(default=False, init=False)  # the pipe was closed by all who held it
    _next_update: float = attrs.field(default=0.0, init=False)

    async def run(self, argv: Sequence[str], limit_seconds: float | None) -> int | None:
        """The exit code; None when the time ran out. Raises OSError when the shell cannot be started."""
        code: int | None = None
        try:
            with trio.move_on_after(math.inf if limit_seconds is None else limit_seconds):
                async with open_child(
                    argv, cwd=self.context.cwd, environment=self.context.environment
                ) as child:
                    self.context.update(ToolResult(details={}))
                    await self._follow(child)
                code = child.exit_code
        finally:
            with trio.move_on_after(_LOG_SECONDS, shield=True):
                await self.output.finish()
        return code

    def result(self, code: int | None, timeout: float | None) -> ToolResult:
        """The outcome of a command that was not interrupted; publishes the last update."""
        self._publish()
        if code is None:
            return self._failed(f"Command timed out after {_seconds(timeout)} seconds")
        if code:
            return self._failed(f"Command exited with code {code}")
        cut = self.output.tail()
        text = _paragraphs(cut.content, self.output.note(cut))
        return ToolResult.of_text(text or "(no output)", details=self.output.details(cut) or None)

    def aborted(self) -> ToolResult:
        """The outcome of a command that was interrupted."""
        return self._failed("Command aborted")

    def _failed(self, status: str) -> ToolResult:
        cut = self.output.tail()
        text = _paragraphs(cut.content, self.output.note(cut), status)
        return ToolResult.of_text(text, details={}, is_error=True)

    async def _follow(self, child: Child) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read, child.output)
            await child.wait_exited()
            nursery.cancel_scope.cancel(reason="the shell has exited")
        await self._drain(child.output)

    async def _read(self, output: trio.abc.ReceiveStream) -> None:
        """Take in what is printed until the pipe closes; being cancelled loses nothing."""
        while not self._at_end:
            data: bytes | bytearray | None = None
            with trio.move_on_at(self._next_update if self.output.changed else math.inf):
                data = await output.receive_some(_READ_BYTES)
            await self._take(data)
            if self.output.changed and trio.current_time() >= self._next_update:
                self._publish()

    async def _drain(self, output: trio.abc.ReceiveStream) -> None:
        """Read what was printed before the shell exited, and what descendants print right after it."""
        deadline = trio.current_time() + DRAIN_SECONDS
        late = 0
        while not self._at_end and late <= _MAX_DRAINED_BYTES:
            now = trio.current_time()
            data: bytes | bytearray | None = None
            with trio.move_on_at(max(deadline, now + _QUIET_SECONDS)):
                data = await output.receive_some(_READ_BYTES)
            if data is None:
                return
            if now > deadline:
                late += len(data)
            await self._take(data)

    async def _take(self, data: bytes | bytearray | None) -> None:
        if data is None:
            return
        if data:
            await self.output.feed(data)
        else:
            self._at_end = True

    def _publish(self) -> None:
        cut = self.output.tail()
        self.context.update(ToolResult.of_text(cut.content, details=self.output.details(cut)))
        self._next_update = trio.current_time() + UPDATE_SECONDS


def _timeout(arguments: Mapping[str, Any]) -> float | None:
    timeout = number_argument(arguments, "timeout")
    if timeout is not None and not 0 < timeout <= MAX_TIMEOUT_SECONDS:
        raise ToolError(f"timeout must be above 0 and at most {MAX_TIMEOUT_SECONDS} seconds, got {timeout}")
    return timeout


def _shell(shell_path: str | None, environment: Mapping[str, str]) -> str:
    """The shell to run: the setting's, else the system's bash, else one on PATH, else sh."""
    if shell_path is not None:
        path = os.path.expanduser(shell_path)
        if not os.path.isfile(path):
            raise ToolError(f"The shell {shell_path} of the setting shellPath does not exist")
        return path
    if os.path.exists("/bin/bash"):
        return "/bin/bash"
    return shutil.which("bash", path=environment.get("PATH")) or "sh"


def _seconds(timeout: float | None) -> str:
    return "no" if timeout is None else f"{timeout:.3f}".rstrip("0").rstrip(".")


def _paragraphs(*texts: str) -> str:
    """The texts that are not empty, a blank line between them."""
    whole = ""
    for text in texts:
        if text and whole:
            whole += "\n" if whole.endswith("\n") else "\n\n"
        whole += text
    return whole
