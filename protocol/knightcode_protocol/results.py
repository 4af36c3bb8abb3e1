"""Results of the methods, named after them. An optional member is left out, never `null`.

Source: app server notes, "Method table".
"""

from typing import Literal

from msgspec import UNSET, UnsetType

from knightcode_protocol.objects import (
    Count,
    Model,
    Queue,
    Thread,
    ThreadSummary,
    TokenUsage,
    Turn,
    Ui,
    Warning,  # noqa: A004
)
from knightcode_protocol.wire import Wire


class ThreadStartResult(Wire, frozen=True, kw_only=True):
    """A new thread, what to warn of, and what its extensions show."""

    thread: Thread
    warnings: tuple[Warning, ...]
    ui: Ui


class ThreadResumeResult(Wire, frozen=True, kw_only=True):
    """A page of history, and the thread as it stands when this is written.

    `turns` are oldest first and never hold the running turn; `nextCursor` leads to older ones.
    """

    thread: Thread
    warnings: tuple[Warning, ...]
    turns: tuple[Turn, ...]
    queue: Queue
    usage: TokenUsage
    ui: Ui
    next_cursor: str | UnsetType = UNSET
    running_turn: Turn | UnsetType = UNSET


class ThreadReadResult(Wire, frozen=True, kw_only=True):
    """A page of saved history, oldest turn first; `nextCursor` leads to older ones."""

    thread: Thread
    turns: tuple[Turn, ...]
    next_cursor: str | UnsetType = UNSET


class ThreadListResult(Wire, frozen=True, kw_only=True):
    """A page of threads, most recently updated first."""

    threads: tuple[ThreadSummary, ...]
    next_cursor: str | UnsetType = UNSET


class ThreadUnsubscribeResult(Wire, frozen=True, kw_only=True):
    """Whether there was a subscription to end."""

    status: Literal["unsubscribed", "notSubscribed"]


class ThreadSettingsUpdateResult(Wire, frozen=True, kw_only=True):
    """The thread with its new settings."""

    thread: Thread


class ThreadCompactResult(Wire, frozen=True, kw_only=True):
    """How a compaction ended that did not fail: a failed one is an error."""

    status: Literal["completed", "cancelled"]


class TurnStartResult(Wire, frozen=True, kw_only=True):
    """What became of an input.

    `handled` means that an extension consumed it, `cancelled` that it was interrupted before it was
    accepted. `threadId` is where it went in the end.
    """

    status: Literal["started", "handled", "cancelled"]
    thread_id: str
    request_id: str | UnsetType = UNSET


class TurnSteerResult(Wire, frozen=True, kw_only=True):
    """The running turn has the input; it cannot be taken back."""


class TurnQueueAddResult(Wire, frozen=True, kw_only=True):
    """The input waits, or has started already. `queueId` names it until its turn starts."""

    queue_id: str


class TurnQueueRemoveResult(Wire, frozen=True, kw_only=True):
    """`removed` is false when the input has started, was dropped, or never waited."""

    removed: bool


class TurnInterruptResult(Wire, frozen=True, kw_only=True):
    """The interrupt is on its way; `turn/completed` tells its end."""


class ModelListResult(Wire, frozen=True, kw_only=True):
    """Every chat model, in catalogue order."""

    models: tuple[Model, ...]


class ServerDiagnosticsResult(Wire, frozen=True, kw_only=True):
    """Counters of the whole process, whoever asks.

    `heapBytes` equals `rssBytes` where the allocator tells nothing cheaply, and a platform that tells
    no memory at all has 0 in both. The listing counters only grow: `listingBytesScanned` by the size of each
    transcript that a listing reads, `listingFilesOpened` by one for it and for each parent's header.
    """

    rss_bytes: Count
    heap_bytes: Count
    loaded_threads: Count
    loading_threads: Count
    payload_files: Count
    payload_bytes: Count
    inactive_factories: Count
    uptime_ms: Count
    listing_files_opened: Count
    listing_bytes_scanned: Count
