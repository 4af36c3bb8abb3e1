"""A written conversation that a model plays: the file's format, and which reply a request gets.

Pure but for `load`. The format is described, with examples, in docs/scripted-model.md.

Source: models and providers, "Open points" (testing without network).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
from msgspec import Meta, Struct

from knightcode.messages import AssistantMessage, ToolResultMessage, UserMessage, text_of
from knightcode.models.catalog import PriceFacts
from knightcode.models.jsonc import BadJsonError, parse_jsonc
from knightcode.models.model import Model
from knightcode.models.request import ModelRequest
from knightcode.regular_file import read_regular

PROVIDER: Final = "scripted"
_QUOTED_CHARS: Final = 80
_PLACEHOLDER: Final = re.compile(r"\{\{(user|toolResult|request)\}\}")

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Milliseconds = Annotated[float, Meta(ge=0)]
WholeMilliseconds = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class ScriptError(Exception):
    """A script cannot be used; the text names the file, the place and what to do."""


class ScriptPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in a script. A member that is not known is a spelling mistake."""


class ScriptedCall(ScriptPart, frozen=True, kw_only=True):
    """A tool call; `arguments_text` is sent as it is, for arguments that are not JSON."""

    name: str
    arguments: dict[str, Any] = {}
    arguments_text: str | None = None
    id: str | None = None


class Step(ScriptPart, frozen=True, kw_only=True):
    """One thing that a reply does: exactly one of the first six members is there."""

    text: str | None = None
    thinking: str | None = None
    tool_call: ScriptedCall | None = None
    wait_ms: Milliseconds | None = None
    silence: Literal[True] | None = None
    error: str | None = None
    repeat: Count = 1
    chunk: Count | None = None
    delay_ms: Milliseconds | None = None
    retry_after_ms: WholeMilliseconds | None = None

    def __post_init__(self) -> None:
        actions = (self.text, self.thinking, self.tool_call, self.wait_ms, self.silence, self.error)
        if sum(action is not None for action in actions) != 1:
            raise ValueError("a step has exactly one of text, thinking, toolCall, waitMs, silence, error")
        if self.retry_after_ms is not None and self.error is None:
            raise ValueError("retryAfterMs belongs to a step with error")


class When(ScriptPart, frozen=True, kw_only=True):
    """What a request must be like; all members that are there must hold."""

    user: str | None = None
    tool_result: str | None = None
    tool_result_text: str | None = None
    tool_error: bool | None = None
    system: str | None = None
    request: Count | None = None

    def matches(self, request: ModelRequest, number: int) -> bool:
        """Whether a request, the `number`-th of its session, is like this."""
        last = request.messages[-1] if request.messages else None
        result = last if isinstance(last, ToolResultMessage) else None
        if self.user is not None and not (
            isinstance(last, UserMessage) and self.user in text_of(last.content)
        ):
            return False
        if (self.tool_result, self.tool_result_text, self.tool_error) != (
            None,
            None,
            None,
        ) and result is None:
            return False
        return (
            (self.tool_result is None or (result is not None and result.tool_name == self.tool_result))
            and (self.tool_result_text is None or self.tool_result_text in last_tool_text(request))
            and (self.tool_error is None or (result is not None and result.is_error == self.tool_error))
            and (self.system is None or self.system in request.system_prompt)
            and (self.request is None or self.request == number)
        )


