"""Providers as programs reach them: what a model says, in each wire's own words, over a loopback server.

A `Dialect` is one wire. The same conversation is written once, as `Part`s, and told by either.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Protocol

import attrs

from tests.app_server.pipe import Pipe, environment, open_pipe
from tests.models.loopback import END, SSE, Answer, Loopback, chunk, open_loopback

Json = dict[str, Any]
StopWord = Literal["stop", "length", "toolUse"]

KEY = "sk-loopback"
PRICES = {"input": 3, "output": 15, "cacheRead": 0.5, "cacheWrite": 4}
"""US dollars per million tokens."""

CONTEXT_WINDOW = 100_000
MAX_TOKENS = 8_000
_SURROGATE = re.compile("[\ud800-\udfff]")


@attrs.frozen
class Part:
    """One block of a reply; each piece is one delta. `id` and `name` are a call's."""

    kind: Literal["text", "thinking", "call"]
    pieces: tuple[str, ...]
    id: str = ""
    name: str = ""


def says(*pieces: str) -> Part:
    return Part("text", pieces)


def thinks(*pieces: str) -> Part:
    return Part("thinking", pieces)


def calls(call_id: str, tool: str, *pieces: str, **arguments: Any) -> Part:
    """A tool call; `pieces` are its arguments as text, for those that are not JSON or come in parts."""
    return Part("call", pieces or (json.dumps(arguments),), call_id, tool)


@attrs.frozen
class Tokens:
    """A reply's usage as the provider counts it; `input` leaves out what the cache served."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0

    @property
    def all(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    @property
    def cost(self) -> float:
        """US dollars, by `PRICES`."""
        return (
            self.input * PRICES["input"]
            + self.output * PRICES["output"]
            + self.cache_read * PRICES["cacheRead"]
            + self.cache_write * PRICES["cacheWrite"]
        ) / 1e6


class Dialect(Protocol):
    """One provider's wire."""

    @property
    def api(self) -> str:
        """Its name in models.json."""

    @property
    def base_path(self) -> str:
        """What a base URL ends with."""

    @property
    def path(self) -> str:
        """Where a request is posted."""

    @property
    def part_endings(self) -> int:
        """How many events do nothing but end a part."""

    def opening(self, tokens: Tokens) -> Iterator[Json]:
        """Events before the first part."""

    def told(self, parts: Sequence[Part], *, interleaved: bool) -> Iterator[Json]:
        """Events of the parts, one after the other or their pieces in turns."""

    def ending(self, parts: Sequence[Part], stop: StopWord, tokens: Tokens) -> Iterator[Json | str]:
        """Events after the last part."""

    def framed(self, event: Json | str) -> bytes:
        """An event as it travels."""

    def system(self, body: Json) -> str:
        """The system prompt of a request's body."""

    def tools(self, body: Json) -> list[tuple[str, str, Any]]:
        """Name, description and schema of the tools that a request's body declares."""

    def conversation(self, body: Json) -> list[Json]:
        """The messages of a request's body, without the system prompt."""


def reply(
    dialect: Dialect,
    *parts: Part,
    stop: StopWord | None = None,
    tokens: Tokens | None = None,
    interleaved: bool = False,
) -> Answer:
    """A whole reply. It stops for its calls if it has some, else because it is done."""
    tokens = tokens or Tokens()
    stop = stop or ("toolUse" if any(part.kind == "call" for part in parts) else "stop")
    events: list[Json | str] = [
        *dialect.opening(tokens),
        *dialect.told(parts, interleaved=interleaved),
        *dialect.ending(parts, stop, tokens),
    ]
    return [SSE, b"".join(chunk(dialect.framed(event)) for event in events), END]


def begun(dialect: Dialect, *parts: Part) -> bytes:
    """The head and the first events of a reply whose end is another matter; its last part stays open."""
    events = [*dialect.opening(Tokens()), *dialect.told(parts, interleaved=False)]
    whole = len(events) - dialect.part_endings
    return SSE + b"".join(chunk(dialect.framed(event)) for event in events[:whole])


def in_turns(pieces: Sequence[Sequence[Json]]) -> Iterator[Json]:
    """The first of each, then the second of each, and so on."""
    return (event for row in zip_longest(*pieces) for event in row if event is not None)


def _json(event: Json) -> bytes:
    """JSON in which line separators stand as they are, and lone surrogates as their escapes."""
    text = json.dumps(event, ensure_ascii=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


@attrs.frozen
class AnthropicMessages:
    """The Anthropic Messages api."""

    api: str = "anthropic-messages"
    base_path: str = ""
    path: str = "/v1/messages"
    part_endings: int = 1

    def opening(self, tokens: Tokens) -> Iterator[Json]:
        usage = {
            "input_tokens": tokens.input,
            "output_tokens": 1,
            "cache_read_input_tokens": tokens.cache_read,
            "cache_creation_input_tokens": tokens.cache_write,
        }
        yield {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "usage": usage}}

    def told(self, parts: Sequence[Part], *, interleaved: bool) -> Iterator[Json]:
        blocks = [self._block(index, part) for index, part in enumerate(parts)]
        yield from in_turns(blocks) if interleaved else (event for block in blocks for event in block)

    def ending(self, parts: Sequence[Part], stop: StopWord, tokens: Tokens) -> Iterator[Json | str]:
        reason = {"stop": "end_turn", "length": "max_tokens", "toolUse": "tool_use"}[stop]
        usage = {"output_tokens": tokens.output}
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
        yield {"type": "message_stop"}

    def framed(self, event: Json | str) -> bytes:
        assert isinstance(event, dict)
        return b"event: " + str(event["type"]).encode() + b"\ndata: " + _json(event) + b"\n\n"

    def system(self, body: Json) -> str:
        (block,) = body["system"]
        text: str = block["text"]
        return text

    def tools(self, body: Json) -> list[tuple[str, str, Any]]:
        return [(tool["name"], tool["description"], tool["input_schema"]) for tool in body["tools"]]

    def conversation(self, body: Json) -> list[Json]:
        messages: list[Json] = body["messages"]
        return messages

    def _block(self, index: int, part: Part) -> list[Json]:
        start: Json = {"type": "text", "text": ""}
        field = "text_delta", "text"
        if part.kind == "thinking":
            start, field = {"type": "thinking", "thinking": ""}, ("thinking_delta", "thinking")
        elif part.kind == "call":
            start = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
            field = "input_json_delta", "partial_json"
        deltas: list[Json] = [{"type": field[0], field[1]: piece} for piece in part.pieces]
        if part.kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": "signed"})
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]


