"""The running turn: session events come in, item notices go out, and a snapshot can be taken at any time.

Everything here is synchronous: an event and all its notices are one step.

Source: App Server notes, "Session events to notifications", "Item ids".
"""

from collections.abc import Callable
from typing import Literal

import attrs
from msgspec import UnsetType

from knightcode.events import (
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionStart,
    MessageUpdate,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.messages import AssistantMessage, TextBlock, ToolResultMessage, text_of
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import CompactionEntry, Entry
from knightcode.threads.items import (
    AgentItem,
    AnyItem,
    CallItem,
    CompactionItem,
    ReasoningItem,
    Turn,
    TurnError,
    TurnStatus,
    UserItem,
    compaction_id,
    finished_call,
    input_item,
    reply_items,
)
from knightcode.threads.notices import (
    ItemCompleted,
    ItemRemoved,
    ItemStarted,
    Notice,
    OutputDelta,
    RetryEnded,
    RetryWaiting,
)
from knightcode.threads.notices import TextDelta as TextDeltaNotice

DELTA_LIMIT = 64 * 1024
"""Bytes of UTF-8 in one delta notice; longer ones are split between code points."""


@attrs.define(eq=False)
class _Streaming:
    """A text or thinking block that is still growing."""

    item: AgentItem | ReasoningItem
    pieces: list[str] = attrs.field(factory=list)

    def snapshot(self) -> AgentItem | ReasoningItem:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return attrs.evolve(self.item, text=self.pieces[0] if self.pieces else "")


@attrs.define(eq=False)
class LiveTurn:
    """One running turn's items.

    Attributes:
        publish: sends to the thread's subscribers.
        client_message_id: echoed on the first user message.
    """

    id: str
    thread_id: str
    cwd: str
    started_at_ms: int
    publish: Callable[[Notice], None]
    now_ms: Callable[[], int]
    client_message_id: str | None = None

    _items: dict[str, AnyItem] = attrs.field(factory=dict, init=False)
    _ordinal: int = attrs.field(default=0, init=False)
    _next_index: int = attrs.field(default=0, init=False)
    _blocks: dict[int, _Streaming] = attrs.field(factory=dict, init=False)
    _kinds: list[int] = attrs.field(factory=lambda: [0, 0], init=False)
    _open_calls: dict[str, CallItem] = attrs.field(factory=dict, init=False)
    _outputs: dict[str, str] = attrs.field(factory=dict, init=False)
    _compaction: CompactionItem | None = attrs.field(default=None, init=False)

    # --- what a client may ask for ---------------------------------------------------------------

    def snapshot(self) -> Turn:
        """The turn as it stands, whole text of streaming items included."""
        growing = {block.item.id: block for block in self._blocks.values()}
        items = [growing[item.id].snapshot() if item.id in growing else item for item in self._items.values()]
        items.sort(key=self._place)
        return self.turn("inProgress", items=tuple(items))

    def turn(
        self,
        status: TurnStatus,
        *,
        completed_at_ms: int | None = None,
        error: TurnError | None = None,
        items: tuple[AnyItem, ...] = (),
    ) -> Turn:
        """The turn with the given outcome."""
        return Turn(
            id=self.id,
            thread_id=self.thread_id,
            status=status,
            started_at_ms=self.started_at_ms,
            completed_at_ms=completed_at_ms,
            error=error,
            items=items,
        )

    # --- what happens ------------------------------------------------------------------------------

    def input_stored(self, entry: Entry) -> None:
        """An entry that is no reply was appended: user message, extension message, compaction."""
        item = input_item(self.id, self._ordinal, entry)
        self._ordinal += 1
        if item is None:
            return
        item = attrs.evolve(item, index=self._next_index)
        self._next_index += 1
        if isinstance(item, UserItem) and self.client_message_id is not None:
            shown: AnyItem = attrs.evolve(item, client_message_id=self.client_message_id)
            self.client_message_id = None
        else:
            shown = item
        self._start(shown)
        self._complete(shown)

    def reply_started(self) -> None:
        """A reply begins; its blocks are numbered anew."""
        self._blocks, self._kinds = {}, [0, 0]

    def reply_grew(self, update: MessageUpdate) -> None:
        """Part of a reply arrived."""
        event = update.assistant_message_event
        if isinstance(event, (TextDelta, ThinkingDelta)):
            block = self._blocks[event.content_index]
            block.pieces.append(event.delta)
            reasoning = isinstance(event, ThinkingDelta)
            for part in split_delta(event.delta):
                self.publish(TextDeltaNotice(self.thread_id, self.id, block.item.id, part, reasoning))
        elif isinstance(event, (TextStart, ThinkingStart)):
            self._open_block(event)

    def reply_stored(self, message: AssistantMessage) -> None:
        """A reply was appended: its final items replace the streaming ones."""
        index = self._next_index
        final = reply_items(self.id, self._ordinal, message)
        kept = set()
        for item in final:
            numbered = attrs.evolve(item, index=index)
            index += 1
            if isinstance(numbered, CallItem):
                self._open_calls[numbered.id] = numbered
            else:
                kept.add(numbered.id)
                if numbered.id not in self._items:
                    self._start(numbered)
                self._complete(numbered)
        for block in self._blocks.values():
            if block.item.id not in kept:
                self._items.pop(block.item.id, None)
                self.publish(ItemRemoved(self.thread_id, self.id, block.item.id))
        self._next_index = index
        self._ordinal += 1
        self._blocks = {}

    def call_started(self, event: ToolExecutionStart) -> None:
        """A call is shown, before anything is asked or run."""
        item = self._open_calls.get(event.tool_call_id)
        if event.parent_tool_call_id is not None:
            item = CallItem(
                id=event.tool_call_id,
                parent_id=event.parent_tool_call_id,
                tool=event.tool_name,
                input=event.args,
                status="pending",
            )
        elif item is None:  # a call that is in no reply: an extension's own
            item = CallItem(
                id=event.tool_call_id,
                index=self._next_index,
                tool=event.tool_name,
                input=event.args,
                status="pending",
            )
            self._next_index += 1
        running = attrs.evolve(item, status="running", started_at_ms=self.now_ms())
        self._open_calls[item.id] = running
        self._start(running)

    def call_grew(self, event: ToolExecutionUpdate) -> None:
        """A call has more output. Text that continues the former text goes out as what was added."""
        item = self._open_calls.get(event.tool_call_id)
        if item is None:
            return
        before = self._outputs.get(item.id, "")
        text = text_of([block for block in event.partial_result.content if isinstance(block, TextBlock)])
        if text == before:
            return
        continues = text.startswith(before)
        delta = text[len(before) :] if continues else text
        self._items[item.id] = attrs.evolve(item, output=tuple(event.partial_result.content))
        for part in split_delta(delta):
            self.publish(OutputDelta(self.thread_id, self.id, item.id, part, replace=not continues))
            continues = True
        self._outputs[item.id] = text

    def call_ended(self, result: ToolResultMessage) -> None:
        """A call has its result."""
        item = self._open_calls.pop(result.tool_call_id, None)
        self._outputs.pop(result.tool_call_id, None)
        if item is not None:
            self._complete(finished_call(item, result, self.cwd))

    def nested_ended(self, event: ToolExecutionEnd) -> None:
        """A call that another call made is over; nothing of it is stored."""
        item = self._open_calls.get(event.tool_call_id)
        if item is None:
            return
        now = self.now_ms()
        result = ToolResultMessage(
            timestamp=now,
            tool_call_id=event.tool_call_id,
            tool_name=event.tool_name,
            content=event.result.content,
            is_error=event.is_error,
            details=event.result.details,
            duration_ms=None if item.started_at_ms is None else now - item.started_at_ms,
        )
        self.call_ended(result)

    def compaction_started(self, event: CompactionStart) -> None:
        """The context is being made smaller."""
        item = CompactionItem(
            id=compaction_id(f"{self.id}:{self._ordinal}"),
            index=self._next_index,
            summary="",
            reason=event.reason,
            status="running",
            started_at_ms=self.now_ms(),
        )
        self._next_index += 1
        self._compaction = item
        self._start(item)

    def compaction_ended(self, event: CompactionEnd, entry: CompactionEntry | None) -> None:
        """The compaction was stored as `entry`, or it was not. One that never started is shown as well."""
        item = self._compaction
        if item is None:
            item = CompactionItem(
                id=compaction_id(f"{self.id}:{self._ordinal}"), index=self._next_index, summary=""
            )
            self._next_index += 1
        self._compaction = None
        error = None if isinstance(event.error_message, UnsetType) else event.error_message
        if entry is not None and event.result is not None:
            self._ordinal += 1
            ended = attrs.evolve(
                item,
                summary=entry.summary,
                status="completed",
                tokens_before=event.result.tokens_before,
                tokens_after=event.result.estimated_tokens_after,
                completed_at_ms=parse_iso(entry.timestamp),
            )
        else:
            status: Literal["cancelled", "failed"] = "cancelled" if event.aborted else "failed"
            ended = attrs.evolve(item, status=status, error=error, completed_at_ms=self.now_ms())
        self._complete(attrs.evolve(ended, reason=event.reason, started_at_ms=None))

    def retry(self, event: AutoRetryStart | AutoRetryEnd) -> None:
        """A failed reply is tried again, or is not any more."""
        if isinstance(event, AutoRetryStart):
            self.publish(
                RetryWaiting(
                    self.thread_id,
                    self.id,
                    event.attempt,
                    event.max_attempts,
                    event.delay_ms,
                    event.error_message,
                )
            )
        else:
            error = None if isinstance(event.final_error, UnsetType) else event.final_error
            self.publish(RetryEnded(self.thread_id, self.id, event.attempt, event.success, error))

    def close(self) -> None:
        """The turn ends: what is open is completed. Calls without a result failed, and have no times."""
        if self._blocks:  # the run broke off inside a reply; what was stored decides, and nothing was
            for block in self._blocks.values():
                self._items.pop(block.item.id, None)
                self.publish(ItemRemoved(self.thread_id, self.id, block.item.id))
            self._blocks = {}
        started = tuple(self._open_calls.values())
        nested = [item for item in reversed(started) if item.parent_id is not None]
        for item in (*nested, *(item for item in started if item.parent_id is None)):
            self._complete(attrs.evolve(item, status="failed", output=(), started_at_ms=None))
        self._open_calls.clear()

    # --- inside ------------------------------------------------------------------------------------

    def _open_block(self, event: TextStart | ThinkingStart) -> None:
        thinking = isinstance(event, ThinkingStart)
        count = self._kinds[thinking]
        self._kinds[thinking] += 1
        item_id = f"{self.id}:{self._ordinal}:{'r' if thinking else 't'}{count}"
        kind = ReasoningItem if thinking else AgentItem
        item = kind(
            id=item_id, text="", index=self._next_index + len(self._blocks), started_at_ms=self.now_ms()
        )
        self._blocks[event.content_index] = _Streaming(item)
        self._start(item)

    def _place(self, item: AnyItem) -> int:
        """Nested calls come with the call at the top that they belong to."""
        while item.parent_id is not None:
            item = self._items[item.parent_id]
        return -1 if item.index is None else item.index

    def _start(self, item: AnyItem) -> None:
        self._items[item.id] = item
        self.publish(ItemStarted(self.thread_id, self.id, item))

    def _complete(self, item: AnyItem) -> None:
        self._items[item.id] = item
        self.publish(ItemCompleted(self.thread_id, self.id, item))


def split_delta(delta: str, limit: int = DELTA_LIMIT) -> list[str]:
    """`delta` in parts of at most `limit` bytes of UTF-8, cut between code points."""
    if len(delta) * 4 <= limit or len(delta.encode()) <= limit:
        return [delta]
    # A code point has at most four bytes, so this many always fit.
    step = limit // 4
    return [delta[start : start + step] for start in range(0, len(delta), step)]
