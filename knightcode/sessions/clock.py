"""Times and ids of session files: ISO 8601 text, entry ids, and ids of new sessions.

Source: Session files, "Header", "Entries", "File name".
"""

import secrets
import uuid
from collections.abc import Callable, Container
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DRAWS = 100  # a session would need millions of entries to use them up


def iso(ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC, with three decimals and `Z`."""
    return (_EPOCH + ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_iso(text: str) -> int | None:
    """Unix milliseconds of an ISO 8601 time, UTC where it names no zone; None for anything else."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - _EPOCH) // _MILLISECOND


def _draw() -> str:
    return secrets.token_hex(4)


def new_entry_id(taken: Container[str], draw: Callable[[], str] = _draw) -> str:
    """Eight hex digits that are not in `taken`; a whole UUID if a hundred draws are."""
    for _ in range(_DRAWS):
        drawn = draw()
        if drawn not in taken:
            return drawn
    return str(uuid.uuid4())


def new_session_id(now_ms: int) -> str:
    """A UUID of version 7: ids sort by the millisecond in which they were made."""
    time = now_ms & (1 << 48) - 1
    number = time << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=number))
