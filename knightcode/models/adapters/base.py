"""What an adapter is, and what all of them reckon alike.

An adapter turns a request into a provider's wire format and what comes back into a reply.

Source: models and providers, "Common", "Thinking levels".
"""

import functools
import json
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

import msgspec

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    ModelMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    Usage,
)
from knightcode.models.auth import Credentials
from knightcode.models.errors import RequestFailedError
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.text import loads_clean

DEFAULT_BUDGETS: Final[Mapping[ThinkingLevel, int]] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
}
ANSWER_TOKENS: Final = 1024
"""Left for the answer, and the smallest budget that is worth sending."""

_OUTPUT_LIMIT: Final = 32_000
_ROOM_KEPT: Final = 4096
_IMAGE_CHARS: Final = 4800
_QUOTED_CHARS: Final = 500


class Adapter(Protocol):
    """Speaks one api."""

    async def stream(self, request: ModelRequest, reply: ReplyBuilder, credentials: Credentials) -> None:
        """Send the request and put what arrives into `reply`, until it is finished.

        A failure, of the provider or on the way to it, ends the reply as an error; it is not raised.
        Cancelled passes through; whoever asked then aborts the reply.
        """


def prompt_tokens(request: ModelRequest) -> int:
    """About how large the request is, on the safe side: what the last reply reported, and what came since."""
    since, known = len(request.messages), 0
    for at in range(len(request.messages) - 1, -1, -1):
        message = request.messages[at]
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            usage = message.usage
            known = usage.input + usage.output + usage.cache_read + usage.cache_write
            if known:
                since = at + 1
                break
    else:
        since = 0
    chars = sum(_chars(message) for message in request.messages[since:])
    if not known:
        tools = sum(len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
        chars += len(request.system_prompt) + tools
    return known + int(1.5 * chars / 4)


def output_room(request: ModelRequest) -> int:
    """Tokens that the context window leaves for the reply, at least 1."""
    return max(1, request.model.context_window - prompt_tokens(request) - _ROOM_KEPT)


def output_limit(request: ModelRequest) -> int:
    """The `max_tokens` of the reply."""
    asked = request.max_tokens
    return min(asked or min(request.model.max_tokens, _OUTPUT_LIMIT), output_room(request))


def thinking_budget(request: ModelRequest, level: ThinkingLevel) -> int:
    """Tokens for thinking at a level above `off`."""
    row: ThinkingLevel = "high" if level in ("xhigh", "max") else level
    return int(request.thinking_budgets.get(row, DEFAULT_BUDGETS.get(row, 0)))


def usage_of(
    model: Model,
    *,
    input: int,  # noqa: A002 -- the word of the price list
    output: int,
    cache_read: int,
    cache_write: int,
    cache_write_1h: int = 0,
) -> Usage:
    """Usage with its cost. `cache_write_1h` is the part of `cache_write` that is kept for an hour."""
    return Usage(
        input=input,
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        total_tokens=input + output + cache_read + cache_write,
        cost=model.prices.cost_of(
            input=input,
            output=output,
            cache_read=cache_read,
            cache_write=cache_write,
            cache_write_1h=cache_write_1h,
        ),
    )


_T = TypeVar("_T")


def read_compat(kind: type[_T], detected: Mapping[str, object], model: Model) -> _T:
    """What the model's server can do: detected, under what the model itself says.

    Raises:
        RequestFailedError: the model says it in a shape that cannot be read.
    """
    try:
        return msgspec.convert({**detected, **model.compat}, kind)
    except msgspec.ValidationError as error:
        raise RequestFailedError(
            f"the compat settings of {model.provider}/{model.id} are wrong: {error}"
        ) from error


def decode_event(decoder: "msgspec.json.Decoder[_T]", data: bytes) -> _T:
    """One event's JSON as the decoder's type; broken UTF-8 is mended.

    A lone surrogate is kept: its other half may come with the next event. The reply joins them.

    Raises:
        RequestFailedError: it is not JSON, or not of the shape that the api promises.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = str(error)
    try:
        text = data.decode("utf-8", "replace")
        loads_clean(text)  # only for what it refuses; its value has lost the halves
        return msgspec.convert(json.loads(text), decoder.type)  # type: ignore[no-any-return]
    except (ValueError, RecursionError, msgspec.ValidationError):
        quoted = data[:_QUOTED_CHARS].decode("utf-8", "replace")
        raise RequestFailedError(f"provider returned error: unreadable event ({problem}): {quoted}") from None


@functools.cache
def user_agent() -> str:
    """The product and its version, in every request's User-Agent."""
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and needed once

    try:
        return f"knightcode/{version('knightcode')}"
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "knightcode/0"


def _chars(message: ModelMessage) -> int:
    if isinstance(message.content, str):
        return len(message.content)
    total = 0
    for block in message.content:
        match block:
            case TextBlock():
                total += len(block.text)
            case ThinkingBlock():
                total += len(block.thinking)
            case ToolCallBlock():
                total += len(block.name) + len(str(block.arguments))
            case ImageBlock():
                total += _IMAGE_CHARS
    return total