@attrs.frozen
class ChatCompletions:
    """The OpenAI Chat Completions api."""

    api: str = "openai-completions"
    base_path: str = "/v1"
    path: str = "/v1/chat/completions"
    part_endings: int = 0

    def opening(self, tokens: Tokens) -> Iterator[Json]:
        yield self._chunk({"role": "assistant", "content": ""})

    def told(self, parts: Sequence[Part], *, interleaved: bool) -> Iterator[Json]:
        numbers = {id(part): n for n, part in enumerate(part for part in parts if part.kind == "call")}
        told = [[self._chunk(delta) for delta in self._deltas(part, numbers)] for part in parts]
        yield from in_turns(told) if interleaved else (event for part in told for event in part)

    def ending(self, parts: Sequence[Part], stop: StopWord, tokens: Tokens) -> Iterator[Json | str]:
        reason = {"stop": "stop", "length": "length", "toolUse": "tool_calls"}[stop]
        usage = {
            "prompt_tokens": tokens.input + tokens.cache_read + tokens.cache_write,
            "completion_tokens": tokens.output,
            "prompt_tokens_details": {
                "cached_tokens": tokens.cache_read,
                "cache_write_tokens": tokens.cache_write,
            },
        }
        yield self._chunk({}, reason)
        yield {"id": "chat_1", "model": "m-1", "choices": [], "usage": usage}
        yield "[DONE]"

    def framed(self, event: Json | str) -> bytes:
        return b"data: " + (event.encode() if isinstance(event, str) else _json(event)) + b"\n\n"

    def system(self, body: Json) -> str:
        first = body["messages"][0]
        assert first["role"] in ("system", "developer")
        text: str = first["content"]
        return text

    def tools(self, body: Json) -> list[tuple[str, str, Any]]:
        functions = [tool["function"] for tool in body["tools"]]
        return [(one["name"], one["description"], one["parameters"]) for one in functions]

    def conversation(self, body: Json) -> list[Json]:
        messages: list[Json] = body["messages"][1:]
        return messages

    def _deltas(self, part: Part, numbers: Mapping[int, int]) -> Iterator[Json]:
        if part.kind != "call":
            field = "content" if part.kind == "text" else "reasoning_content"
            yield from ({field: piece} for piece in part.pieces)
            return
        index = numbers[id(part)]
        function = {"name": part.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": part.id, "type": "function", "function": function}]}
        for piece in part.pieces:
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

    def _chunk(self, delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "chat_1", "model": "m-1", "choices": [choice]}


DIALECTS: tuple[Dialect, ...] = (AnthropicMessages(), ChatCompletions())


def name_of(dialect: Dialect) -> str:
    """For the ids of parametrised tests."""
    return dialect.api


# --- the product's side --------------------------------------------------------------------------


def configure(home: Path, dialect: Dialect, url: str, model: Json | None = None, **settings: Any) -> None:
    """Make the provider at `url` the one that threads of this home begin with.

    Replies are not asked for again after a failure: every answer of the loopback server is one request.
    """
    agent = home / "agent"
    agent.mkdir(parents=True, exist_ok=True)
    known = {"id": "m-1", "cost": PRICES, "contextWindow": CONTEXT_WINDOW, "maxTokens": MAX_TOKENS}
    entry = {
        "api": dialect.api,
        "baseUrl": url + dialect.base_path,
        "apiKey": KEY,
        "models": [{**known, **(model or {})}],
    }
    (agent / "models.json").write_text(json.dumps({"providers": {"acme": entry}}))
    chosen = {"defaultProvider": "acme", "defaultModel": "m-1", "retry": {"enabled": False}}
    (agent / "settings.json").write_text(json.dumps({**chosen, **settings}))


@asynccontextmanager
async def open_provided(
    folder: Path,
    dialect: Dialect,
    *answers: Answer,
    model: Json | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Pipe, Loopback]]:
    """A server over a pipe, after its handshake, and the provider that its threads ask.

    Args:
        model: what models.json says of the model, beside what all tests want.
        environ: variables of the server's, beside the clean ones.
        settings: of settings.json.
    """
    home = folder / "home"
    async with open_loopback(*answers) as provider:
        configure(home, dialect, provider.url, model, **settings)
        async with open_pipe(home, environ=environment(home, **(environ or {}))) as pipe:
            await pipe.handshake()
            yield pipe, provider
