"""How deep a line's arrays and objects are nested, found without recursion and in C speed.

JSON decoders recurse, and so does what walks over decoded values later. A line that would exhaust
their stacks is refused before it is decoded.
"""

import re
from typing import Final

from knightcode_protocol.limits import MAX_NESTING

# Possessive, and satisfied with a string that the line cuts off: linear for every input.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(line: bytes, limit: int = MAX_NESTING) -> bool:
    """Whether more than `limit` arrays and objects are open somewhere in the line."""
    if line.count(b"[") + line.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", line).translate(_ONE_KIND, _NO_BRACKETS)
    beyond = b"[" * (limit + 1)
    for _ in range(limit):
        if beyond in brackets:
            return True
        shorter = brackets.replace(b"[]", b"")  # takes off the innermost level
        if len(shorter) == len(brackets):
            return False
        brackets = shorter
    return b"[]" in brackets or beyond in brackets
