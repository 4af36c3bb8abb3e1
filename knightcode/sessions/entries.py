"""The lines of a session file as values, and both directions of the conversion.

A line that was read is never written again, so a value may know less than its line: unknown members
are dropped in memory and stay in the file.

Source: Session files, "File layout", "Entries".
"""

from typing import Any, Literal, TypeGuard, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    InputBlock,
    Message,
    Record,
    StoredMessage,
    SystemMessage,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
)
from knightcode.sessions.lenient import parse_line, tidy
from knightcode.text import clean_json

CURRENT_VERSION = 3

TurnStatus = Literal["completed", "interrupted", "failed"]


def _written_none() -> Any:
    """A default of None that is written all the same: `omit_defaults` leaves factories alone."""
    return field(default_factory=lambda: None)


def _written_empty() -> Any:
    return field(default_factory=lambda: "")


class SessionHeader(Record, frozen=True, kw_only=True, tag_field="type", tag="session"):
    """The first line: what the session is, where and when it began."""

    version: int = field(default_factory=lambda: 1)
    id: str
    timestamp: str = _written_empty()
    cwd: str = _written_empty()
    parent_session: str | None = None


class StoredEntry(Record, frozen=True, kw_only=True, tag_field="type", gc=False):
    """Base of every entry. A draft leaves the three common members to the log that appends it.

    Entries hold JSON, which has no cycles; left alone by the garbage collector, a long file loads
    a third faster.

    Attributes:
        parent_id: the entry that this one continues from, None for a root.
        timestamp: ISO 8601, UTC, milliseconds.
    """

    id: str = _written_empty()
    parent_id: str | None = _written_none()
    timestamp: str = _written_empty()


class MessageEntry(StoredEntry, frozen=True, kw_only=True, tag="message"):
    """One message. Only files that came from version 2 hold custom messages this way."""

    message: StoredMessage | CustomMessage


class ModelChangeEntry(StoredEntry, frozen=True, kw_only=True, tag="model_change"):
    provider: str
    model_id: str


class ThinkingLevelChangeEntry(StoredEntry, frozen=True, kw_only=True, tag="thinking_level_change"):
    thinking_level: ThinkingLevel


class CompactionEntry(StoredEntry, frozen=True, kw_only=True, tag="compaction"):
    """A summary that stands for older history.

    Attributes:
        first_kept_entry_id: where verbatim history begins; the entry's own id keeps nothing. A
            draft with None keeps nothing as well: the log puts in the id.
        tokens_before: estimated size of the context just before.
        system_message: complete prompt and tools at this point.
        from_hook: an extension wrote the summary.
        retained_tail: older form: the kept messages themselves, instead of an id.
    """

    summary: str
    first_kept_entry_id: str | None = None
    tokens_before: int = field(default_factory=lambda: 0)
    system_message: SystemMessage | None = None
    usage: Usage | None = None
    details: Any = None
    from_hook: bool = False
    retained_tail: list[Message] | None = None


class BranchSummaryEntry(StoredEntry, frozen=True, kw_only=True, tag="branch_summary"):
    """What happened on a branch that was left. `from_id` is its leaf, or `root` when it had none."""

    from_id: str
    summary: str
    usage: Usage | None = None
    details: Any = None
    from_hook: bool = False


class ContextEditEntry(StoredEntry, frozen=True, kw_only=True, tag="context_edit"):
    """What the model sees of an earlier entry from here on: None hides it, else the new content."""

    target_id: str
    replacement: str | list[InputBlock | ThinkingBlock | ToolCallBlock] | None = _written_none()


class CustomEntry(StoredEntry, frozen=True, kw_only=True, tag="custom"):
    """Data of a program, found by `custom_type`; the model never sees it."""

    custom_type: str
    data: Any = None


class CustomMessageEntry(StoredEntry, frozen=True, kw_only=True, tag="custom_message"):
    """An extension's text for the model. `display` False hides it from people."""

    custom_type: str
    content: str | list[InputBlock] = field(default_factory=list[InputBlock])
    display: bool = field(default_factory=lambda: True)
    details: Any = None


class LabelEntry(StoredEntry, frozen=True, kw_only=True, tag="label"):
    """A bookmark on an entry; none or an empty label removes it."""

    target_id: str
    label: str | None = None


class SessionInfoEntry(StoredEntry, frozen=True, kw_only=True, tag="session_info"):
    """The session's name; none or an empty one clears it."""

    name: str | None = None


class UsageEntry(StoredEntry, frozen=True, kw_only=True, tag="usage"):
    """Money spent on a model for something other than a reply."""

    kind: str
    provider: str
    model: str
    usage: Usage


