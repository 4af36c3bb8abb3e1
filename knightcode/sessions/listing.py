"""Lists of stored sessions and the search for one. Blocking: callers use a worker thread.

Source: Session files, "Session listing"; App server, "History, listings, and large values",
"server/diagnostics".
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs

from knightcode.config.paths import SESSION_SUFFIX
from knightcode.sessions.clock import iso
from knightcode.sessions.errors import SessionFileError, SessionNotFoundError
from knightcode.sessions.facts import count_messages, effective_cwd, last_name, last_workspace, title_of
from knightcode.sessions.read import StoredSession, parse_session, read_bytes, read_header


@attrs.frozen
class ListingCost:
    """What the lists of this process have read so far, all together; it only grows.

    Attributes:
        files_opened: one for each transcript, and one for each look into a parent's header.
        bytes_scanned: the sizes of the transcripts; headers of parents add nothing.
    """

    files_opened: int = 0
    bytes_scanned: int = 0


@attrs.define(eq=False)
class _Meter:
    """Several worker threads may count at the same time."""

    _total: ListingCost = attrs.field(factory=ListingCost, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    def add(self, *, size: int = 0) -> None:
        """One more file was opened, of which so many bytes count."""
        with self._lock:
            total = self._total
            self._total = ListingCost(total.files_opened + 1, total.bytes_scanned + size)

    def total(self) -> ListingCost:
        """Both numbers as of one moment."""
        return self._total


_METER = _Meter()  # for the process, like the memory that is reported beside it


def listing_cost() -> ListingCost:
    """What lists have cost since the process began. Reading a session to use it is no list."""
    return _METER.total()


@attrs.frozen
class SessionSummary:
    """One line of a list.

    Attributes:
        id: the session's id; of a damaged file its name without the suffix.
        cwd: the effective working directory; `""` when the file does not tell.
        name: as given by someone, None if nobody did; of a damaged file the file's name.
        title: the name, else the first line of what the user said first, at most 80 code points.
        parent: path of the file that this session was made from.
        forked_from_id: the id in that file's header; None when it is gone or unreadable.
        created_at: ISO 8601; of a damaged file, and where the header tells no time, that of the last change.
        modified_ms: the file's modification time.
        message_count: all stored messages but system messages, on whatever branch.
        user_messages: those that a user wrote.
        worktree: the session works in a managed worktree.
        project_cwd: of a worktree session, the directory of the user's own checkout.
        damaged: the file has no header that can be read, or cannot be read at all.
    """

    path: Path
    id: str
    cwd: str
    name: str | None
    title: str
    parent: str | None
    forked_from_id: str | None
    created_at: str
    modified_ms: int
    message_count: int
    user_messages: int
    worktree: bool = False
    project_cwd: str | None = None
    damaged: bool = False


def list_sessions(folders: Iterable[Path]) -> list[SessionSummary]:
    """All sessions that lie directly in the folders, last changed first, then by id.

    No file can make it fail: one without a header comes back as damaged, one that vanishes
    meanwhile is left out, and so is a folder that does not exist.
    """
    parents: dict[str, str | None] = {}
    found = [
        summary
        for folder in folders
        for path, modified_ms in _with_times(_listed(folder))
        if (summary := _summarise(path, modified_ms, parents)) is not None
    ]
    found.sort(key=lambda summary: (-summary.modified_ms, summary.id))
    return found


def find_session(folders: Iterable[Path], session_id: str) -> Path | None:
    """The file whose header has exactly this id; None without one.

    Files whose names end in the id are looked at first, and only if none of them is the one, all
    others. Of several in either group it is the one changed last.
    """
    files = [file for folder in folders for file in _listed(folder)]
    ending = f"_{session_id}{SESSION_SUFFIX}"
    named = [file for file in files if file.name.endswith(ending)]
    return _newest_with_id(named, session_id) or _newest_with_id(files, session_id)


def _newest_with_id(files: Iterable[os.DirEntry[str]], session_id: str) -> Path | None:
    newest: tuple[int, Path] | None = None
    for path, modified_ms in _with_times(files):
        if (newest is None or modified_ms > newest[0]) and _header_id(path) == session_id:
            newest = (modified_ms, path)
    return None if newest is None else newest[1]


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """What is named like a session file; nothing of a folder that cannot be read."""
    try:
        with os.scandir(folder) as listed:
            return [file for file in listed if file.name.endswith(SESSION_SUFFIX)]
    except OSError:
        return []


def _with_times(files: Iterable[os.DirEntry[str]]) -> Iterator[tuple[Path, int]]:
    """Paths and modification times in milliseconds of those that are files."""
    for file in files:
        try:
            if file.is_file():
                yield Path(file.path), file.stat().st_mtime_ns // 1_000_000
        except OSError:
            continue


def _summarise(path: Path, modified_ms: int, parents: dict[str, str | None]) -> SessionSummary | None:
    try:
        session = _scan(path)
    except SessionNotFoundError:
        return None
    except SessionFileError:
        session = None
    if session is None:
        return _damaged(path, modified_ms)
    workspace = last_workspace(session.entries) or {}
    project_cwd = workspace.get("projectCwd")
    name = last_name(session.entries)
    messages, users = count_messages(session.entries)
    parent = session.header.parent_session
    return SessionSummary(
        path=path,
        id=session.header.id,
        cwd=effective_cwd(session.header, workspace),
        name=name,
        title=title_of(session.entries, name),
        parent=parent,
        forked_from_id=None if parent is None else _parent_id(parent, parents),
        created_at=session.header.timestamp or iso(modified_ms),
        modified_ms=modified_ms,
        message_count=messages,
        user_messages=users,
        worktree=workspace.get("mode") == "worktree",
        project_cwd=project_cwd if isinstance(project_cwd, str) else None,
    )


def _scan(path: Path) -> StoredSession | None:
    """A transcript; None when it is not one.

    Raises:
        SessionFileError: the file is missing, unreadable, or not a regular file.
    """
    data = read_bytes(path)
    _METER.add(size=len(data))
    return parse_session(data)


def _damaged(path: Path, modified_ms: int) -> SessionSummary:
    return SessionSummary(
        path=path,
        id=path.stem,
        cwd="",
        name=path.name,
        title=path.name,
        parent=None,
        forked_from_id=None,
        created_at=iso(modified_ms),
        modified_ms=modified_ms,
        message_count=0,
        user_messages=0,
        damaged=True,
    )


def _parent_id(parent: str, known: dict[str, str | None]) -> str | None:
    if parent not in known:
        known[parent] = parent_id(parent, opened=_METER.add)
    return known[parent]


def parent_id(parent: str | None, *, opened: Callable[[], None] | None = None) -> str | None:
    """The id in the header of the file that a session was made from; None when it is gone or unreadable.

    Args:
        opened: called when the file could be read, whatever is in it.
    """
    return _header_id(Path(parent), opened) if parent is not None and os.path.isabs(parent) else None


def _header_id(path: Path, opened: Callable[[], None] | None = None) -> str | None:
    try:
        header = read_header(path)
    except SessionFileError:
        return None
    if opened is not None:
        opened()
    return None if header is None else header.id
