"""What can go wrong with a session file. Every message names the file and is meant for a person."""

from pathlib import Path


class SessionFileError(Exception):
    """Base of all errors about one session file. `path` is None for a session in memory."""

    def __init__(self, path: Path | None, message: str) -> None:
        super().__init__(f"{message}: {path or 'a session in memory'}")
        self.path = path


class SessionNotFoundError(SessionFileError):
    """There is no such file."""


class NotASessionError(SessionFileError):
    """The file is there and has no session header; it has not been touched."""


class SessionReadError(SessionFileError):
    """The system refuses to open or read the file."""


class SessionExistsError(SessionFileError):
    """A new session's file cannot be made because its name is taken."""


class SessionWriteError(SessionFileError):
    """The system refuses to write. The entry stays in memory and goes with the next write.

    Only the start of a turn is dropped.
    """


class SessionClosedError(SessionFileError):
    """The log has been closed; nothing was appended."""


class EntryNotFoundError(LookupError):
    """No entry of the session has the id."""

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"Entry {entry_id} not found")
        self.entry_id = entry_id
