"""Values out of one settings object: each has a default, and a warning when it cannot be used. Pure.

None and a missing key are the same: unset.

Source: settings, "Tolerance of bad values".
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeGuard, TypeVar

import attrs

D = TypeVar("D")

_LARGEST: Final = 2**53 - 1  # the largest whole number that every JSON reader keeps exactly
_SHOWN_CHARS: Final = 80


@attrs.frozen
class Section:
    """One object of a settings file.

    Attributes:
        source: what warnings call the file.
        warnings: grows with every value that cannot be used; shared with the sections inside.
        prefix: the keys around this object, with a dot after each.
    """

    source: str
    members: Mapping[str, Any]
    warnings: list[str]
    prefix: str = ""

    def section(self, key: str) -> "Section":
        """The object under a key, without members where there is none."""
        found = self.members.get(key)
        if found is not None and not isinstance(found, dict):
            self._warn(key, found, "not an object", "nothing of it is used")
            found = None
        return Section(self.source, found or {}, self.warnings, f"{self.prefix}{key}.")

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        found = self.members.get(key)
        if isinstance(found, bool):
            return found
        if found is not None:
            self._warn(key, found, "neither true nor false", f"{json.dumps(default)} is used")
        return default

    def number(self, key: str, default: D, *, fault: str = "not a number from 0 up") -> int | D:
        """A number from 0 to 2^53-1; a fraction of 1 is cut off. `fault` is what others are called."""
        found = self.members.get(key)
        if _is_number(found):
            return int(found)
        return self._default(key, found, fault, default)

    def whole(self, key: str, default: D) -> int | D:
        """A whole number from 0 to 2^53-1."""
        found = self.members.get(key)
        if _is_number(found) and found == int(found):
            return int(found)
        return self._default(key, found, "not a whole number from 0 up", default)

    def _default(self, key: str, found: object, fault: str, default: D) -> D:
        if found is not None:
            self._warn(key, found, fault, "it is not used" if default is None else f"{default} is used")
        return default

    def _warn(self, key: str, found: object, fault: str, instead: str) -> None:
        """Note that the value of a key cannot be used, and what happens instead."""
        shown = json.dumps(found, ensure_ascii=False)
        if len(shown) > _SHOWN_CHARS:
            shown = f"{shown[:_SHOWN_CHARS]}…"
        self.warnings.append(f"{self.source}: {self.prefix}{key} is {shown}, {fault}; {instead}")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST
