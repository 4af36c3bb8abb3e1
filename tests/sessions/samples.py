"""Ready-made pieces of conversations, and a clock that a test can read."""

from collections.abc import Callable
from typing import Any

import msgspec

from knightcode.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from knightcode.sessions.clock import iso
from knightcode.sessions.entries import Entry, MessageEntry, SessionHeader, UnknownEntry, header_of
from knightcode.sessions.lenient import parse_line

START_MS = 1_807_252_312_480
START = "2027-04-09T06:31:52.480Z"


def ticking() -> Callable[[], int]:
    """A clock that begins at START_MS and goes on a second with every look at it."""
    now = START_MS - 1000

    def tick() -> int:
        nonlocal now
        now += 1000
        return now

    return tick


def user(text: str, timestamp: int = 1) -> UserMessage:
    return UserMessage(timestamp=timestamp, content=[TextBlock(text=text)])


def reply(
    text: str = "Done",
    *,
    calls: tuple[str, ...] = (),
    stop: StopReason = "stop",
    error: str | None = None,
) -> AssistantMessage:
    return AssistantMessage(
        timestamp=2,
        content=[TextBlock(text=text), *(ToolCallBlock(id=call, name="ls", arguments={}) for call in calls)],
        api="scripted",
        provider="acme",
        model="m1",
        usage=Usage(input=3, output=2, total_tokens=5),
        stop_reason=stop,
        error_message=error,
    )


def result(call: str, text: str = "ok") -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=3, tool_call_id=call, tool_name="ls", content=[TextBlock(text=text)], is_error=False
    )


def message_entry(entry_id: str, parent_id: str | None, message: Any, ms: int = START_MS) -> MessageEntry:
    return MessageEntry(id=entry_id, parent_id=parent_id, timestamp=iso(ms), message=message)


def chain(*drafts: Entry) -> list[Entry]:
    """Entries as one branch: ids `e0`, `e1`…, a second apart from START_MS on."""
    return [
        msgspec.structs.replace(
            draft, id=f"e{at}", parent_id=f"e{at - 1}" if at else None, timestamp=iso(START_MS + 1000 * at)
        )
        for at, draft in enumerate(drafts)
    ]


def said(message: Any) -> MessageEntry:
    """A draft for `chain`."""
    return MessageEntry(message=message)


def json_line(**members: Any) -> bytes:
    return msgspec.json.encode(members) + b"\n"


def kind_of(entry: Entry) -> str:
    """The `type` member of an entry."""
    return entry.type if isinstance(entry, UnknownEntry) else str(entry.__struct_config__.tag)


def header_on(line: bytes) -> SessionHeader | None:
    """The header on a line; None when the line holds anything else."""
    record = parse_line(line)
    return None if record is None else header_of(record)


HEADER_LINE = json_line(type="session", version=3, id="s1", timestamp=START, cwd="/srv/shop")
