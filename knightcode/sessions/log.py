"""A session in use: entries are appended here and nowhere else, and each reaches the file at once.

The file of a new session is made late, with the first reply or the first end of a turn, so that
sessions in which nothing happened leave no file.

Source: Session files, "Writing", "Entries"; App server, "A turn's life".
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs
from msgspec.structs import replace

from knightcode.config.paths import is_session_id, session_file_name
from knightcode.messages import AssistantMessage, StoredMessage, ThinkingLevel
from knightcode.sessions.clock import iso, new_entry_id, new_session_id
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import (
    CURRENT_VERSION,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    Entry,
    KnownEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    TurnEndEntry,
    TurnError,
    TurnStartEntry,
    TurnStatus,
    encode_entry,
    encode_header,
)
from knightcode.sessions.errors import (
    EntryNotFoundError,
    NotASessionError,
    SessionClosedError,
    SessionExistsError,
    SessionFileError,
    SessionWriteError,
)
from knightcode.sessions.facts import MessageCounts, clean_name
from knightcode.sessions.file import LineFile, WriteCall, replace_file
from knightcode.sessions.migrate import migrate
from knightcode.sessions.read import parse_session, read_bytes
from knightcode.sessions.state import SessionState

_E = TypeVar("_E", bound=KnownEntry)


@attrs.define(eq=False)
class SessionLog:
    """One session, open for appending. Made by `create` or `open`, ended by `close`.

    The owner is one task; nothing here waits for anything but the local file. An append that
    cannot be written raises SessionWriteError, yet the entry is in memory; it is written together
    with the next one, so a disk that was full for a while leaves no gap in the tree. Only what
    must not have happened when it could not be stored is taken back: see `append_turn_start`.

    Attributes:
        warnings: what was odd about the file when it was opened, a sentence each.
    """

    _state: SessionState = attrs.field(alias="state")
    _now_ms: Callable[[], int] = attrs.field(alias="now_ms")
    _file: LineFile | None = attrs.field(alias="file", default=None)
    warnings: tuple[str, ...] = ()
    _unsaved: list[bytes] = attrs.field(factory=list, init=False)
    _exists: bool = attrs.field(default=False, init=False)  # there is a file
    _due: bool = attrs.field(default=False, init=False)  # there has to be one: entries are written at once
    _closed: bool = attrs.field(default=False, init=False)

    @classmethod
    def create(
        cls,
        *,
        cwd: str,
        folder: Path | None,
        now_ms: Callable[[], int],
        session_id: str | None = None,
        parent_session: str | None = None,
        path: Path | None = None,
        write: WriteCall = os.write,
    ) -> Self:
        """Begin a session. No file is made yet.

        Args:
            cwd: absolute.
            folder: where the file is going to be, made if missing; None keeps the session in memory.
            now_ms: Unix milliseconds.
            session_id: the caller's choice instead of a fresh UUID.
            parent_session: path of the file that this session comes from.
            path: the file itself, instead of a new name in `folder`.
            write: stands for `os.write`.
        Raises:
            ValueError: the session id cannot be part of a file name.
        """
        if session_id is not None and not is_session_id(session_id):
            raise ValueError(
                f"{session_id!r} cannot be a session id: use letters, digits, '.', '_' and '-', "
                "with a letter or digit at both ends"
            )
        header = _new_header(now_ms(), cwd, session_id, parent_session)
        if path is None and folder is not None:
            path = folder / session_file_name(header.timestamp, header.id)
        file = None if path is None else LineFile(path, write)
        log = cls(SessionState(header), now_ms, file)
        if file is not None:
            log._unsaved.append(encode_header(header) + b"\n")
        return log

    @classmethod
    def open(
        cls, path: Path, *, now_ms: Callable[[], int], cwd: str | None = None, write: WriteCall = os.write
    ) -> Self:
        """Load a session for use. An older file is rewritten, a last line without its end gets one.

        Args:
            cwd: of an empty file, which becomes a new session; the process's own if None.

        Raises:
            SessionFileError: the file is missing, cannot be read or written, or is no session; in
                the last case nothing in it has changed.
        """
        data = read_bytes(path)
        file = LineFile(path, write)
        if not data:
            log = cls(SessionState(_new_header(now_ms(), cwd or os.getcwd())), now_ms, file)
            log._open_file(encode_header(log.header) + b"\n")
            return log
        session = parse_session(data)
        if session is None:
            raise NotASessionError(path, "The file is not empty and has no session header")
        whole = session.whole_lines
        if session.version < CURRENT_VERSION:
            try:
                replace_file(path, migrate(data))
            except OSError as error:
                raise _write_error(path, error) from error
            whole = True
        state = SessionState(session.header)
        state.load(session.entries)
        log = cls(state, now_ms, file, session.warnings)
        log._open_file(b"" if whole else b"\n")
        return log

    # --- what the session is ----------------------------------------------------------------------

    @property
    def header(self) -> SessionHeader:
        """The first line."""
        return self._state.header

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def created_at(self) -> str:
        """ISO 8601; `""` in a file that does not tell."""
        return self.header.timestamp

    @property
    def updated_at_ms(self) -> int:
        """The time of the latest entry, else of the header."""
        return self._state.updated_at_ms

    @property
    def cwd(self) -> str:
        """The effective working directory: that of the last workspace entry, else the header's."""
        return self._state.cwd

    @property
    def name(self) -> str | None:
        """The name given last, on whatever branch."""
        return self._state.name

    @property
    def title(self) -> str:
        """What a list shows: the name, else the beginning of what the user said first; see `title_of`."""
        return self._state.title

    @property
    def message_counts(self) -> MessageCounts:
        """How many messages there are, on whatever branch."""
        return self._state.message_counts

    @property
    def path(self) -> Path | None:
        """The file; None while it does not exist, and for a session in memory."""
        return self._file.path if self._file is not None and self._exists else None

    @property
    def planned_path(self) -> Path | None:
        """Where the file is or is going to be; None only for a session in memory."""
        return None if self._file is None else self._file.path

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in file order; a copy, which takes its time in a long session."""
        return self._state.entries

    @property
    def entry_count(self) -> int:
        """How many entries there are, on whatever branch."""
        return self._state.entry_count

    def newest_first(self) -> Iterator[Entry]:
        """All entries, from the last one on. To be used up before the next append."""
        return self._state.newest_first()

    @property
    def index(self) -> Mapping[str, Entry]:
        """Entries under their ids."""
        return self._state.index

    @property
    def leaf_id(self) -> str | None:
        """The entry that the next one continues from."""
        return self._state.leaf_id

    def branch(self) -> list[Entry]:
        """The entries from the root to the leaf; a copy, the caller's to keep."""
        return list(self._state.branch.entries)

    @property
    def current_branch(self) -> Sequence[Entry]:
        """The entries from the root to the leaf as they are now: no copy, so the next append changes it."""
        return self._state.branch.entries

    def context(self) -> SessionContext:
        """What a model is told at the leaf.

        The same value until something is appended. It grows with the branch; only a compaction, an
        edit or a moved leaf makes the next call go through the whole branch.
        """
        return self._state.branch.context()

    def last_custom(self, custom_type: str) -> CustomEntry | None:
        """The latest data that a program left on the branch."""
        return self._state.branch.last_custom(custom_type)

    def move_leaf(self, entry_id: str | None) -> None:
        """Continue from another entry; None starts a new root. A move without an append is not kept.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        self._state.move_leaf(entry_id)

    # --- appending: all raise SessionWriteError or SessionClosedError -------------------------------

    def append_entry(self, draft: _E, *, keep_unwritten: bool = True) -> _E:
        """Append an entry of any type as the child of the leaf, which moves to it.

        Args:
            draft: the entry's own members; id and parent are given here, and the time if it has
                none. A compaction that names nothing to keep gets its own id in that place.
            keep_unwritten: what becomes of an entry that cannot be written: it goes with the next
                write, or, if False, it was never appended.

        Returns:
            The entry as it was stored.

        Raises:
            EntryNotFoundError: a label or a context edit is for an entry that does not exist.
            TypeError: the draft holds a value that JSON has no form for; nothing was appended.
        """
        if self._closed:
            raise SessionClosedError(self.planned_path, "The session has been closed")
        if isinstance(draft, LabelEntry | ContextEditEntry) and draft.target_id not in self._state.index:
            raise EntryNotFoundError(draft.target_id)
        entry = replace(
            draft,
            id=new_entry_id(self._state.index),
            parent_id=self.leaf_id,
            timestamp=draft.timestamp or iso(self._now_ms()),
        )
        if isinstance(entry, CompactionEntry) and entry.first_kept_entry_id is None:
            entry = replace(entry, first_kept_entry_id=entry.id)
        line = encode_entry(entry) + b"\n"
        if keep_unwritten:
            self._state.add(entry)
            self._write(entry, line)
        else:
            due, unsaved = self._due, len(self._unsaved)
            try:
                self._write(entry, line)
            except BaseException:
                del self._unsaved[unsaved:]
                self._due = due
                raise
            self._state.add(entry)
        return entry

    def append_message(self, message: StoredMessage, timestamp_ms: int | None = None) -> MessageEntry:
        """Append a message that is complete. The entry's time is now unless given.

        Raises:
            ValueError: the message is still pending.
        """
        if isinstance(message, AssistantMessage) and message.stop_reason == "pending":
            raise ValueError("a reply that is still pending is never stored")
        timestamp = "" if timestamp_ms is None else iso(timestamp_ms)
        return self.append_entry(MessageEntry(message=message, timestamp=timestamp))

    def append_model_change(self, provider: str, model_id: str) -> ModelChangeEntry:
        """Append the choice of a model."""
        return self.append_entry(ModelChangeEntry(provider=provider, model_id=model_id))

    def append_thinking_level_change(self, level: ThinkingLevel) -> ThinkingLevelChangeEntry:
        """Append a thinking level that really is another one; it is for the caller to compare."""
        return self.append_entry(ThinkingLevelChangeEntry(thinking_level=level))

    def append_custom(self, custom_type: str, data: Any) -> CustomEntry:
        """Append data that the model does not see; `data` is JSON."""
        return self.append_entry(CustomEntry(custom_type=custom_type, data=data))

    def append_session_info(self, name: str) -> SessionInfoEntry:
        """Append the session's name: line breaks become spaces, an empty name clears it."""
        return self.append_entry(SessionInfoEntry(name=clean_name(name)))

    def append_turn_start(self) -> TurnStartEntry:
        """Append the start of a turn; the entry's id is the turn's id.

        All or nothing: a start that could not be written was never appended, and is not written later.
        """
        return self.append_entry(TurnStartEntry(), keep_unwritten=False)

    def append_turn_end(
        self, turn_id: str, status: TurnStatus, error: TurnError | None = None
    ) -> TurnEndEntry:
        """Append the end of a turn. The first one of a new session makes its file."""
        return self.append_entry(TurnEndEntry(turn_id=turn_id, status=status, error=error))

    def flush(self) -> None:
        """Write what could not be written before; nothing to do in the ordinary case.

        Raises:
            SessionWriteError: it still cannot.
        """
        if self._file is None or self._closed or not self._due or not self._unsaved:
            return
        lines = b"".join(self._unsaved)
        try:
            if self._exists:
                self._file.append(lines)
            else:
                self._file.create(lines)
        except OSError as error:
            if isinstance(error, FileExistsError) and not self._exists and self._file.path.exists():
                raise SessionExistsError(self._file.path, "A file of this name is already there") from error
            raise _write_error(self._file.path, error) from error
        self._exists = True
        self._unsaved.clear()

    def close(self) -> None:
        """Let go of the file; again is once. What could not be written before is tried a last time."""
        with suppress(SessionFileError):
            self.flush()
        self._closed = True
        self._unsaved.clear()
        if self._file is not None:
            self._file.close()

    def _write(self, entry: KnownEntry, line: bytes) -> None:
        if self._file is not None:
            self._unsaved.append(line)
            self._due = self._due or _makes_a_file(entry)
            self.flush()

    def _open_file(self, lines: bytes) -> None:
        """Continue a file that exists, beginning with `lines`."""
        assert self._file is not None
        try:
            self._file.open()
            if lines:
                self._file.append(lines)
        except OSError as error:
            self._file.close()
            raise _write_error(self._file.path, error) from error
        self._exists = self._due = True


def _makes_a_file(entry: KnownEntry) -> bool:
    return isinstance(entry, TurnEndEntry) or (
        isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage)
    )


def _new_header(
    now_ms: int, cwd: str, session_id: str | None = None, parent_session: str | None = None
) -> SessionHeader:
    return SessionHeader(
        version=CURRENT_VERSION,
        id=session_id or new_session_id(now_ms),
        timestamp=iso(now_ms),
        cwd=cwd,
        parent_session=parent_session,
    )


def _write_error(path: Path, error: OSError) -> SessionWriteError:
    return SessionWriteError(path, f"The session file cannot be written ({error.strerror})")
