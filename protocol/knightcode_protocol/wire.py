"""The base of every struct that crosses the pipe, and what "absent" means there.

In params an optional member is absent or `null`, which is the same: None. In results and
notifications an optional member without a value is left out and never `null`: UNSET.
"""

from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType

T = TypeVar("T")


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A value of the protocol: snake_case here, camelCase on the wire.

    A field without a default is always written. Unknown members are ignored on reading, so that a
    newer peer does not break an older one.
    """


def present(value: T | None) -> T | UnsetType:
    """The value for an optional member of a result: None leaves the member out."""
    return UNSET if value is None else value