class TurnError(Record, frozen=True, kw_only=True):
    """Why a turn failed: text for people, and one of the error kinds for programs."""

    message: str
    kind: str = field(default_factory=lambda: "other")


class TurnStartEntry(StoredEntry, frozen=True, kw_only=True, tag="turn_start"):
    """A turn was accepted; the entry's id is the turn's id."""


class TurnEndEntry(StoredEntry, frozen=True, kw_only=True, tag="turn_end"):
    """A turn has settled."""

    turn_id: str
    status: TurnStatus
    error: TurnError | None = None


class UnknownEntry(Struct, frozen=True, kw_only=True):
    """An entry of a type, or in a form, that this version does not know. It keeps its place in the tree."""

    type: str
    id: str
    parent_id: str | None
    timestamp: str
    raw: bytes


KnownEntry = (
    MessageEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | CompactionEntry
    | BranchSummaryEntry
    | ContextEditEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
    | UsageEntry
    | TurnStartEntry
    | TurnEndEntry
)
Entry = KnownEntry | UnknownEntry

_LINE: msgspec.json.Decoder[KnownEntry] = msgspec.json.Decoder(KnownEntry)
_ENCODER = msgspec.json.Encoder()
_KNOWN_TYPES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(KnownEntry))


def decode_entry(line: bytes) -> Entry | None:
    """The entry on a line; None when there is none: blank, cut off, not an object, without an id.

    What is not quite as it should be is put right where its meaning is plain: null members are
    absent ones, text of invalid bytes or half surrogate pairs holds U+FFFD. An entry of a known type
    that cannot be understood even so becomes an `UnknownEntry`.
    """
    try:
        entry = _LINE.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return _decode_leniently(line)
    if not entry.id or not entry.timestamp:
        return _decode_leniently(line)
    return _count_tokens(entry)


def header_of(record: dict[str, Any]) -> SessionHeader | None:
    """The header that a JSON object is; None when it is none: another type, or no id."""
    session_id = record.get("id")
    if record.get("type") != "session" or not isinstance(session_id, str) or not session_id:
        return None
    version = record.get("version", 1)
    return SessionHeader(
        # a version that is no number must not start a rewrite of the file
        version=version if type(version) is int else 1 if version is None else CURRENT_VERSION,
        id=session_id,
        timestamp=_text(record.get("timestamp")) or "",
        cwd=_text(record.get("cwd")) or "",
        parent_session=_text(record.get("parentSession")),
    )


def encode_entry(entry: Entry) -> bytes:
    """The line of an entry, without its LF.

    Raises:
        TypeError: the entry holds a value that JSON has no form for.
    """
    return entry.raw if isinstance(entry, UnknownEntry) else _encode(entry)


def encode_header(header: SessionHeader) -> bytes:
    """The line of a header, without its LF."""
    return _encode(header)


def _encode(value: Struct) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(clean_json(msgspec.to_builtins(value)))


def _decode_leniently(line: bytes) -> Entry | None:
    record = parse_line(line)
    if record is None:
        return None
    kind, entry_id = record.get("type"), record.get("id")
    if not isinstance(kind, str) or kind == "session" or not isinstance(entry_id, str) or not entry_id:
        return None
    record = tidy(record)
    if kind in _KNOWN_TYPES:
        try:
            known: KnownEntry = msgspec.convert(record, KnownEntry)
            return _count_tokens(known)
        except (msgspec.ValidationError, RecursionError):
            pass
    return UnknownEntry(
        type=kind,
        id=entry_id,
        parent_id=_text(record.get("parentId")),
        timestamp=record["timestamp"],
        raw=line,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count_tokens(entry: KnownEntry) -> KnownEntry:
    """The entry with the sum of its counts where the total is missing."""
    if isinstance(entry, MessageEntry):
        message = entry.message
        if isinstance(message, AssistantMessage | ToolResultMessage) and _lacks_total(message.usage):
            message = replace(message, usage=_with_total(message.usage))
            return replace(entry, message=message)
    elif isinstance(entry, CompactionEntry | BranchSummaryEntry | UsageEntry) and _lacks_total(entry.usage):
        return replace(entry, usage=_with_total(entry.usage))
    return entry


def _lacks_total(usage: Usage | None) -> TypeGuard[Usage]:
    return usage is not None and usage.total_tokens == 0 and _sum(usage) > 0


def _with_total(usage: Usage) -> Usage:
    return replace(usage, total_tokens=_sum(usage))


def _sum(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write
