"""What a run leaves behind: its messages in the session, its events in the running turn's items.

Source: App Server notes, "Session events to notifications".
"""

from typing import TYPE_CHECKING

from knightcode.events import (
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    MessageStart,
    MessageUpdate,
    SessionEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    StoredMessage,
    ToolResultMessage,
    UserMessage,
)
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, CustomMessageEntry, MessageEntry
from knightcode.threads.turn import RunningTurn

if TYPE_CHECKING:
    from knightcode.threads.thread import Thread


class Recorder:
    """Stores the run's messages in the session and shows its events to the running turn's items."""

    def __init__(self, thread: "Thread", turn: RunningTurn) -> None:
        self._thread, self._turn = thread, turn
        self.inputs = 0
        """How many messages of the user's the turn has."""
        self._last_reply: str | None = None
        self._compaction: CompactionEntry | None = None

    def append(self, message: StoredMessage | CustomMessage) -> None:
        session = self._thread.session
        entry: MessageEntry | CustomMessageEntry
        if isinstance(message, CustomMessage):
            entry = session.append_entry(
                CustomMessageEntry(
                    custom_type=message.custom_type,
                    content=message.content,
                    display=message.display,
                    details=message.details,
                )
            )
        else:
            entry = session.append_message(message)
        live = self._turn.live
        if isinstance(message, AssistantMessage):
            live.reply_stored(message)
            self._last_reply = entry.id
        elif isinstance(message, ToolResultMessage):
            live.call_ended(message)
        elif isinstance(message, UserMessage | CustomMessage):
            self.inputs += isinstance(message, UserMessage)
            live.input_stored(entry)
        self._thread.appended(entry)

    def compacted(self, draft: CompactionEntry) -> CompactionEntry:
        """Store a compaction; the next `CompactionEnd` shows it."""
        self._compaction = self._thread.session.append_entry(draft)
        return self._compaction

    def hide_last_reply(self) -> None:
        assert self._last_reply is not None
        self._thread.session.append_entry(ContextEditEntry(target_id=self._last_reply, replacement=None))

    def context(self) -> SessionContext:
        return self._thread.session.context()

    def emit(self, event: SessionEvent) -> None:
        live = self._turn.live
        if isinstance(event, MessageUpdate):
            live.reply_grew(event)
        elif isinstance(event, MessageStart):
            if isinstance(event.message, AssistantMessage):
                live.reply_started()
        elif isinstance(event, ToolExecutionStart):
            live.call_started(event)
        elif isinstance(event, ToolExecutionUpdate):
            live.call_grew(event)
        elif isinstance(event, ToolExecutionEnd) and event.parent_tool_call_id is not None:
            live.nested_ended(event)  # all others end when their results are stored
        elif isinstance(event, AutoRetryStart | AutoRetryEnd):
            live.retry(event)
        elif isinstance(event, CompactionStart):
            live.compaction_started(event)
        elif isinstance(event, CompactionEnd):
            stored, self._compaction = self._compaction, None
            live.compaction_ended(event, stored)
            if stored is not None:
                self._thread.appended(stored)
