"""A stage for the loop: a model that plays functions, tools of our own, a session in memory."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from knightcode.agent.hooks import Hooks
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.loop import AgentRun, Setup
from knightcode.agent.tools.base import Tool, ToolContext, ToolResult
from knightcode.events import SessionEvent
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    StoredMessage,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.sessions.context import SessionContext, build_context
from knightcode.sessions.entries import CustomMessageEntry, MessageEntry
from knightcode.sessions.log import SessionLog

Play = Callable[[ModelRequest, ReplyBuilder], Awaitable[None]]

MODEL = Model(provider="p", id="m", name="M", api="a", base_url="")


def now_ms() -> int:
    """Trio's clock as the time of day: what is tested with a mock clock sees its time."""
    return int(trio.current_time() * 1000)


def says(text: str, *calls: tuple[str, str, str], stop: str | None = None) -> Play:
    """A reply: text, then calls as (id, tool, JSON arguments)."""

    async def play(_: ModelRequest, reply: ReplyBuilder) -> None:
        await trio.lowlevel.checkpoint()
        if text:
            reply.delta(reply.open_text(), text)
        for call_id, name, arguments in calls:
            reply.delta(reply.open_tool_call(call_id, name), arguments)
        reply.done(stop or ("toolUse" if calls else "stop"))  # type: ignore[arg-type]

    return play


@attrs.define(eq=False)
class Plays:
    """The models of a stage: each request takes the next play."""

    plays: list[Play]
    asked: list[ModelRequest] = attrs.field(factory=list)

    async def stream(self, request: ModelRequest, reply: ReplyBuilder) -> None:
        self.asked.append(request)
        await self.plays.pop(0)(request, reply)


@attrs.define(eq=False)
class OwnTool:
    """A tool whose work is a function."""

    name: str
    work: Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]
    sequential: bool = False
    description: str = "does it"
    parameters: dict[str, Any] = attrs.field(factory=lambda: {"type": "object", "properties": {}})
    snippet: str | None = None
    guidelines: tuple[str, ...] = ()
    builtin: bool = False

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return await self.work(arguments, context)


@attrs.define(eq=False)
class Stage:
    """One run and everything that it touched."""

    run: AgentRun
    models: Plays
    log: SessionLog
    memory: "_Memory"
    interrupt: Interrupt
    hooks: Hooks
    events: list[SessionEvent]

    @property
    def results(self) -> list[ToolResultMessage]:
        """In the order in which they were stored."""
        messages = [entry.message for entry in self.log.entries if isinstance(entry, MessageEntry)]
        return [message for message in messages if isinstance(message, ToolResultMessage)]

    async def play(self, text: str = "go") -> AssistantMessage:
        """Run with one user message."""
        return await self.run.run([UserMessage(timestamp=now_ms(), content=text)])

    def told(self) -> list[str]:
        """The events' types."""
        return [str(event.__struct_config__.tag) for event in self.events]

    def outcomes(self) -> dict[str, tuple[bool, str]]:
        """Of every call with a result: whether it failed, and its text."""
        return {one.tool_call_id: (one.is_error, text_of(one.content)) for one in self.results}


@attrs.define(eq=False)
class _Memory:
    log: SessionLog
    full: bool = False

    def append(self, message: StoredMessage | CustomMessage) -> None:
        if self.full:
            raise OSError("disk full")
        if isinstance(message, CustomMessage):
            self.log.append_entry(
                CustomMessageEntry(
                    custom_type=message.custom_type, content=message.content, display=message.display
                )
            )
        else:
            self.log.append_message(message)

    def context(self) -> SessionContext:
        return build_context(self.log.branch())


@asynccontextmanager
async def open_stage(plays: Sequence[Play], *tools: Tool) -> AsyncIterator[Stage]:
    """A stage; on exit calls that were abandoned are cancelled."""
    log = SessionLog.create(cwd="/", folder=None, now_ms=now_ms)
    memory = _Memory(log)
    models, interrupt, hooks = Plays(list(plays)), Interrupt(), Hooks()
    events: list[SessionEvent] = []
    async with trio.open_nursery() as calls:
        run = AgentRun(
            conversation=memory,
            models=models,
            setup=lambda: Setup(MODEL, "off", {tool.name: tool for tool in tools}, {"preamble": "Be good."}),
            hooks=hooks,
            interrupt=interrupt,
            calls=calls,
            tool_context=lambda: ToolContext(cwd=Path("/"), environment={}),
            emit=events.append,
            now_ms=now_ms,
            session_id="s",
        )
        yield Stage(run, models, log, memory, interrupt, hooks, events)
        calls.cancel_scope.cancel()
