"""Which files the summarised part of a conversation read and changed. Pure.

Source: Compaction, "File lists".
"""

from collections.abc import Iterable
from typing import Any, Final

import attrs

from knightcode.messages import AssistantMessage, Message, ToolCallBlock
from knightcode.sessions.entries import CompactionEntry

_READ: Final = "readFiles"
_MODIFIED: Final = "modifiedFiles"


@attrs.frozen
class FileOps:
    """Paths, as the calls named them, by what was done to the files."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    edited: frozenset[str] = frozenset()

    @property
    def modified_files(self) -> list[str]:
        """What was written or edited, sorted."""
        return sorted(self.edited | self.written)

    @property
    def read_files(self) -> list[str]:
        """What was only read, sorted."""
        return sorted(self.read - self.edited - self.written)

    def details(self) -> dict[str, list[str]]:
        """What a compaction entry keeps of them."""
        return {_READ: self.read_files, _MODIFIED: self.modified_files}

    def blocks(self) -> str:
        """What is added to a summary's text: a block for each list that is not empty, or nothing."""
        return _blocks(self.read_files, self.modified_files)


def file_ops(messages: Iterable[Message], previous: CompactionEntry | None) -> FileOps:
    """What the calls in `messages` did, on top of what the compaction before them lists.

    Lists that an extension wrote are its own, and left alone.
    """
    done: dict[str, set[str]] = {"read": set(), "write": set(), "edit": set()}
    if previous is not None and not previous.from_hook:
        done["read"].update(_paths(previous.details, _READ))
        done["edit"].update(_paths(previous.details, _MODIFIED))
    for message in messages:
        if not isinstance(message, AssistantMessage):
            continue
        for block in message.content:
            if isinstance(block, ToolCallBlock) and block.name in done:
                path = block.arguments.get("path")
                if isinstance(path, str):
                    done[block.name].add(path)
    return FileOps(frozenset(done["read"]), frozenset(done["write"]), frozenset(done["edit"]))


def summary_without_blocks(entry: CompactionEntry) -> str:
    """A compaction's summary without the file lists at its end: the next one brings them up to date."""
    if entry.from_hook:
        return entry.summary
    return entry.summary.removesuffix(_blocks(_paths(entry.details, _READ), _paths(entry.details, _MODIFIED)))


def _paths(details: Any, name: str) -> list[str]:
    listed = details.get(name) if isinstance(details, dict) else None
    return [path for path in listed if isinstance(path, str)] if isinstance(listed, list) else []


def _blocks(read: list[str], modified: list[str]) -> str:
    return _block("read-files", read) + _block("modified-files", modified)


def _block(name: str, paths: list[str]) -> str:
    return "\n\n" + "\n".join([f"<{name}>", *paths, f"</{name}>"]) if paths else ""
