"""The edit tool: replaces texts in one file.

Source: agent loop, "edit".
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
import msgspec

from knightcode.agent.diff import Diff, compare
from knightcode.agent.paths import resolve_path, shown_path
from knightcode.agent.tools.arguments import path_argument
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.agent.tools.files import (
    FILE_LOCKS,
    FILE_THREADS,
    FileLocks,
    file_error,
    read_whole,
    write_in_place,
)
from knightcode.agent.tools.matching import Replacement, apply_edits
from knightcode.text import clean

MAX_FILE_BYTES = 64 * 1024 * 1024
"""A file is edited in memory, several times over; larger ones are for the shell."""


@attrs.frozen
class EditTool:
    """Replaces texts in a file, all or none; a cancelled call leaves the old file or the new one."""

    locks: FileLocks = FILE_LOCKS

    name: ClassVar[str] = "edit"
    description: ClassVar[str] = (
        "Replace texts in one file. Each oldText must occur exactly once in the file as it is now, with its "
        "whitespace; all edits of a call are matched against the file before the call, so they must not "
        "overlap. Give several edits of one file in one call."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "File to edit, relative or absolute"},
            "edits": {
                "type": "array",
                "minItems": 1,
                "description": "The replacements",
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {
                            "type": "string",
                            "description": "Text to replace; as short as it can be while occurring only once",
                        },
                        "newText": {"type": "string", "description": "Text to put in its place"},
                    },
                    "required": ["oldText", "newText"],
                },
            },
        },
        "required": ["path", "edits"],
    }
    snippet: ClassVar[str | None] = "replace exact texts in a file"
    guidelines: ClassVar[tuple[str, ...]] = (
        "Change existing files with edit, and put all changes of one file into one call.",
        "Keep each oldText small but unique; join edits that touch the same lines.",
    )
    sequential: ClassVar[bool] = False
    builtin: ClassVar[bool] = True

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Takes `edits` as JSON text, a single edit, and `oldText`/`newText` beside the path."""
        edits = arguments.get("edits")
        if isinstance(edits, str):
            edits = _decoded(edits)
        if isinstance(edits, dict):
            edits = [edits]
        rest = {name: value for name, value in arguments.items() if name not in ("oldText", "newText")}
        if "oldText" in arguments or "newText" in arguments:
            single = {name: arguments[name] for name in ("oldText", "newText") if name in arguments}
            edits = [*edits, single] if isinstance(edits, list) else [single]
        return arguments if edits is None else {**rest, "edits": edits}

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Edit the file. Raises ToolError when it cannot be read, written or matched."""
        shown = path_argument(arguments)
        path = resolve_path(shown, context.cwd)
        wishes = _wishes(arguments)
        async with self.locks.hold(path):
            edit = await FILE_THREADS.run(_prepare, path, wishes, shown, abandon_on_cancel=True)
            # Not abandoned: when this call ends, cancelled or not, nobody is writing any more.
            await FILE_THREADS.run(_write, edit, path, shown)
        count = len(wishes)
        return ToolResult.of_text(
            f"Replaced {count} {'block' if count == 1 else 'blocks'} in {shown}",
            details={
                "diff": clean(edit.diff.display()),
                "patch": clean(edit.diff.patch(shown_path(path, context.cwd))),
                "firstChangedLine": edit.diff.first_changed_line,
            },
        )


@attrs.frozen
class _PreparedEdit:
    before: bytes
    after: bytes
    diff: Diff


def _prepare(path: str, wishes: Sequence[Replacement], shown: str) -> _PreparedEdit:
    """Read the file and edit it in memory. Bytes that are no UTF-8 pass through unchanged."""
    try:
        before = read_whole(path, max_bytes=MAX_FILE_BYTES)
        if not os.access(path, os.W_OK):
            raise ToolError(f"{shown} is not writable")
    except OSError as error:
        raise file_error(shown, "read", error) from error
    text = before.decode(errors="surrogateescape")
    edited = apply_edits(text, wishes, path=shown)
    return _PreparedEdit(
        before=before,
        after=edited.text.encode(errors="surrogateescape"),
        diff=compare(text, edited.text, edited.spans),
    )


def _write(edit: _PreparedEdit, path: str, shown: str) -> None:
    try:
        write_in_place(path, edit.after, before=edit.before)
    except OSError as error:
        raise file_error(shown, "written", error) from error


def _wishes(arguments: Mapping[str, Any]) -> list[Replacement]:
    edits = arguments.get("edits")
    if not isinstance(edits, list) or not edits:
        raise ToolError("edits must be a list with at least one replacement")
    wishes: list[Replacement] = []
    for index, edit in enumerate(edits):
        old, new = (edit.get("oldText"), edit.get("newText")) if isinstance(edit, Mapping) else (None, None)
        if not isinstance(old, str) or not isinstance(new, str):
            raise ToolError(f"edits[{index}] must hold the strings oldText and newText")
        wishes.append(Replacement(clean(old), clean(new)))
    return wishes


def _decoded(text: str) -> object:
    """JSON text as a value; what is no JSON stays as it is, for the validation to complain about."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
