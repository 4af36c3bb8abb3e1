"""Lone surrogates in JSON text.

JavaScript programs write half a surrogate pair as `\\ud83d` when they cut a string in the wrong place.
No decoder here takes it, and nothing could write it again: on entry it becomes U+FFFD.
"""

import re
from typing import Final

_PAIR: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
# An even number of backslashes before it is text; the escape itself begins after them. Runs are taken
# whole, since a line may hold millions of escapes. The last one is not possessive: nothing follows it,
# and Python 3.11.2, which Debian 12 has, takes too much when a look-ahead is repeated possessively.
_ESCAPES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*+)(?:((?:" + _PAIR + rb")++)|((?:(?!" + _PAIR + rb")" + _HALF + rb")+))"
)
_LENGTH: Final = len(rb"\ud83d")


def may_hold_surrogates(line: bytes) -> bool:
    """Whether the line has an escape that can be half a pair; cheap."""
    return b"\\ud" in line or b"\\uD" in line


def replace_lone_surrogates(line: bytes) -> bytes:
    """The line with each escape of a lone surrogate replaced; pairs stay."""
    return _ESCAPES.sub(_mend, line)


def _mend(match: re.Match[bytes]) -> bytes:
    if match[2]:
        return match[0]
    return match[1] + rb"\ufffd" * (len(match[3]) // _LENGTH)
