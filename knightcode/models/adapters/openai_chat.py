"""The Chat Completions api: its stream of chunks turned into a reply.

Source: models and providers, "OpenAI Chat Completions".
"""

from typing import Any, Final, Literal

import attrs
import msgspec

from knightcode.models.adapters.base import decode_event, usage_of
from knightcode.models.adapters.openai_body import build_request
from knightcode.models.auth import Credentials
from knightcode.models.characters import begins_with_half, encode_clean, join_pairs
from knightcode.models.errors import RequestFailedError
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.models.sse import SseEvent
from knightcode.models.wire import Wire

_STOPS: Final[dict[str, Literal["stop", "length", "toolUse"]]] = {
    "stop": "stop",
    "end": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}
_MERGED_DETAILS: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(msgspec.Struct, frozen=True, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, frozen=True):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None
    reasoning_details: list[Any] | None = None
    tool_calls: list[_CallDelta] | None = None


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: float | None = None
    completion_tokens: float | None = None
    prompt_cache_hit_tokens: float | None = None
    cached_tokens: float | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


class _Chunk(msgspec.Struct, frozen=True):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_DECODER: Final = msgspec.json.Decoder(_Chunk)


@attrs.frozen
class OpenAIChat:
    """Adapter of the api `openai-completions`."""

    wire: Wire

    async def stream(self, request: ModelRequest, reply: ReplyBuilder, credentials: Credentials) -> None:
        """See `Adapter.stream`."""
        try:
            sent = build_request(request, credentials)
            async with self.wire.events(sent.url, sent.headers, sent.body, request.inspector) as stream:
                reply.start()
                reader = _Reader(reply, needs_reason=sent.compat.supports_finish_reason)
                async for events in stream:
                    reader.take(events)
                    if reader.ended:
                        break
                reader.finish()
        except RequestFailedError as error:
            reply.fail(str(error), retry_after_ms=error.retry_after_ms)


@attrs.define(eq=False)
class _Call:
    """A tool call that is being written; its block opens once the tool's name is known."""

    id: str
    name: str = ""
    at: int | None = None
    held: str = ""


