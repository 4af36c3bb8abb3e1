"""The tools that every thread has.

Source: agent loop, "Built-in tools".
"""

from knightcode.agent.tools.base import Tool
from knightcode.agent.tools.bash import BashTool
from knightcode.agent.tools.edit import EditTool
from knightcode.agent.tools.files import FILE_LOCKS, FileLocks
from knightcode.agent.tools.read import ReadTool
from knightcode.agent.tools.write import WriteTool


def builtin_tools(locks: FileLocks = FILE_LOCKS) -> tuple[Tool, ...]:
    """read, bash, edit and write, in the order in which a model is told of them.

    Args:
        locks: keep changes of one file apart; all threads of a process share the default.
    """
    return (ReadTool(), BashTool(), EditTool(locks), WriteTool(locks))
