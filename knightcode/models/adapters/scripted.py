"""The model in the box: plays a written conversation instead of asking a provider.

For demos, tests and authors of clients. It is there only when a script is named. Time passes by
trio's clock, so under a virtual clock a long reply takes no time.

Source: models and providers, "Open points" (testing without network).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from knightcode.messages import ModelMessage
from knightcode.models.adapters.base import usage_of
from knightcode.models.auth import Credentials
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.models.script import (
    Progress,
    ScriptedConversation,
    ScriptedReply,
    ScriptError,
    Step,
    fill,
    fill_json,
    request_chars,
)

_DELTAS_AT_ONCE: Final = 64  # as a provider's events arrive, several to one read
_SESSIONS_KEPT: Final = 10_000  # beyond any real server; the oldest starts again
_CHARS_PER_TOKEN: Final = 4


@attrs.define(eq=False)
class Scripted:
    """Adapter of the api `scripted`. Keeps, per script and session, which replies were given.

    Attributes:
        given: scripts that are no files, by the base URL that names them.
    """

    given: Mapping[str, ScriptedConversation] = attrs.field(factory=dict)
    _loaded: dict[str, tuple[int, ScriptedConversation]] = attrs.field(factory=dict, init=False)
    _progress: dict[tuple[str, str | None], Progress] = attrs.field(factory=dict, init=False)

    async def stream(self, request: ModelRequest, reply: ReplyBuilder, credentials: Credentials) -> None:
        """See `Adapter.stream`."""
        await trio.lowlevel.checkpoint()
        if request.inspector is not None:
            request = await _inspected(request)
        try:
            script = self._script(credentials.base_url)
        except ScriptError as error:
            reply.fail(str(error))
            return
        progress = self._progress_of(credentials.base_url, request.session_id)
        planned = script.next_reply(request, progress)
        if planned is None:
            reply.fail(script.no_reply_text(request, progress))
            return
        await _Player(script, request, reply, progress.requests).play(planned)

    def _script(self, base_url: str) -> ScriptedConversation:
        """The script at a base URL; a file that has changed is read again."""
        if base_url in self.given:
            return self.given[base_url]
        path = Path(base_url)
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            changed = 0  # loading says what is wrong
        known = self._loaded.get(base_url)
        if known is None or known[0] != changed:
            known = self._loaded[base_url] = (changed, ScriptedConversation.load(path))
        return known[1]

    def _progress_of(self, base_url: str, session_id: str | None) -> Progress:
        progress = self._progress.setdefault((base_url, session_id), Progress())
        if len(self._progress) > _SESSIONS_KEPT:
            del self._progress[next(iter(self._progress))]
        return progress


@attrs.define(eq=False)
class _Player:
    """Plays one reply."""

    script: ScriptedConversation
    request: ModelRequest
    reply: ReplyBuilder
    number: int
    _block: int | None = attrs.field(default=None, init=False)
    _kind: str = attrs.field(default="", init=False)
    _calls: int = attrs.field(default=0, init=False)
    _chars: int = attrs.field(default=0, init=False)
    _since_checkpoint: int = attrs.field(default=0, init=False)

    async def play(self, planned: ScriptedReply) -> None:
        for step in planned.steps:
            await self._step(step)
            if self.reply.finished:
                break
        self._report_usage(planned)
        self.reply.done(planned.stop or ("toolUse" if self._calls else "stop"))

    async def _step(self, step: Step) -> None:
        if step.wait_ms is not None:
            await trio.sleep(step.wait_ms / 1000)
        elif step.silence:
            await trio.sleep_forever()
        elif step.error is not None:
            text = fill(step.error, self.request, self.number)
            self.reply.fail(text, retry_after_ms=step.retry_after_ms)
        elif step.tool_call is not None:
            for _ in range(step.repeat):
                await self._call(step)
        elif step.text is not None:
            self._open("text")
            await self._deltas(fill(step.text, self.request, self.number), step, step.repeat)
        else:
            self._open("thinking")
            await self._deltas(fill(step.thinking or "", self.request, self.number), step, step.repeat)

    def _open(self, kind: str) -> None:
        """Go on in the block of the step before if it is of this kind, else begin one."""
        if self._kind == kind:
            return
        self._close()
        self._block = self.reply.open_text() if kind == "text" else self.reply.open_thinking()
        self._kind = kind

    def _close(self) -> None:
        if self._block is not None:
            self.reply.close(self._block)
        self._kind = ""

    async def _call(self, step: Step) -> None:
        call = step.tool_call
        assert call is not None
        self._close()
        self._calls += 1
        call_id = call.id or f"call_{self.number}_{self._calls}"
        self._block = self.reply.open_tool_call(call_id, call.name)
        arguments = call.arguments_text
        if arguments is None:
            filled = fill_json(call.arguments, self.request, self.number)
            arguments = msgspec.json.encode(filled).decode()
        await self._deltas(arguments, step, 1)

    async def _deltas(self, text: str, step: Step, repeat: int) -> None:
        size = step.chunk or self.script.pace.chunk or max(1, len(text))
        delay = self.script.pace.delay_ms if step.delay_ms is None else step.delay_ms
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        block = self._block
        assert block is not None
        self._chars += len(text) * repeat
        for _ in range(repeat):
            for piece in pieces:
                if delay:
                    await trio.sleep(delay / 1000)
                self.reply.delta(block, piece)
                self._since_checkpoint += 1
                if self._since_checkpoint >= _DELTAS_AT_ONCE:
                    self._since_checkpoint = 0
                    await trio.lowlevel.checkpoint()

    def _report_usage(self, planned: ScriptedReply) -> None:
        if self.reply.finished:
            return
        counts: dict[str, Any] = {
            "input": request_chars(self.request) // _CHARS_PER_TOKEN,
            "output": -(-self._chars // _CHARS_PER_TOKEN),
            "cache_read": 0,
            "cache_write": 0,
        }
        if planned.usage is not None:
            counts = msgspec.structs.asdict(planned.usage)
        self.reply.usage = usage_of(self.reply.model, **counts)


async def _inspected(request: ModelRequest) -> ModelRequest:
    """The request as its inspector leaves it: it may replace the prompt and the messages."""
    inspector = request.inspector
    assert inspector is not None
    body = {
        "model": request.model.id,
        "system": request.system_prompt,
        "messages": msgspec.to_builtins(request.messages),
        "tools": [tool.name for tool in request.tools],
    }
    body = await inspector.before_request(body)
    await inspector.after_response(200, {})
    messages = msgspec.convert(body.get("messages"), tuple[ModelMessage, ...])
    return attrs.evolve(request, system_prompt=str(body.get("system", "")), messages=messages)