@attrs.define(eq=False)
class _Reader:
    """Puts the chunks of one stream into a reply."""

    reply: ReplyBuilder
    needs_reason: bool
    ended: bool = attrs.field(default=False, init=False)
    _text: int | None = attrs.field(default=None, init=False)
    _thinking: int | None = attrs.field(default=None, init=False)
    _details: list[Any] = attrs.field(factory=list, init=False)
    _calls: list[_Call] = attrs.field(factory=list, init=False)
    _by_index: dict[int, _Call] = attrs.field(factory=dict, init=False)

    def take(self, events: list[SseEvent]) -> None:
        """Handle what has arrived.

        Raises:
            RequestFailedError: a chunk is an error, or cannot be read.
        """
        for raw in events:
            if raw.data == b"[DONE]":
                self.ended = True
                return
            chunk = decode_event(_DECODER, raw.data)
            if chunk.error or raw.name == b"error":
                raise RequestFailedError(_error_text(chunk.error, raw.data))
            if self.reply.response_id is None:
                self._identify(chunk)
            if chunk.choices:
                self._choice(chunk.choices[0])
            if chunk.usage is not None:
                self._usage(chunk.usage)

    def finish(self) -> None:
        """The stream is over; end the reply by the reason it gave.

        Raises:
            RequestFailedError: it gave none, or one that is a failure.
        """
        for call in self._calls:
            self._open_call(call)
        if self._details:
            self._sign_details()
        reason = self.reply.raw_stop_reason
        if reason is None and not self.needs_reason:
            self.reply.done("toolUse" if self._calls else "stop")
        elif reason is None:
            raise RequestFailedError("response ended without finish_reason")
        elif reason in _STOPS:
            self.reply.done(_STOPS[reason])
        else:
            raise RequestFailedError(f"finish_reason {reason}")

    def _identify(self, chunk: _Chunk) -> None:
        if isinstance(chunk.id, str) and chunk.id:
            self.reply.response_id = chunk.id
        if isinstance(chunk.model, str) and chunk.model and chunk.model != self.reply.model.id:
            self.reply.response_model = chunk.model

    def _choice(self, choice: _Choice) -> None:
        if choice.delta is not None:
            self._delta(choice.delta)
        if choice.finish_reason:
            self.reply.raw_stop_reason = choice.finish_reason
        if choice.usage is not None:
            self._usage(choice.usage)

    def _delta(self, delta: _Delta) -> None:
        if delta.content:
            text = delta.content if isinstance(delta.content, str) else _joined_parts(delta.content)
            if self._text is None and text:
                self._text = self.reply.open_text()
            if self._text is not None:
                self.reply.delta(self._text, text)
        if thought := delta.reasoning_content or delta.reasoning or delta.reasoning_text:
            self._think(delta, thought)
        if delta.reasoning_details:
            for entry in delta.reasoning_details:
                _collect(self._details, entry)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call(call)

    def _think(self, delta: _Delta, thought: str) -> None:
        if self._thinking is None:
            self._thinking = self.reply.open_thinking()
            name = "reasoning_content" if delta.reasoning_content else "reasoning" if delta.reasoning else ""
            self.reply.sign(self._thinking, name or "reasoning_text")
        self.reply.delta(self._thinking, thought)

    def _call(self, delta: _CallDelta) -> None:
        function = delta.function or _Function()
        call = self._find_call(delta, function.name)
        call.name = call.name or function.name or ""
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = encode_clean(arguments).decode()
        if call.at is None:
            call.held += arguments
            if call.name:
                self._open_call(call)
        else:
            self.reply.delta(call.at, arguments)

    def _find_call(self, delta: _CallDelta, name: str | None) -> _Call:
        """The call that a delta goes on with, or a new one.

        Some servers give every call the index 0: another id together with a name is another call.
        """
        known: _Call | None = None
        if delta.index is not None:
            known = self._by_index.get(delta.index)
        elif delta.id:
            known = next((call for call in self._calls if call.id == delta.id), None)
        elif self._calls and not name:
            known = self._calls[-1]
        if known is not None and not (delta.id and name and known.name and delta.id != known.id):
            return known
        number = len(self._calls)
        call = _Call(id=delta.id or f"call_{self.reply.started_at_ms}_{number}")
        self._calls.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        return call

    def _open_call(self, call: _Call) -> None:
        if call.at is None:
            call.at = self.reply.open_tool_call(call.id, call.name)
            self.reply.delta(call.at, call.held)

    def _sign_details(self) -> None:
        if self._thinking is None:
            self._thinking = self.reply.open_thinking()
        self.reply.sign(self._thinking, encode_clean(self._details).decode())

    def _usage(self, usage: _Usage) -> None:
        details = usage.prompt_tokens_details or _PromptDetails()
        counts = (details.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens)
        cache_read = int(next((count for count in counts if count is not None), 0))
        cache_write = int(details.cache_write_tokens or 0)
        self.reply.usage = usage_of(
            self.reply.model,
            input=max(0, int(usage.prompt_tokens or 0) - cache_read - cache_write),
            output=int(usage.completion_tokens or 0),
            cache_read=cache_read,
            cache_write=cache_write,
        )


def _collect(details: list[Any], entry: Any) -> None:
    """Add one `reasoning_details` entry; text that goes on where the last entry stopped joins it."""
    last = details[-1] if details else None
    if isinstance(entry, dict) and isinstance(last, dict):
        field = _MERGED_DETAILS.get(str(entry.get("type")))
        if field and (last.get("type"), last.get("index")) == (entry.get("type"), entry.get("index")):
            given = {key: value for key, value in entry.items() if value is not None}
            before, more = last.get(field) or "", entry.get(field) or ""
            if isinstance(before, str) and isinstance(more, str):
                text = join_pairs(before + more) if begins_with_half(more) else before + more
                details[-1] = {**last, **given, field: text}
                return
    details.append(entry)


def _joined_parts(parts: list[Any]) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _error_text(error: Any, data: bytes) -> str:
    if not error:
        return data.decode("utf-8", "replace")
    return error if isinstance(error, str) else encode_clean(error).decode()
