"""The closed list of error codes. Programs branch on the code; the message is for people.

Source: app server notes, "Error object".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

ErrorCode = Literal[
    "notInitialized",
    "methodNotFound",
    "invalidParams",
    "shuttingDown",
    "internal",
    "threadNotFound",
    "threadLockedElsewhere",
    "threadNotArchived",
    "archiveConflict",
    "turnInProgress",
    "turnMismatch",
    "invalidCursor",
    "configConflict",
    "toolMissing",
    "authRequired",
    "mcpUnavailable",
    "approvalRequired",
    "fileChanged",
    "notGitRepo",
    "gitConflict",
]

MEANINGS: Mapping[ErrorCode, str] = MappingProxyType(
    {
        "notInitialized": "The handshake is not complete; only initialize is served before it.",
        "methodNotFound": "No method of this name is served to clients.",
        "invalidParams": "A wrong shape or value, or a precondition that fails and has no code of its own.",
        "shuttingDown": "The server stops and does not take up or cannot finish this work.",
        "internal": "The server failed in a way that is not the client's doing.",
        "threadNotFound": "No session folder and no archive holds this thread.",
        "threadLockedElsewhere": "Another process owns the thread's session file.",
        "threadNotArchived": "Only archived threads can be deleted.",
        "archiveConflict": "The transcript cannot be moved or removed without risk to another file.",
        "turnInProgress": "The thread, or the checkout it works in, has running or admitted work.",
        "turnMismatch": "The turn named is not the one that is running.",
        "invalidCursor": "The cursor is malformed, expired, or belongs to another listing or branch.",
        "configConflict": "The settings file changed since it was read.",
        "toolMissing": "A program that the method needs is not installed.",
        "authRequired": "No usable model, or no credentials for what was asked.",
        "mcpUnavailable": "The MCP server is not connected.",
        "approvalRequired": "The call needs the user's consent; ask, then send it again as confirmed.",
        "fileChanged": "The file was modified since it was read.",
        "notGitRepo": "The directory is not inside a git repository.",
        "gitConflict": "The repository's state does not allow the action; data.reason says why.",
    }
)

ERROR_CODES: frozenset[str] = frozenset(MEANINGS)

COMMON_ERRORS: frozenset[ErrorCode] = frozenset(
    {"notInitialized", "invalidParams", "shuttingDown", "internal"}
)
"""Codes that every method may answer with; the method table lists only further ones."""
