"""Shorthand of the tests: models, requests, and a reply with the events that it emitted."""

from contextlib import aclosing
from typing import Any

import attrs
import trio

from knightcode.events import ReplyEvent
from knightcode.messages import AssistantMessage, ModelMessage, UserMessage
from knightcode.models.adapters.anthropic_messages import AnthropicMessages
from knightcode.models.adapters.base import Adapter
from knightcode.models.adapters.openai_chat import OpenAIChat
from knightcode.models.auth import Credentials
from knightcode.models.http import Http
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.models.settings import ModelSettings
from knightcode.models.wire import HttpWire
from tests.models.loopback import Answer, Loopback, open_loopback

KEY = "sk-test"


def make_model(api: str = "openai-completions", **changes: Any) -> Model:
    known: dict[str, Any] = {
        "provider": "acme",
        "id": "m-1",
        "name": "M 1",
        "base_url": "https://api.acme.example/v1",
        "input": ("text", "image"),
    }
    return Model(api=api, **{**known, **changes})


def user(text: str) -> UserMessage:
    return UserMessage(timestamp=1, content=text)


def ask(model: Model, *messages: ModelMessage, **changes: Any) -> ModelRequest:
    """A request; without messages it says hello."""
    known: dict[str, Any] = {"system_prompt": "Be brief.", **changes}
    return ModelRequest(model=model, messages=messages or (user("Hello"),), **known)


@attrs.define(eq=False)
class Asked:
    """A reply under a clock that stands still, and what it emitted."""

    model: Model
    events: list[ReplyEvent] = attrs.field(factory=list)
    starts: int = 0
    reply: ReplyBuilder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reply = ReplyBuilder(self.model, self.events.append, lambda: 1000, self._start)

    def _start(self) -> None:
        self.starts += 1

    @property
    def message(self) -> AssistantMessage:
        return self.reply.message()

    @property
    def kinds(self) -> list[str]:
        return [str(event.__struct_config__.tag) for event in self.events]

    @property
    def outcome(self) -> tuple[str, str | None]:
        return self.message.stop_reason, self.message.error_message


async def ask_loopback(
    answer: Answer, request: ModelRequest, settings: ModelSettings | None = None
) -> tuple[Asked, Loopback]:
    """Send a request through its adapter to a server with one answer."""
    with trio.fail_after(5):
        async with open_loopback(answer) as server, aclosing(Http({})) as http:
            wire = HttpWire(http, settings or ModelSettings())
            adapter: Adapter = OpenAIChat(wire)
            if request.model.api == "anthropic-messages":
                adapter = AnthropicMessages(wire)
            asked = Asked(request.model)
            await adapter.stream(request, asked.reply, Credentials(server.url, KEY))
    return asked, server
