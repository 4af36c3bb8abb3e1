"""Making a thread, loading one, and describing one that stays on disk.

Source: App Server notes, "thread/start, fork, compact, settings", "Ownership, loading, unloading".
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import attrs
import trio

from knightcode.gates.approvals import ApprovalMode
from knightcode.messages import ThinkingLevel
from knightcode.sessions.entries import (
    CustomEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
)
from knightcode.sessions.errors import SessionFileError
from knightcode.sessions.facts import clean_name
from knightcode.sessions.listing import parent_id
from knightcode.sessions.log import SessionLog
from knightcode.sessions.read import StoredSession
from knightcode.threads.admission import Lane
from knightcode.threads.notices import ConnectionId, Status, ThreadInfo, ThreadWarning
from knightcode.threads.services import Services
from knightcode.threads.settings import (
    APPROVAL_MODE,
    DEFAULT_LEVEL,
    default_mode,
    pick_model,
    saved_model,
    stored_mode,
)
from knightcode.threads.thread import Thread
from knightcode.threads.turn import ThreadError
from knightcode.threads.usage import UsageTotals

T = TypeVar("T")

NAME_LIMIT = 200
"""Code points of a thread's name; App Server notes, "Method table"."""

SESSION_FILES = trio.CapacityLimiter(8)
"""Worker threads that read session files; their own, so that nothing else can starve them."""


@attrs.frozen
class Caller:
    """The connection that asks, as far as a thread must know it."""

    connection: ConnectionId
    mode: Literal["desktop", "terminal"]
    in_process: bool


@attrs.frozen
class NewThread:
    """What a client wants of a new thread; None leaves the choice to settings."""

    cwd: str
    approval_mode: ApprovalMode | None = None
    model: tuple[str, str] | None = None
    thinking_level: ThinkingLevel | None = None
    name: str | None = None


def new_thread(services: Services, wanted: NewThread, caller: Caller) -> Thread:
    """Make a thread that nobody has heard of. It has no file and runs nothing yet.

    Raises:
        ThreadError: `invalidParams` for the directory, the name or the model, `authRequired`.
    """
    cwd = _checked_cwd(wanted.cwd)
    name = None if wanted.name is None else _checked_name(wanted.name)
    model = (
        services.catalogue.default_model()
        if wanted.model is None
        else pick_model(services.catalogue, *wanted.model)
    )
    level = wanted.thinking_level or services.default_thinking_level or DEFAULT_LEVEL
    if model is not None:
        level = model.clamp(level)
    mode = wanted.approval_mode or default_mode(caller.mode, in_process=caller.in_process)
    session = SessionLog.create(cwd=cwd, folder=services.places.folder(cwd), now_ms=services.now_ms)
    # What a thread begins with is as old as the thread itself.
    born = session.created_at
    if model is not None:
        session.append_entry(ModelChangeEntry(provider=model.provider, model_id=model.id, timestamp=born))
    session.append_entry(ThinkingLevelChangeEntry(thinking_level=level, timestamp=born))
    session.append_entry(CustomEntry(custom_type=APPROVAL_MODE, data={"mode": mode}, timestamp=born))
    if name is not None:
        session.append_entry(SessionInfoEntry(name=name, timestamp=born))
    return Thread(
        session=session,
        services=services,
        lane=Lane(),
        connection_mode=caller.mode,
        model=model,
        thinking_level=level,
        approval_mode=mode,
        mode_is_stored=True,
        warnings=tuple(ThreadWarning(text, "settings") for text in services.warnings),
    )


async def open_thread(services: Services, path: Path, lane: Lane, caller: Caller) -> Thread:
    """Load a saved thread. It runs nothing yet.

    Raises:
        ThreadError: `internal` for a file that cannot be used, `invalidParams` when its directory is gone.
    """
    try:
        session, forked_from, usage = await in_worker(lambda: _open_session(services, path))
    except (SessionFileError, OSError) as error:
        raise ThreadError("internal", f"The session file {path} cannot be loaded: {error}") from None
    # Nothing waits from here on, so nothing can lose the open session.
    if not os.path.isdir(session.cwd):
        session.close()
        raise ThreadError(
            "invalidParams",
            f"The thread's directory {session.cwd} is gone; restore it, or read the history",
            {"reason": "cwdMissing"},
        )
    context = session.context()
    chosen = saved_model(services.catalogue, context.model)
    warnings = (
        *(ThreadWarning(text, "settings") for text in services.warnings),
        *chosen.warnings,
        *(ThreadWarning(text, "server", str(path)) for text in session.warnings),
    )
    level = context.thinking_level if chosen.model is None else chosen.model.clamp(context.thinking_level)
    stored = stored_mode(session.last_custom(APPROVAL_MODE))
    mode = stored or default_mode(caller.mode, in_process=caller.in_process)
    return Thread(
        session=session,
        services=services,
        lane=lane,
        connection_mode=caller.mode,
        model=chosen.model,
        thinking_level=level,
        approval_mode=mode,
        mode_is_stored=stored is not None,
        warnings=warnings,
        forked_from_id=forked_from,
        usage_totals=usage,
    )


def _open_session(services: Services, path: Path) -> tuple[SessionLog, str | None, UsageTotals]:
    """The session, the id of the one it was made from, and what it has cost. Blocking."""
    session = SessionLog.open(path, now_ms=services.now_ms)
    try:
        session.context()  # what is long in a long session is made here; from now on it grows
        return session, parent_id(session.header.parent_session), UsageTotals.of(session.entries)
    except BaseException:
        session.close()
        raise


def saved_info(
    services: Services, stored: StoredSession, status: Status, forked_from_id: str | None
) -> ThreadInfo:
    """A thread that is not loaded, as its file tells."""
    context = stored.context()
    chosen = saved_model(services.catalogue, context.model)
    return ThreadInfo(
        id=stored.header.id,
        cwd=stored.cwd,
        name=stored.title,
        status=status,
        created_at=stored.header.timestamp,
        updated_at=stored.entries[-1].timestamp if stored.entries else stored.header.timestamp,
        approval_mode=stored_mode(stored.last_custom(APPROVAL_MODE)) or "ask",
        thinking_level=context.thinking_level
        if chosen.model is None
        else chosen.model.clamp(context.thinking_level),
        model=chosen.model,
        forked_from_id=forked_from_id,
    )


async def in_worker(function: Callable[[], T]) -> T:
    """Run a blocking read of session files in a worker thread. Cancelling waits for it."""
    return await trio.to_thread.run_sync(function, limiter=SESSION_FILES)


def _checked_cwd(cwd: str) -> str:
    """An existing directory, absolute.

    Raises:
        ThreadError: `invalidParams`.
    """
    path = os.path.expanduser(cwd)
    if not os.path.isabs(path):
        raise ThreadError(
            "invalidParams", f"cwd {cwd!r} is relative; send an absolute path, or one that begins with ~"
        )
    if "\0" in path or not os.path.isdir(path):
        raise ThreadError(
            "invalidParams", f"cwd {cwd!r} is not an existing directory", {"reason": "cwdMissing"}
        )
    return os.path.normpath(path)


def _checked_name(name: str) -> str:
    """A thread's name, on one line and trimmed.

    Raises:
        ThreadError: `invalidParams` when nothing is left of it, or too much.
    """
    cleaned = clean_name(name)
    if cleaned is None or len(cleaned) > NAME_LIMIT:
        raise ThreadError(
            "invalidParams",
            f"A thread's name has 1 to {NAME_LIMIT} characters; this one has {len(cleaned or '')}",
        )
    return cleaned
