"""What the tests of tools share: a call's context, and facts about processes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from knightcode.agent.tools.base import Tool, ToolContext, ToolError, ToolResult
from knightcode.messages import TextBlock


def call_context(
    cwd: Path,
    *,
    update: Callable[[ToolResult], None] | None = None,
    environment: Mapping[str, str] | None = None,
    takes_images: bool = True,
    shell_path: str | None = None,
    shell_command_prefix: str | None = None,
) -> ToolContext:
    """The context of one call, with the environment of the tests."""
    return ToolContext(
        cwd=cwd,
        environment=dict(os.environ) if environment is None else environment,
        update=update or (lambda _: None),
        takes_images=takes_images,
        shell_path=shell_path,
        shell_command_prefix=shell_command_prefix,
    )


async def failure(tool: Tool, cwd: Path, **arguments: Any) -> str:
    """The message with which a call fails."""
    with pytest.raises(ToolError) as caught:
        await tool.execute(arguments, call_context(cwd))
    assert caught.value.details == {}
    return str(caught.value)


def text(result: ToolResult) -> str:
    """A result's only block, which is text."""
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended: a zombie that nobody reaps does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def wait_for(fact: Callable[[], bool]) -> None:
    """Wait until something in another process is so; bound it with a deadline."""
    while not fact():
        await trio.lowlevel.checkpoint()
        await trio.to_thread.run_sync(os.sched_yield)  # the other process may need this processor


async def pids_in(folder: Path, count: int) -> list[int]:
    """The process ids that a command has written into `pids`, once there are `count` of them."""
    file = folder / "pids"
    await wait_for(lambda: file.exists() and len(file.read_text().split("\n")) > count)
    return [int(line) for line in file.read_text().split()]
