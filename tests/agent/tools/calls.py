"""What the tests of tools share: a call's context, and what comes of it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

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
