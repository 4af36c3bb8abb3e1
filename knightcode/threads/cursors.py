"""Cursors: places in a listing that clients hand back. To them they are opaque, and to us never trusted.

Source: App Server notes, "Cursors".
"""

import base64
from typing import TypeVar

import msgspec

from knightcode.threads.turn import ThreadError


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the places. The first member of each is `kind`, a literal of its own: no place is another's."""


C = TypeVar("C", bound=Cursor)


def encode_cursor(place: Cursor) -> str:
    """Base64url, without padding, of compact JSON."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).rstrip(b"=").decode()


def decode_cursor(cursor: str, kind: type[C]) -> C:
    """The place that a cursor names. Whether there is such a place is for the caller to see.

    Raises:
        ThreadError: `invalidCursor` for what is no cursor of this kind.
    """
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError):  # msgspec's errors and those of base64 are ValueErrors
        raise invalid_cursor() from None


def invalid_cursor() -> ThreadError:
    """The refusal of a cursor."""
    return ThreadError(
        "invalidCursor", "The cursor does not belong to this listing; read the first page again"
    )
