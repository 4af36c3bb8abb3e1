"""Which files a finished tool call changed, told from what the session file stores of it.

Live items and items read back are made from the same stored values, so both tell the same.

Source: App Server, "Items"; extensions, "Results".
"""

from collections.abc import Mapping
from typing import Literal

import attrs

from knightcode.agent.paths import resolve_path

ChangeKind = Literal["add", "modify", "delete"]
_KINDS: dict[object, ChangeKind] = {"add": "add", "modify": "modify", "delete": "delete"}


@attrs.frozen
class FileChange:
    """One changed file: its absolute path, what happened, and a unified diff where there is one."""

    path: str
    kind: ChangeKind
    diff: str | None = None


def file_changes(
    tool_name: str, arguments: object, details: object, is_error: bool, cwd: str
) -> tuple[FileChange, ...]:
    """The changes that a tool result reports; none for a failed call and for a malformed report.

    `edit` and `write` are told by their arguments and details, and every tool may report
    `details.fileChanges`, a list of `{path, kind, diff?}` that counts as a whole or not at all.
    """
    if is_error:
        return ()
    found = details if isinstance(details, Mapping) else {}
    if "fileChanges" in found:
        return _reported(found["fileChanges"], cwd)
    if tool_name not in ("edit", "write"):
        return ()
    path = arguments.get("path") if isinstance(arguments, Mapping) else None
    if not isinstance(path, str) or not path or "\0" in path:
        return ()
    kind: ChangeKind = "add" if tool_name == "write" and found.get("existed") is False else "modify"
    patch = found.get("patch")
    return (FileChange(resolve_path(path, cwd), kind, patch if isinstance(patch, str) and patch else None),)


def _reported(report: object, cwd: str) -> tuple[FileChange, ...]:
    if not isinstance(report, list):
        return ()
    changes: list[FileChange] = []
    for entry in report:
        change = _change(entry, cwd)
        if change is None:
            return ()
        changes.append(change)
    return tuple(changes)


def _change(entry: object, cwd: str) -> FileChange | None:
    if not isinstance(entry, Mapping):
        return None
    path, kind, diff = entry.get("path"), entry.get("kind"), entry.get("diff")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if not isinstance(path, str) or not path or "\0" in path or known is None:
        return None
    if not isinstance(diff, str | None):
        return None
    return FileChange(resolve_path(path, cwd), known, diff or None)
