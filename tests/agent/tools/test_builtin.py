"""Source: agent loop, "Built-in tools"."""

from pathlib import Path

import pytest
import trio

from knightcode.agent.tools.base import Tool
from knightcode.agent.tools.builtin import builtin_tools
from tests.agent.tools.calls import call_context


def test_the_default_tools_are_read_bash_edit_and_write() -> None:
    assert [tool.name for tool in builtin_tools()] == ["read", "bash", "edit", "write"]
    assert all(tool.builtin and not tool.sequential and tool.snippet for tool in builtin_tools())


@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.name)
def test_required_arguments_are_described_properties(tool: Tool) -> None:
    properties = tool.parameters["properties"]
    assert set(tool.parameters["required"]) <= set(properties)
    assert all(schema["description"] for schema in properties.values())


@pytest.mark.parametrize("tool", builtin_tools(), ids=lambda tool: tool.name)
async def test_a_call_in_a_cancelled_scope_does_nothing(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    arguments = {
        "path": "f",
        "content": "b",
        "edits": [{"oldText": "a", "newText": "b"}],
        "command": "echo b > f",
    }
    with trio.move_on_after(0) as scope:
        await tool.execute(arguments, call_context(tmp_path))
    assert scope.cancelled_caught
    assert (tmp_path / "f").read_text() == "a"