class ScriptedUsage(ScriptPart, frozen=True, kw_only=True):
    """Tokens that a reply reports."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class ScriptedReply(ScriptPart, frozen=True, kw_only=True):
    """One reply. With `when` it answers every request that matches, `times` limits how many."""

    steps: tuple[Step, ...]
    when: When | None = None
    times: Count | None = None
    stop: Literal["stop", "length", "toolUse"] | None = None
    usage: ScriptedUsage | None = None


class ScriptedModel(ScriptPart, frozen=True, kw_only=True):
    """How the model is listed."""

    id: Annotated[str, Meta(min_length=1)] = "scripted"
    name: str = "Scripted model"
    context_window: Count = 200_000
    max_tokens: Count = 32_000
    reasoning: bool = True
    input: tuple[Literal["text", "image"], ...] = ("text", "image")
    cost: PriceFacts = PriceFacts()


class Pace(ScriptPart, frozen=True, kw_only=True):
    """For steps that say nothing else: characters to a delta (absent: all), milliseconds before each."""

    chunk: Count | None = None
    delay_ms: Milliseconds = 0.0


class _Script(ScriptPart, frozen=True, kw_only=True):
    replies: tuple[ScriptedReply, ...]
    model: ScriptedModel = ScriptedModel()
    pace: Pace = Pace()


@attrs.define(eq=False)
class Progress:
    """How far one session is in a script."""

    requests: int = 0
    used: dict[int, int] = attrs.field(factory=dict)


@attrs.frozen
class ScriptedConversation:
    """A script that has been read. It holds no state; each session brings its `Progress`.

    Attributes:
        source: what error texts call it, usually its path.
    """

    source: str
    described: ScriptedModel
    pace: Pace
    replies: tuple[ScriptedReply, ...]

    @classmethod
    def parse(cls, text: str | bytes, source: str = "script") -> "ScriptedConversation":
        """The conversation written in `text`, JSON with comments.

        Raises:
            ScriptError: with the place, a line for syntax and a path for shape.
        """
        try:
            value = parse_jsonc(text.encode("utf-8", "replace") if isinstance(text, str) else text)
            script = msgspec.convert(value, _Script)
        except BadJsonError as error:
            raise ScriptError(f"{source}: {error}; a script is JSON, comments allowed") from error
        except msgspec.ValidationError as error:
            raise ScriptError(f"{source}: {error}; docs/scripted-model.md describes the format") from error
        return cls(source, script.model, script.pace, script.replies)

    @classmethod
    def load(cls, path: Path) -> "ScriptedConversation":
        """The conversation in a file.

        Raises:
            ScriptError: the file cannot be read, or not be used.
        """
        try:
            data = read_regular(path)
        except OSError as error:
            raise ScriptError(
                f"{path}: cannot be read: {error.strerror}; name a file that holds a script"
            ) from error
        return cls.parse(data, str(path))

    def model(self, base_url: str) -> Model:
        """The model as the registry lists it; `base_url` is where the adapter finds the script."""
        about = self.described
        return Model(
            provider=PROVIDER,
            provider_name="Scripted",
            id=about.id,
            name=about.name,
            api="scripted",
            base_url=base_url,
            reasoning=about.reasoning,
            input=about.input,
            prices=about.cost.prices(),
            context_window=about.context_window,
            max_tokens=about.max_tokens,
        )

    def next_reply(self, request: ModelRequest, progress: Progress) -> ScriptedReply | None:
        """The reply to a request; `progress` moves on. None when there is none.

        First the replies with `when`, in order, that match and are not used up; then the first reply
        without `when` that this session has not had.
        """
        progress.requests += 1
        for number, reply in enumerate(self.replies):
            used = progress.used.get(number, 0)
            fits = reply.when is not None and reply.when.matches(request, progress.requests)
            if fits and (reply.times is None or used < reply.times):
                progress.used[number] = used + 1
                return reply
        for number, reply in enumerate(self.replies):
            used = progress.used.get(number, 0)
            if reply.when is None and used < (reply.times or 1):
                progress.used[number] = used + 1
                return reply
        return None

    def no_reply_text(self, request: ModelRequest, progress: Progress) -> str:
        """Why a request has no reply, and what was asked."""
        last = request.messages[-1] if request.messages else None
        asked = "with no message"
        if isinstance(last, UserMessage):
            asked = f'of the user, "{_shortened(text_of(last.content))}"'
        elif isinstance(last, ToolResultMessage):
            asked = f'with the result of {last.tool_name}, "{_shortened(text_of(last.content))}"'
        return f"{self.source} has no reply to request {progress.requests} of this session, {asked}; add one"


UNREADABLE: Final = ScriptedConversation("script", ScriptedModel(), Pace(), ())
"""Stands for a script that could not be read, so that its model is listed all the same."""


def fill(text: str, request: ModelRequest, number: int) -> str:
    """`text` with `{{user}}`, `{{toolResult}}` and `{{request}}` replaced by what was asked."""
    if "{{" not in text:
        return text
    values = {"user": last_user_text(request), "toolResult": last_tool_text(request), "request": str(number)}
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def fill_json(value: Any, request: ModelRequest, number: int) -> Any:
    """A JSON value with `fill` applied to every string in it."""
    if isinstance(value, str):
        return fill(value, request, number)
    if isinstance(value, list):
        return [fill_json(item, request, number) for item in value]
    if isinstance(value, Mapping):
        return {key: fill_json(item, request, number) for key, item in value.items()}
    return value


def last_user_text(request: ModelRequest) -> str:
    """What the user said last."""
    users = (message for message in reversed(request.messages) if isinstance(message, UserMessage))
    return next((text_of(message.content) for message in users), "")


def last_tool_text(request: ModelRequest) -> str:
    """What the last tool gave back."""
    results = (message for message in reversed(request.messages) if isinstance(message, ToolResultMessage))
    return next((text_of(message.content) for message in results), "")


def request_chars(request: ModelRequest) -> int:
    """Characters of a request's text."""
    texts = [request.system_prompt]
    for message in request.messages:
        texts.append(text_of(message.content))
        if isinstance(message, AssistantMessage):
            texts += [str(block.arguments) for block in message.content if hasattr(block, "arguments")]
    return sum(map(len, texts))


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _QUOTED_CHARS else flat[:_QUOTED_CHARS] + "…"
