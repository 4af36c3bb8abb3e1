"""The Anthropic Messages api: its stream of events turned into a reply.

Source: models and providers, "Anthropic Messages".
"""

from typing import Any, Final, Literal

import attrs
import msgspec

from knightcode.models.adapters.anthropic_body import build_request
from knightcode.models.adapters.base import decode_event, usage_of
from knightcode.models.auth import Credentials
from knightcode.models.characters import encode_clean
from knightcode.models.errors import RequestFailedError
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.models.sse import SseEvent
from knightcode.models.wire import Wire

REDACTED_TEXT: Final = "(reasoning withheld by the provider)"
_STOPS: Final[dict[str, Literal["stop", "length", "toolUse"]]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "tool_use": "toolUse",
}
_REFUSALS: Final = frozenset({"refusal", "sensitive"})


class _CacheCreation(msgspec.Struct, frozen=True):
    ephemeral_1h_input_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None


class _Message(msgspec.Struct, frozen=True):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None


class _ContentBlock(msgspec.Struct, frozen=True):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_details: Any = None


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _ContentBlock | None = None
    message: _Message | None = None
    usage: _Usage | None = None


_DECODER: Final = msgspec.json.Decoder(_Event)


@attrs.frozen
class AnthropicMessages:
    """Adapter of the api `anthropic-messages`."""

    wire: Wire

    async def stream(self, request: ModelRequest, reply: ReplyBuilder, credentials: Credentials) -> None:
        """See `Adapter.stream`."""
        try:
            sent = build_request(request, credentials)
            async with self.wire.events(sent.url, sent.headers, sent.body, request.inspector) as stream:
                reply.start()
                reader = _Reader(reply)
                async for events in stream:
                    reader.take(events)
                    if reader.ended:
                        break
                reader.finish()
        except RequestFailedError as error:
            reply.fail(str(error), retry_after_ms=error.retry_after_ms)


@attrs.define(eq=False)
class _Reader:
    """Puts the events of one stream into a reply."""

    reply: ReplyBuilder
    ended: bool = False
    _blocks: dict[int, int] = attrs.field(factory=dict, init=False)
    _counts: dict[str, int] = attrs.field(factory=dict, init=False)
    _refusal: str = attrs.field(default="", init=False)

    def take(self, events: list[SseEvent]) -> None:
        """Handle what has arrived.

        Raises:
            RequestFailedError: an event is an error, or cannot be read.
        """
        for raw in events:
            if raw.name == b"error":
                raise RequestFailedError(raw.data.decode("utf-8", "replace"))
            if raw.name == b"ping":
                continue
            event = decode_event(_DECODER, raw.data)
            if event.type == "content_block_delta" and event.delta is not None:
                self._delta(event.index, event.delta)
            elif event.type == "error":
                raise RequestFailedError(raw.data.decode("utf-8", "replace"))
            else:
                self._other(event)
            if self.ended:
                return

    def finish(self) -> None:
        """The stream is over; end the reply by the reason it gave.

        Raises:
            RequestFailedError: it gave none, or one that is a failure.
        """
        if not self.ended:
            raise RequestFailedError("the provider's stream ended before message_stop")
        reason = self.reply.raw_stop_reason
        if reason is None:
            raise RequestFailedError("the provider's stream ended without a stop reason")
        if reason in _STOPS:
            self.reply.done(_STOPS[reason])
        elif reason in _REFUSALS:
            raise RequestFailedError(f"the model refused to answer ({reason}){self._refusal}")
        elif reason == "model_context_window_exceeded":
            raise RequestFailedError("the reply did not fit: model_context_window_exceeded")
        else:
            raise RequestFailedError(f"unknown stop reason: {reason}")

    def _delta(self, index: int, delta: _Delta) -> None:
        at = self._blocks.get(index)
        if at is None:
            return
        if text := delta.text or delta.thinking or delta.partial_json:
            self.reply.delta(at, text)
        elif delta.signature:
            self.reply.sign(at, delta.signature, append=True)

    def _other(self, event: _Event) -> None:
        match event.type:
            case "content_block_start" if event.content_block is not None:
                self._open(event.index, event.content_block)
            case "content_block_stop" if event.index in self._blocks:
                self.reply.close(self._blocks.pop(event.index))
            case "message_start" if event.message is not None:
                self.reply.response_id = event.message.id
                if event.message.model and event.message.model != self.reply.model.id:
                    self.reply.response_model = event.message.model
                self._usage(event.message.usage)
            case "message_delta":
                if event.delta is not None and event.delta.stop_reason:
                    self.reply.raw_stop_reason = event.delta.stop_reason
                    self._refusal = _explanation(event.delta.stop_details)
                self._usage(event.usage)
            case "message_stop":
                self.ended = True
            case _:
                pass  # pings, and what later versions of the api add

    def _open(self, index: int, block: _ContentBlock) -> None:
        match block.type:
            case "text":
                at = self.reply.open_text()
                self.reply.delta(at, block.text or "")
            case "thinking":
                at = self.reply.open_thinking()
                self.reply.delta(at, block.thinking or "")
                if block.signature:
                    self.reply.sign(at, block.signature)
            case "redacted_thinking":
                at = self.reply.open_thinking(redacted=True)
                self.reply.delta(at, REDACTED_TEXT)
                self.reply.sign(at, block.data or "")
            case "tool_use":
                at = self.reply.open_tool_call(
                    block.id or f"call_{self.reply.started_at_ms}_{index}", block.name or ""
                )
                if block.input:
                    self.reply.delta(at, encode_clean(block.input).decode())
            case _:
                return
        self._blocks[index] = at

    def _usage(self, usage: _Usage | None) -> None:
        """Take over the counts that are given; others keep their value."""
        if usage is None:
            return
        hour = usage.cache_creation.ephemeral_1h_input_tokens if usage.cache_creation else None
        given = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": usage.cache_read_input_tokens,
            "cache_write": usage.cache_creation_input_tokens,
            "cache_write_1h": hour,
        }
        self._counts |= {name: max(0, count) for name, count in given.items() if count is not None}
        counts = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, **self._counts}
        self.reply.usage = usage_of(self.reply.model, **counts)


def _explanation(details: object) -> str:
    text = details.get("explanation") if isinstance(details, dict) else None
    return f": {text}" if isinstance(text, str) and text else ""
