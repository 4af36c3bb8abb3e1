"""The write tool: makes a text the content of a file.

Source: agent loop, "write".
"""

import os
from typing import Any, ClassVar

import attrs

from knightcode.agent.diff import Diff, compare
from knightcode.agent.paths import resolve_path, shown_path
from knightcode.agent.tools.arguments import path_argument, text_argument
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.agent.tools.files import (
    FILE_LOCKS,
    FILE_THREADS,
    FileLocks,
    file_error,
    read_whole,
    write_in_place,
)
from knightcode.text import clean

MAX_DIFF_CHARS = 1024 * 1024
"""Old and new text together; above this the details hold neither diff nor patch."""
_MAX_KEPT_BYTES = 16 * 1024 * 1024
"""Above this the replaced content is not read, so a failed write cannot put it back."""


@attrs.frozen
class WriteTool:
    """Writes a file, its parent folders included; it keeps the mode and links of a file it replaces."""

    locks: FileLocks = FILE_LOCKS

    name: ClassVar[str] = "write"
    description: ClassVar[str] = (
        "Write a text to a file. Parent folders are created; an existing file is replaced as a whole."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File to write, relative or absolute"},
            "content": {"type": "string", "description": "The whole content of the file"},
        },
        "required": ["path", "content"],
    }
    snippet: ClassVar[str | None] = "create a file or replace it as a whole"
    guidelines: ClassVar[tuple[str, ...]] = (
        "Use write only for new files and for rewriting a file completely.",
    )
    sequential: ClassVar[bool] = False
    builtin: ClassVar[bool] = True

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as they are."""
        return arguments

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Write the file. Raises ToolError when the system refuses.

        The details hold `existed`; `patch` where there is text to show, and `diff` where an existing
        file got another text.
        """
        shown = path_argument(arguments)
        path = resolve_path(shown, context.cwd)
        text = clean(text_argument(arguments, "content"))
        async with self.locks.hold(path):
            plan = await FILE_THREADS.run(_plan, path, text, shown, abandon_on_cancel=True)
            # Not abandoned: when this call ends, cancelled or not, nobody is writing any more.
            await FILE_THREADS.run(_write, plan, path, shown)
        details: dict[str, Any] = {"existed": plan.existed}
        if plan.diff is not None:
            if plan.existed:
                details["diff"] = clean(plan.diff.display())
            details["patch"] = clean(plan.diff.patch(shown_path(path, context.cwd), added=not plan.existed))
        return ToolResult.of_text(f"{'Replaced' if plan.existed else 'Created'} {shown}", details=details)


@attrs.frozen
class _Plan:
    """A write that is known to be wanted; `diff` is None where none is to be reported."""

    data: bytes
    existed: bool
    before: bytes | None
    diff: Diff | None


def _plan(path: str, text: str, shown: str) -> _Plan:
    data = text.encode()
    try:
        existed = os.path.exists(path)
        known = existed and os.path.isfile(path) and os.path.getsize(path) <= _MAX_KEPT_BYTES
        before = read_whole(path, max_bytes=_MAX_KEPT_BYTES) if known and os.access(path, os.R_OK) else None
    except OSError as error:
        raise file_error(shown, "written", error) from error
    old = "" if before is None else before.decode(errors="surrogateescape")
    comparable = (before is not None or not existed) and len(old) + len(text) <= MAX_DIFF_CHARS
    diff = compare(old, text) if comparable and old != text else None
    return _Plan(data=data, existed=existed, before=before, diff=diff)


def _write(plan: _Plan, path: str, shown: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_in_place(path, plan.data, before=plan.before, created=not plan.existed)
    except FileExistsError as error:  # so says the system of a file in the place of a folder
        raise ToolError(f"{shown} could not be written: one of its parents is not a folder") from error
    except OSError as error:
        raise file_error(shown, "written", error) from error
