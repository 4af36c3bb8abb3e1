"""Files of older versions brought to the present one, as bytes. Pure.

Source: Session files, "Versions and migration".
"""

import hashlib
from collections.abc import Container
from typing import Any

import msgspec

from knightcode.sessions.entries import CURRENT_VERSION, header_of
from knightcode.sessions.lenient import parse_line

_TREE_VERSION = 2  # the first in which entries have ids and parents


def migrate(data: bytes) -> bytes:
    """A whole file in the present version; the same bytes when there is nothing to do.

    Lines that hold no object are kept as they are. Ids are derived from the session's id and the
    position, so that readers who may not write see the ids that the rewritten file will have.
    """
    lines = data.split(b"\n")
    records = [parse_line(line) for line in lines]
    at = next((index for index, record in enumerate(records) if record is not None), None)
    header_record = None if at is None else records[at]
    header = None if header_record is None else header_of(header_record)
    if at is None or header_record is None or header is None or header.version >= CURRENT_VERSION:
        return data
    entries = [record for record in records[at + 1 :] if record is not None]
    if header.version < _TREE_VERSION:
        _link(header.id, entries)
    _rename_hook_messages(entries)
    header_record["version"] = CURRENT_VERSION
    written = [
        line if record is None else msgspec.json.encode(record)
        for line, record in zip(lines, records, strict=True)
    ]
    return b"\n".join(line for line in written if line.strip()) + b"\n"


def _link(session_id: str, entries: list[dict[str, Any]]) -> None:
    """Version 2: entries know their parents, and a compaction names the entry that it keeps first."""
    taken: set[str] = set()
    parent_id: str | None = None
    for index, entry in enumerate(entries):
        entry["id"] = _derived_id(session_id, index, taken)
        entry["parentId"] = parent_id
        parent_id = entry["id"]
        taken.add(entry["id"])
    for entry in entries:
        if entry.get("type") != "compaction":
            continue
        line = entry.pop("firstKeptEntryIndex", None)  # counted from the header, which is line 0
        if type(line) is int and 1 <= line <= len(entries):
            entry["firstKeptEntryId"] = entries[line - 1]["id"]


def _rename_hook_messages(entries: list[dict[str, Any]]) -> None:
    """Version 3: the messages of hooks are called custom messages."""
    for entry in entries:
        message = entry.get("message")
        if (
            entry.get("type") == "message"
            and isinstance(message, dict)
            and message.get("role") == "hookMessage"
        ):
            message["role"] = "custom"


def _derived_id(session_id: str, index: int, taken: Container[str]) -> str:
    attempt = 0
    while True:
        drawn = hashlib.sha256(f"{session_id}:{index}:{attempt}".encode()).hexdigest()[:8]
        if drawn not in taken:
            return drawn
        attempt += 1
