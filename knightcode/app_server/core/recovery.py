"""What can still be read of a line that no JSON decoder takes.

A client that wrote a broken request waits for an answer; if its id stands before the fault, it gets
one.
"""

import re
from typing import Final

_LOOK_AT_BYTES: Final = 1024 * 1024
_NAMES: Final = frozenset({b'"id"', b'"method"', b'"result"', b'"error"'})

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_OPENING: Final = re.compile(rb"\s*+\{")
_KEY: Final = re.compile(rb"\s*+(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_SCALAR: Final = re.compile(
    _STRING + rb"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null", re.DOTALL
)
_BRACKET: Final = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_DELIMITER: Final = re.compile(rb"\s*+([,}])")


def leading_members(line: bytes) -> dict[str, bytes]:
    """The envelope's members from the line's start to its first fault: name to JSON text.

    Only members that a comma or a closing brace follows count, since a number may have been cut. Of
    equal names the last wins. No more than the first MiB is looked at.
    """
    line = line[:_LOOK_AT_BYTES]
    members: dict[str, bytes] = {}
    found = _OPENING.match(line)
    while found and (key := _KEY.match(line, found.end())):
        end = _end_of_value(line, key.end())
        if end is None or not (delimiter := _DELIMITER.match(line, end)):
            break
        if key[1] in _NAMES:
            members[key[1].strip(b'"').decode()] = line[key.end() : end]
        found = delimiter if delimiter[1] == b"," else None
    return members


def _end_of_value(line: bytes, start: int) -> int | None:
    if line[start : start + 1] not in (b"[", b"{"):
        scalar = _SCALAR.match(line, start)
        return scalar.end() if scalar else None
    depth = 0
    for token in _BRACKET.finditer(line, start):
        opened = token[0] in (b"[", b"{")
        closed = token[0] in (b"]", b"}")
        depth += opened - closed
        if depth == 0:
            return token.end()
    return None
