"""A reply while it is being made: adapters put in what arrives, the builder keeps the grammar.

The builder owns the partial message. It lives in the task that asked, so whatever ends the stream
(the provider, an error, an interrupt) what has arrived so far is there and becomes the message.

Source: agent loop, "Streaming a reply"; models and providers, "Common".
"""

from collections.abc import Callable
from typing import Any, Literal

import attrs

from knightcode.events import (
    ReplyEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
    ThinkingStart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from knightcode.messages import (
    AssistantMessage,
    ReplyBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    Usage,
)
from knightcode.models.arguments import arguments_are_whole, parse_arguments
from knightcode.models.characters import ends_in_half, join_pairs
from knightcode.models.model import Model
from knightcode.text import clean

ABORTED = "Request aborted"


@attrs.define(eq=False)
class _Block:
    kind: Literal["text", "thinking", "toolCall"]
    pieces: list[str] = attrs.field(factory=list)
    open: bool = True
    signature: str | None = None
    redacted: bool = False
    call_id: str = ""
    name: str = ""
    half: str = ""
    """The first half of a character whose second half has not come."""

    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@attrs.define(eq=False)
class ReplyBuilder:
    """Collects one reply and emits its events, each once and in order.

    `started` and `finished` are each set once. After `finished` every further call is ignored, so a
    late chunk cannot change a message that has been published. What comes out can always be encoded:
    characters are whole in every delta, and halves that never meet are U+FFFD.

    Attributes:
        retry_after_ms: how long the provider asked to be left alone when it refused the request; never
            a part of the message.
    """

    model: Model
    emit: Callable[[ReplyEvent], None]
    now_ms: Callable[[], int]
    on_start: Callable[[], None] | None = None
    thinking_level: ThinkingLevel = "off"

    started: bool = attrs.field(default=False, init=False)
    finished: bool = attrs.field(default=False, init=False)
    usage: Usage = attrs.field(factory=Usage, init=False)
    response_id: str | None = attrs.field(default=None, init=False)
    response_model: str | None = attrs.field(default=None, init=False)
    raw_stop_reason: str | None = attrs.field(default=None, init=False)
    error_message: str | None = attrs.field(default=None, init=False)
    retry_after_ms: int | None = attrs.field(default=None, init=False)
    stop_reason: StopReason = attrs.field(default="pending", init=False)
    started_at_ms: int = attrs.field(init=False)
    _ended_at_ms: int | None = attrs.field(default=None, init=False)
    _final: AssistantMessage | None = attrs.field(default=None, init=False)
    _blocks: list[_Block] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.started_at_ms = self.now_ms()

    # --- what adapters call ---------------------------------------------------------------------

    def start(self) -> None:
        """The provider accepted the request. Opening a block starts the reply as well."""
        if not self.started and not self.finished:
            self.started = True
            if self.on_start is not None:
                self.on_start()

    def open_text(self) -> int:
        """Begin a text block; the index names it in all further calls."""
        return self._open(_Block("text"))

    def open_thinking(self, *, redacted: bool = False) -> int:
        """Begin a thinking block."""
        return self._open(_Block("thinking", redacted=redacted))

    def open_tool_call(self, call_id: str, name: str) -> int:
        """Begin a tool call; its arguments follow as deltas of JSON text."""
        return self._open(_Block("toolCall", call_id=clean(call_id), name=clean(name)))

    def delta(self, index: int, delta: str) -> None:
        """Append to a block. Empty deltas are dropped, half a character waits for its other half."""
        if self.finished or not delta:
            return
        block = self._blocks[index]
        if block.half or not delta.isascii():
            delta = _whole_characters(block, delta)
            if not delta:
                return
        block.pieces.append(delta)
        if block.kind == "text":
            self.emit(TextDelta(content_index=index, delta=delta))
        elif block.kind == "thinking":
            self.emit(ThinkingDelta(content_index=index, delta=delta))
        else:
            self.emit(ToolCallDelta(content_index=index, delta=delta))

    def sign(self, index: int, signature: str, *, append: bool = False) -> None:
        """Set or extend a block's opaque signature."""
        block = self._blocks[index]
        signature = clean(signature)
        block.signature = (block.signature or "") + signature if append else signature

    def close(self, index: int) -> None:
        """End a block; closing twice is once."""
        block = self._blocks[index]
        if self.finished or not block.open:
            return
        if block.half:
            half, block.half = block.half, ""
            self.delta(index, clean(half))
        block.open = False
        if block.kind == "text":
            self.emit(TextEnd(content_index=index, content=block.text()))
        elif block.kind == "thinking":
            self.emit(ThinkingEnd(content_index=index, content=block.text()))
        else:
            self.emit(ToolCallEnd(content_index=index, tool_call=_call(block)))

    def done(self, reason: Literal["stop", "length", "toolUse"]) -> None:
        """The reply is complete. Open blocks are closed in content order."""
        if self.finished:
            return
        self.start()
        for index in range(len(self._blocks)):
            self.close(index)
        self._finish(reason)

    def fail(self, error_message: str, *, retry_after_ms: int | None = None) -> None:
        """The reply failed; what has arrived stays in it, but for half a character at its end.

        Args:
            retry_after_ms: see the attribute.
        """
        if not self.finished:
            self.error_message = clean(error_message)
            self.retry_after_ms = retry_after_ms
            self._finish("error")

    def abort(self) -> None:
        """The request was given up; what has arrived stays in it."""
        if not self.finished:
            self.error_message = ABORTED
            self._finish("aborted")

    # --- what the loop reads --------------------------------------------------------------------

    def message(self) -> AssistantMessage:
        """The message as it stands; `stop_reason` is `pending` until it is finished.

        In a failed or aborted reply, tool calls whose arguments never ended are left out.
        """
        if self._final is not None:
            return self._final
        whole = self.stop_reason not in ("error", "aborted")
        content: list[ReplyBlock] = []
        for block in self._blocks:
            if block.kind == "text":
                content.append(TextBlock(text=block.text(), text_signature=block.signature))
            elif block.kind == "thinking":
                content.append(
                    ThinkingBlock(
                        thinking=block.text(), thinking_signature=block.signature, redacted=block.redacted
                    )
                )
            elif whole or not block.open:
                content.append(_call(block))
        return AssistantMessage(
            timestamp=self.started_at_ms,
            content=content,
            api=self.model.api,
            provider=self.model.provider,
            model=self.model.id,
            usage=self.usage,
            stop_reason=self.stop_reason,
            error_message=self.error_message,
            raw_stop_reason=_cleaned(self.raw_stop_reason),
            response_id=_cleaned(self.response_id),
            response_model=_cleaned(self.response_model),
            thinking_level=self.thinking_level if self.model.reasoning else None,
            duration_ms=None if self._ended_at_ms is None else max(0, self._ended_at_ms - self.started_at_ms),
        )

    def is_broken(self, index: int) -> bool:
        """Whether the block is a call whose arguments are no whole JSON object: it must not be run."""
        block = self._blocks[index]
        return block.kind == "toolCall" and not arguments_are_whole(block.text())

    def _open(self, block: _Block) -> int:
        index = len(self._blocks)
        if self.finished:  # the message has been taken; the block only keeps the caller's index valid
            self._blocks.append(block)
            return index
        self.start()
        self._blocks.append(block)
        if block.kind == "text":
            self.emit(TextStart(content_index=index))
        elif block.kind == "thinking":
            self.emit(ThinkingStart(content_index=index))
        else:
            self.emit(ToolCallStart(content_index=index, id=block.call_id, tool_name=block.name))
        return index

    def _finish(self, reason: StopReason) -> None:
        self.stop_reason = reason
        self._ended_at_ms = self.now_ms()
        self._final = self.message()
        self.finished = True


def _whole_characters(block: _Block, delta: str) -> str:
    """The delta with the half that was held back before it, without one at its own end, which is held."""
    text, block.half = block.half + delta, ""
    if ends_in_half(text):
        text, block.half = text[:-1], text[-1]
    try:
        text.encode()
    except UnicodeEncodeError:
        return clean(join_pairs(text))
    return text


def _cleaned(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _call(block: _Block) -> ToolCallBlock:
    arguments: dict[str, Any] = parse_arguments(block.text())
    return ToolCallBlock(
        id=block.call_id, name=block.name, arguments=arguments, thought_signature=block.signature
    )
