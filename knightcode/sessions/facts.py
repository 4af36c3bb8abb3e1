"""What a session's entries say about the session itself: its place, its name, its title. Pure.

Source: Session files, "`session_info`, `usage`", "Session listing"; App server, "Workspaces".
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from knightcode.messages import SystemMessage, UserMessage, text_of
from knightcode.sessions.entries import (
    CustomEntry,
    Entry,
    MessageEntry,
    SessionHeader,
    SessionInfoEntry,
    UnknownEntry,
)

WORKSPACE = "knightcode.workspace"

_TITLE_LIMIT = 80
_LINE_BREAKS = re.compile(r"[\r\n]+")


def workspace_of(entry: Entry) -> dict[str, Any] | None:
    """The data of an entry that says where the session lives; None for every other entry."""
    if isinstance(entry, CustomEntry) and entry.custom_type == WORKSPACE and isinstance(entry.data, dict):
        return entry.data
    return None


def last_workspace(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """The workspace that holds now: the last one in file order, whatever the branch."""
    return next((data for entry in reversed(entries) if (data := workspace_of(entry)) is not None), None)


def effective_cwd(header: SessionHeader, workspace: dict[str, Any] | None) -> str:
    """The working directory: the workspace's, else the one in which the session was born."""
    cwd = None if workspace is None else workspace.get("cwd")
    return cwd if isinstance(cwd, str) and cwd else header.cwd


def clean_name(name: str) -> str | None:
    """A session name as it is kept: on one line and trimmed; None when nothing is left of it."""
    return _LINE_BREAKS.sub(" ", name).strip() or None


def name_of(entry: SessionInfoEntry) -> str | None:
    """The name that an entry gives the session; None clears it."""
    return None if entry.name is None else clean_name(entry.name)


def last_name(entries: Sequence[Entry]) -> str | None:
    """The session's name: the last one given in file order, whatever the branch."""
    return next((name_of(entry) for entry in reversed(entries) if isinstance(entry, SessionInfoEntry)), None)


class MessageCounts(NamedTuple):
    """How many messages are stored, system messages apart, and how many of them a user wrote."""

    stored: int
    by_user: int


def title_of(entries: Sequence[Entry], name: str | None) -> str:
    """What a list shows: the name, else the first line of the first user message that has text.

    At most 80 code points, the last of them an ellipsis when something was cut off; `""` when
    nothing has been said.
    """
    return shorten(name or first_user_text(entries))


def shorten(text: str) -> str:
    """The first line of a text in the size of a title."""
    title = text.strip().split("\n", 1)[0].strip()
    return title if len(title) <= _TITLE_LIMIT else title[: _TITLE_LIMIT - 1] + "…"


def first_user_text(entries: Iterable[Entry]) -> str:
    """The text of the first user message that has any; `""` without one."""
    for entry in entries:
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage):
            text = text_of(entry.message.content, " ")
            if text.strip():
                return text
    return ""


def count_messages(entries: Iterable[Entry]) -> MessageCounts:
    """The counts of some entries, on whatever branches they are."""
    stored = by_user = 0
    for entry in entries:
        if type(entry) is MessageEntry:  # not `isinstance`, which is slower for structs: files are long
            stored += type(entry.message) is not SystemMessage
            by_user += type(entry.message) is UserMessage
        elif type(entry) is UnknownEntry:
            stored += entry.type == "message"
    return MessageCounts(stored, by_user)
