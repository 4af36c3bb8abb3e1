"""Reading session files without owning them: nothing here writes, locks or repairs.

Source: Session files, "Loading and damaged files", "Session listing".
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import attrs

from knightcode.regular_file import NotRegularError, open_regular
from knightcode.sessions.branch import Branch
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import (
    CURRENT_VERSION,
    CustomEntry,
    Entry,
    SessionHeader,
    decode_entry,
    header_of,
)
from knightcode.sessions.errors import NotASessionError, SessionNotFoundError, SessionReadError
from knightcode.sessions.facts import effective_cwd, last_name, last_workspace, title_of
from knightcode.sessions.lenient import parse_line
from knightcode.sessions.migrate import migrate
from knightcode.sessions.tree import branch, by_id

HEADER_LIMIT_BYTES = 1 << 20  # a look-up gives up here; opening reads on
_FIRST_READ_BYTES = 4096  # holds nearly every header


@attrs.frozen(eq=False)
class StoredSession:
    """What a session file holds.

    What goes through all of a long file is worked out when it is first asked for, and kept: whoever
    reads the file in a worker thread asks there, see `prepare`.

    Attributes:
        header: in the form of the present version.
        version: the version on disk.
        entries: in file order.
        damaged_lines: lines that hold something, but no whole entry. They are skipped.
        whole_lines: the last line has its LF, so that a further one can be appended.
    """

    header: SessionHeader
    version: int
    entries: tuple[Entry, ...]
    damaged_lines: int
    whole_lines: bool

    @property
    def leaf_id(self) -> str | None:
        """Where the conversation stands: the last entry in the file."""
        return self.entries[-1].id if self.entries else None

    @cached_property
    def cwd(self) -> str:
        """The effective working directory."""
        return effective_cwd(self.header, last_workspace(self.entries))

    @cached_property
    def name(self) -> str | None:
        """The session's name."""
        return last_name(self.entries)

    @cached_property
    def title(self) -> str:
        """What a list shows of the session; see `title_of`."""
        return title_of(self.entries, self.name)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of the file, a sentence each."""
        found = []
        if self.damaged_lines:
            found.append(f"{self.damaged_lines} damaged line(s) of the session file were skipped")
        if self.version > CURRENT_VERSION:
            found.append(
                f"The session file has version {self.version}, newer than {CURRENT_VERSION}: "
                "parts of it may be missing here"
            )
        return tuple(found)

    def branch(self) -> list[Entry]:
        """The entries that lead to the leaf, root first; the caller's to keep."""
        return list(self.current_branch)

    @property
    def current_branch(self) -> Sequence[Entry]:
        """The entries that lead to the leaf, root first, without a copy."""
        return self._branch.entries

    def context(self) -> SessionContext:
        """What a model is told at the leaf."""
        return self._branch.context()

    def last_custom(self, custom_type: str) -> CustomEntry | None:
        """The latest data that a program left on the branch."""
        return self._branch.last_custom(custom_type)

    def prepare(self) -> Self:
        """The session, with everything worked out that takes its time in a long file."""
        self.context()
        _ = self.cwd, self.title
        return self

    @cached_property
    def _branch(self) -> Branch:
        return Branch(branch(by_id(self.entries), self.leaf_id))


def read_session(path: Path) -> StoredSession:
    """All that a file holds, whatever damage is between its lines.

    Raises:
        SessionFileError: the file is missing, unreadable, or no session.
    """
    session = parse_session(read_bytes(path))
    if session is None:
        raise NotASessionError(path, "The file has no session header")
    return session


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """The content of a regular file, or at most `limit` bytes of it.

    Raises:
        SessionFileError: the file is missing, unreadable, or not a regular file.
    """
    try:
        with open(open_regular(path), "rb", buffering=0) as file:
            return file.read(limit) if limit >= 0 else file.readall()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SessionNotFoundError(path, "There is no such session file") from error
    except (IsADirectoryError, NotRegularError) as error:
        raise SessionReadError(path, "The session file is not a regular file") from error
    except OSError as error:
        raise SessionReadError(path, f"The session file cannot be read ({error.strerror})") from error


def parse_session(data: bytes) -> StoredSession | None:
    """The session in a file's bytes; None when the first object in them is no header. Pure."""
    lines = data.split(b"\n")
    found = _find_header(lines)
    if found is None:
        return None
    header, at = found
    version = header.version
    if version < CURRENT_VERSION:
        lines = migrate(data).split(b"\n")
        found = _find_header(lines)
        assert found is not None  # a migration keeps the header
        header, at = found
    entries: list[Entry] = []
    damaged = sum(1 for line in lines[:at] if line.strip())
    for line in lines[at + 1 :]:
        if not line:
            continue
        entry = decode_entry(line)
        if entry is not None:
            entries.append(entry)
        elif line.strip():
            damaged += 1
    return StoredSession(header, version, tuple(entries), damaged, whole_lines=data.endswith(b"\n"))


def read_header(path: Path) -> SessionHeader | None:
    """The header of a file, from its first MiB at most; None when there is none.

    Raises:
        SessionFileError: the file is missing, unreadable, or not a regular file.
    """
    for limit in (_FIRST_READ_BYTES, HEADER_LIMIT_BYTES):
        data = read_bytes(path, limit)
        whole = len(data) < limit
        lines = data.split(b"\n")
        found = _find_header(lines if whole else lines[:-1])
        if found is not None:
            return found[0]
        if whole:
            break
    return None


def _find_header(lines: list[bytes]) -> tuple[SessionHeader, int] | None:
    """The header and its line; None unless the first object in the lines is one."""
    for index, line in enumerate(lines):
        record = parse_line(line) if line else None
        if record is not None:
            header = header_of(record)
            return None if header is None else (header, index)
    return None
