"""Lines that are not quite as they should be: what can be read from them all the same.

Only lines that the fast decoder refuses come here. Values are plain JSON; nothing here knows the
entry structs.

Source: Session files, "Loading and damaged files", "Messages".
"""

from typing import Any

import msgspec

from knightcode.sessions.clock import iso, parse_iso
from knightcode.text import loads_clean

_BLANK = b" \t\r\n\0"  # a file system that lost power leaves runs of NULs
_BOM = b"\xef\xbb\xbf"

_TEXT = frozenset({"text"})
_INPUT = frozenset({"text", "image"})
_REPLY = frozenset({"text", "thinking", "toolCall"})
_BLOCKS = {
    "system": _TEXT,
    "user": _INPUT,
    "assistant": _REPLY,
    "toolResult": _INPUT,
    "custom": _INPUT,
}
_ROLES = frozenset({*_BLOCKS, "bashExecution", "compactionSummary", "branchSummary"})


def parse_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line; None when there is no whole one.

    Invalid UTF-8 and half surrogate pairs are read as U+FFFD; a byte order mark and NULs around the
    object are left out.
    """
    data = line.strip(_BLANK).removeprefix(_BOM)
    if not data:
        return None
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        try:
            value = loads_clean(data.decode("utf-8", "replace"))
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def tidy(record: dict[str, Any]) -> dict[str, Any]:
    """An entry with all that has a plain meaning in the form that the structs ask for.

    `timestamp` is always a string afterwards: the message's own time or 1970 where it is missing.
    """
    tidied = _without_nulls(record)
    message = tidied.get("message")
    entry_ms = _milliseconds(tidied.get("timestamp"))
    if entry_ms is None and isinstance(message, dict):
        entry_ms = _milliseconds(message.get("timestamp"))
    if not isinstance(tidied.get("timestamp"), str):
        tidied["timestamp"] = iso(entry_ms or 0)
    if not isinstance(tidied.get("parentId"), str):
        tidied["parentId"] = None
    for name in ("message", "systemMessage"):
        if isinstance(tidied.get(name), dict):
            tidied[name] = _tidy_message(tidied[name], entry_ms or 0)
    if isinstance(tail := tidied.get("retainedTail"), list):
        tidied["retainedTail"] = [
            _tidy_message(kept, entry_ms or 0)
            for kept in tail
            if isinstance(kept, dict) and _is_one_of(kept.get("role"), _ROLES)
        ]
    if isinstance(usage := tidied.get("usage"), dict):
        tidied["usage"] = _tidy_usage(usage)
    if isinstance(content := tidied.get("content"), list):
        tidied["content"] = _tidy_blocks(content, _INPUT)
    if isinstance(replacement := tidied.get("replacement"), list):
        tidied["replacement"] = _tidy_blocks(replacement, _INPUT | _REPLY)
    return tidied


def _tidy_message(message: dict[str, Any], entry_ms: int) -> dict[str, Any]:
    tidied = _without_nulls(message)
    own_ms = _milliseconds(tidied.get("timestamp"))
    tidied["timestamp"] = entry_ms if own_ms is None else own_ms
    role, content = tidied.get("role"), tidied.get("content")
    blocks = _BLOCKS.get(role) if isinstance(role, str) else None
    if blocks is not None and isinstance(content, list):
        tidied["content"] = _tidy_blocks(content, blocks)
    elif role in ("assistant", "toolResult") and isinstance(content, str):
        tidied["content"] = [{"type": "text", "text": content}]
    if isinstance(usage := tidied.get("usage"), dict):
        tidied["usage"] = _tidy_usage(usage)
    for name in ("toolsAdded", "toolsRemoved"):
        if isinstance(tools := tidied.get(name), list):
            tidied[name] = [_without_nulls(tool) if isinstance(tool, dict) else tool for tool in tools]
    return tidied


def _tidy_blocks(content: list[Any], known: frozenset[str]) -> list[Any]:
    """The blocks of known types: one that a later version invented must not cost the whole message."""
    return [
        _without_nulls(block)
        for block in content
        if isinstance(block, dict) and _is_one_of(block.get("type"), known)
    ]


def _tidy_usage(usage: dict[str, Any]) -> dict[str, Any]:
    tidied = _without_nulls(usage)
    if isinstance(cost := tidied.get("cost"), dict):
        tidied["cost"] = _without_nulls(cost)
    return tidied


def _is_one_of(value: object, known: frozenset[str]) -> bool:
    return isinstance(value, str) and value in known  # other JSON values need not be hashable


def _without_nulls(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _milliseconds(value: object) -> int | None:
    if isinstance(value, str):
        return parse_iso(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            iso(int(value))
        except (OverflowError, ValueError):
            return None
        return int(value)
    return None
