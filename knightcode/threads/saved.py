"""Threads as their files tell of them: found, read and listed, without loading any.

Source: App Server, "History, listings, and large values".
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs

from knightcode.sessions.clock import iso
from knightcode.sessions.errors import SessionFileError
from knightcode.sessions.listing import SessionSummary, find_session, list_sessions, parent_id
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import StoredSession, read_session
from knightcode.threads.listing import ThreadRow
from knightcode.threads.notices import Status, ThreadInfo
from knightcode.threads.opening import in_worker, saved_info
from knightcode.threads.services import Services
from knightcode.threads.thread import Thread
from knightcode.threads.turn import ThreadError

StatusOf = Callable[[str], Status]


@attrs.frozen
class SavedThread:
    """A thread as read from its file or, when it is loaded, from memory."""

    info: ThreadInfo
    stored: StoredSession | SessionLog


async def find(services: Services, thread_id: str) -> Path:
    """The session file of a thread.

    Raises:
        ThreadError: `threadNotFound`.
    """
    path = await in_worker(lambda: find_session(services.places.all_folders(), thread_id))
    if path is None:
        raise ThreadError("threadNotFound", f"There is no thread {thread_id}; thread/list has the known ones")
    return path


async def read_saved(services: Services, path: Path, status_of: StatusOf) -> SavedThread:
    """A thread as its file tells.

    Raises:
        ThreadError: `internal` for a file that cannot be read.
    """
    try:
        stored = await in_worker(lambda: read_session(path).prepare())
        forked_from = await in_worker(lambda: parent_id(stored.header.parent_session))
    except (SessionFileError, OSError) as error:
        raise ThreadError("internal", f"The session file {path} cannot be read: {error}") from None
    return SavedThread(saved_info(services, stored, status_of(stored.header.id), forked_from), stored)


async def scan(
    services: Services, cwd: str | None, loaded: Callable[[], Iterable[Thread]], status_of: StatusOf
) -> list[ThreadRow]:
    """All threads of a directory, or of all: those in files, and those in memory that have none yet."""
    places = services.places
    found = await in_worker(
        lambda: list_sessions(places.all_folders() if cwd is None else [places.folder(cwd)])
    )
    rows = [_row(one, status_of(one.id)) for one in found if one.damaged or one.user_messages]
    known = {row.id for row in rows}
    for thread in loaded():  # as they are now, after the wait
        counts = thread.session.message_counts
        if thread.id not in known and counts.by_user:
            rows.append(_unsaved_row(thread, counts.stored))
    return [row for row in rows if cwd is None or row.damaged or os.path.abspath(row.cwd) == cwd]


def _row(summary: SessionSummary, status: Status) -> ThreadRow:
    return ThreadRow(
        id=summary.id,
        cwd=summary.cwd,
        name=summary.title,
        status=status,
        created_at=summary.created_at,
        updated_at=iso(summary.modified_ms),
        message_count=summary.message_count,
        forked_from_id=summary.forked_from_id,
        damaged=summary.damaged,
    )


def _unsaved_row(thread: Thread, messages: int) -> ThreadRow:
    info = thread.info()
    return ThreadRow(
        id=info.id,
        cwd=info.cwd,
        name=info.name,
        status=info.status,
        created_at=info.created_at,
        updated_at=info.updated_at,
        message_count=messages,
        forked_from_id=info.forked_from_id,
    )
