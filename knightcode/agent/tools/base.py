"""What a tool is: a name, a schema, and one async function that returns or raises.

A tool is run by the loop in a task of its own. When its turn is interrupted the task is cancelled:
`Cancelled` passes through, what the tool started is ended in shielded, bounded clean-up, and the
result is made by the loop from `ToolContext.aborted`.

Source: agent loop, "Tool calls", "Built-in tools".
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs
import trio

from knightcode.messages import InputBlock, TextBlock, Usage


@attrs.frozen
class ToolResult:
    """What a call gives back: content for the model, details for people and programs."""

    content: tuple[InputBlock, ...] = ()
    details: Any = None  # JSON; None is absent
    is_error: bool = False
    usage: Usage | None = None
    terminate: bool = False

    @classmethod
    def of_text(cls, text: str, *, details: Any = None, is_error: bool = False) -> "ToolResult":
        """A result with one text block."""
        return cls(content=(TextBlock(text=text),), details=details, is_error=is_error)


class ToolError(Exception):
    """Raised by a tool for a failed call: the text reaches the model, the call's result is an error."""

    def __init__(self, message: str, *, details: Any = None) -> None:
        super().__init__(message)
        self.details = {} if details is None else details


OPERATION_ABORTED = "Operation aborted"


def _nothing(_: ToolResult) -> None:
    return None


def operation_aborted() -> ToolResult:
    """The result of a call that was stopped, or never came to run."""
    return ToolResult.of_text(OPERATION_ABORTED, is_error=True, details={})


async def _no_tools(name: str, _: dict[str, Any]) -> ToolResult:
    await trio.lowlevel.checkpoint()
    return ToolResult.of_text(f"Tool {name} not found", is_error=True, details={})


@attrs.define(eq=False)
class ToolContext:
    """What one call may use. Made by the loop for every call.

    Attributes:
        cwd: the thread's directory; relative paths resolve against it.
        environment: of child processes, complete, markers and session members included.
        update: reports a partial result; may be called often, the loop limits the rate.
        aborted: says, after the task has been cancelled, what the call's result is. A tool that has
            output worth keeping replaces it when it starts.
        call: calls another tool, by name and JSON arguments, exactly as if the model had: it is looked
            up, checked, judged by the gates and shown, as a part of this call, but not stored. Failures
            of any kind come back as a result with `is_error`; arguments that are no JSON raise
            TypeError. Several may run side by side. When the tool returns or is cancelled, calls of it
            that still run are cancelled and end first; afterwards nothing is called any more.
        takes_images: whether the thread's model accepts image input.
        shell_path, shell_command_prefix: the settings of those names.
    """

    cwd: Path
    environment: Mapping[str, str]
    update: Callable[[ToolResult], None] = _nothing
    aborted: Callable[[], ToolResult] = operation_aborted
    call: Callable[[str, dict[str, Any]], Awaitable[ToolResult]] = _no_tools
    takes_images: bool = True
    shell_path: str | None = None
    shell_command_prefix: str | None = None


class Tool(Protocol):
    """A tool as the loop sees it. Implementations are stateless or guard their own state."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str:
        """For the model, in full."""

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON schema of the arguments, an object."""

    @property
    def snippet(self) -> str | None:
        """One line for the system prompt's list of tools; None leaves the tool out of it."""

    @property
    def guidelines(self) -> tuple[str, ...]:
        """Bullets for the system prompt's rules."""

    @property
    def sequential(self) -> bool:
        """True makes every batch that holds a call of this tool run one call at a time."""

    @property
    def builtin(self) -> bool:
        """True only for the implementations in this package: the gate's sets hold nothing else."""

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as sent by the model, rewritten to the schema where older forms are accepted."""

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Do it. Raises ToolError, or anything else, for a failed call."""
