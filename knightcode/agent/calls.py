"""Running the tool calls of one reply.

Calls are prepared one by one in order (shown, looked up, checked, judged by the gates), then run
side by side, each in a task of its own that the batch cancels when the turn is interrupted. A call
that ignores that for `ABANDON_AFTER` seconds is abandoned: the turn goes on without it, and whatever
it does later appears nowhere.

Source: agent loop, "Tool calls"; App Server notes, "Interrupts".
"""

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs
import trio

from knightcode.agent.hooks import Blocked, FinishedCall, Hooks, PendingCall
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.tools.base import OPERATION_ABORTED, Tool, ToolContext, ToolError, ToolResult
from knightcode.agent.tools.validate import validate
from knightcode.events import (
    PartialResult,
    SessionEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.failures import first_leaf
from knightcode.messages import InputBlock, TextBlock, ToolCallBlock, ToolResultMessage
from knightcode.text import clean, clean_json

log = logging.getLogger(__name__)

ABANDON_AFTER = 5.0
"""Seconds that an interrupted call has for its clean-up; App Server notes, "Interrupts"."""

UPDATE_INTERVAL = 0.1
"""Seconds between two partial results of a call that are shown; App Server notes, `outputDelta`."""

_CUT_OFF = (
    "The reply reached its output limit before this call was complete, so its arguments may be cut off. "
    "Nothing was run; send the call again."
)

_BROKEN = (
    "The arguments of this call were not valid JSON, so they may not be what was meant. Nothing was run; "
    "send the call again."
)


@attrs.define(eq=False)
class _Call:
    block: ToolCallBlock
    started_at_ms: int
    tool: Tool | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    ended: trio.Event = attrs.field(factory=trio.Event, repr=False)
    result: ToolResult | None = None  # set once; everything that comes later is dropped
    message: ToolResultMessage | None = None
    failure: Exception | None = None  # the result could not be stored
    pending: ToolResult | None = None  # a partial result that waits for its time
    shown_at: float = -math.inf


@attrs.define(eq=False)
class ToolBatch:
    """The calls of one reply. `run` is used once.

    Attributes:
        nursery: holds the calls' tasks; it belongs to the process, so that an abandoned call keeps
            no turn and no thread from ending.
        context: makes the context of one call.
        store: keeps each result as soon as it is there, before the event that says that the call ended:
            what a client was told of a call is in the file, whatever its siblings do.
        broken: calls whose arguments were no JSON; they are shown, and must not run.
    """

    calls: Sequence[ToolCallBlock]
    tools: Callable[[str], Tool | None]
    hooks: Hooks
    interrupt: Interrupt
    nursery: trio.Nursery
    context: Callable[[], ToolContext]
    emit: Callable[[SessionEvent], None]
    store: Callable[[ToolResultMessage], None]
    now_ms: Callable[[], int]
    cut_off: bool = False
    broken: Collection[str] = ()
    terminate: bool = attrs.field(default=False, init=False)

    async def run(self) -> list[ToolResultMessage]:
        """Run the calls; the results come in call order, without those never reached."""
        if any(
            tool is not None and tool.sequential for tool in map(self.tools, (b.name for b in self.calls))
        ):
            groups = [[block] for block in self.calls]
        else:
            groups = [list(self.calls)]
        done: list[_Call] = []
        for group in groups:
            done += await self._run_group(group)
            for call in done:
                if call.failure is not None:
                    raise call.failure
        self.terminate = bool(done) and all(
            call.result is not None and call.result.terminate for call in done
        )
        return [call.message for call in done if call.message is not None]

    async def _run_group(self, blocks: Sequence[ToolCallBlock]) -> list[_Call]:
        reached: list[_Call] = []
        for block in blocks:
            if self.interrupt.thrown:
                break
            call = _Call(block, self.now_ms())
            reached.append(call)
            self.emit(ToolExecutionStart(tool_call_id=block.id, tool_name=block.name, args=block.arguments))
            refused = await self._prepare(call)
            if refused is not None:
                await self._complete(call, refused)
        waiting = [call for call in reached if call.result is None]
        if self.interrupt.thrown:
            for call in waiting:
                await self._complete(call, ToolResult.of_text(OPERATION_ABORTED, is_error=True, details={}))
        elif waiting:
            await self._run_prepared(waiting)
        return reached

    async def _prepare(self, call: _Call) -> ToolResult | None:
        """Make a call ready to run; a result instead of None means that it must not."""
        if self.cut_off:
            return ToolResult.of_text(_CUT_OFF, is_error=True, details={})
        if call.block.id in self.broken:
            return ToolResult.of_text(_BROKEN, is_error=True, details={})
        tool = self.tools(call.block.name)
        if tool is None:
            return ToolResult.of_text(f"Tool {call.block.name} not found", is_error=True, details={})
        try:
            arguments = validate(tool.parameters, tool.prepare(dict(call.block.arguments)), tool=tool.name)
        except ToolError as error:
            return ToolResult.of_text(str(error), is_error=True, details=error.details)
        verdict = await self.hooks.judge(PendingCall(call.block.id, tool, arguments))
        if isinstance(verdict, Blocked):
            blocked = ToolResult.of_text(verdict.reason, is_error=True, details={"blocked": True})
            return attrs.evolve(blocked, terminate=verdict.terminate)
        call.tool, call.arguments = tool, dict(verdict.arguments)
        return None

    async def _run_prepared(self, calls: Sequence[_Call]) -> None:
        for call in calls:
            self.nursery.start_soon(self._run_call, call, name=f"tool {call.block.name}")
        try:
            with self.interrupt.stops():
                await _all_ended(calls)
            if self.interrupt.thrown:
                for call in calls:
                    call.scope.cancel(reason="interrupted")  # changes nothing for those that have ended
                # Not under the interrupt any more: this wait is the clean-up's time, and it is bounded.
                with trio.move_on_after(ABANDON_AFTER):
                    await _all_ended(calls)
        finally:
            # Also when the turn itself is being cancelled: no call stays without a result.
            for call in calls:
                if call.result is None:
                    self._abandon(call)

    def _abandon(self, call: _Call) -> None:
        """Go on without this call; what it still does appears nowhere."""
        call.scope.cancel(reason="abandoned")
        log.warning("tool abandoned", extra={"tool": call.block.name, "call": call.block.id})
        text = (
            f"{OPERATION_ABORTED}: {call.block.name} did not stop in {ABANDON_AFTER:g} seconds "
            "and may still be running"
        )
        result = ToolResult.of_text(text, is_error=True, details={})
        self._finish(call, self._message(call, result), result)

    async def _run_call(self, call: _Call) -> None:
        tool, context = call.tool, self.context()
        assert tool is not None
        context.update = lambda partial: self._update(call, partial)
        result: ToolResult | None = None
        try:
            try:
                with call.scope:
                    result = await self._outcome(call, tool, context)
            except* Exception as group:
                result = _failure(first_leaf(group))
            if result is None:
                result = context.aborted()
            if call.result is None:
                await self._complete(call, result)
        finally:
            # Also when the whole process is being cancelled: the batch must never wait for nothing.
            if call.result is None:
                self._finish(call, self._message(call, result or context.aborted()), result)
            call.ended.set()

    async def _outcome(self, call: _Call, tool: Tool, context: ToolContext) -> ToolResult:
        try:
            result = await tool.execute(call.arguments, context)
        except* Exception as group:
            result = _failure(first_leaf(group))
        if self.hooks.tool_result:
            finished = FinishedCall(PendingCall(call.block.id, tool, call.arguments), result)
            result = (await self.hooks.tool_result.run(finished)).result
        return result

    def _update(self, call: _Call, partial: ToolResult) -> None:
        """Take a partial result; it is shown at once, or with the next one after the interval."""
        if call.result is not None or call.scope.cancel_called:
            return
        waits = call.pending is not None
        call.pending = partial
        wait = call.shown_at + UPDATE_INTERVAL - trio.current_time()
        if wait <= 0:
            self._show(call)
        elif not waits:
            self.nursery.start_soon(self._show_later, call, wait, name=f"update of {call.block.name}")

    async def _show_later(self, call: _Call, wait: float) -> None:
        await trio.sleep(wait)
        self._show(call)

    def _show(self, call: _Call) -> None:
        partial, call.pending = call.pending, None
        if partial is None or call.result is not None:
            return
        if partial.content:
            call.shown_at = trio.current_time()
        self.emit(
            ToolExecutionUpdate(
                tool_call_id=call.block.id,
                tool_name=call.block.name,
                args=call.block.arguments,
                partial_result=PartialResult(
                    content=[_clean(block) for block in partial.content], details=clean_json(partial.details)
                ),
            )
        )

    async def _complete(self, call: _Call, result: ToolResult) -> None:
        """Give a call its result, after the handlers of `message_end` have seen it."""
        message = self._message(call, result)
        if self.hooks.message_end:
            message = await self.hooks.finish_message(message)
        self._finish(call, message, result)

    def _message(self, call: _Call, result: ToolResult) -> ToolResultMessage:
        now = self.now_ms()
        return ToolResultMessage(
            timestamp=now,
            tool_call_id=call.block.id,
            tool_name=call.block.name,
            content=[_clean(block) for block in result.content],
            is_error=result.is_error,
            details=clean_json(result.details),
            usage=result.usage,
            duration_ms=max(0, now - call.started_at_ms),
        )

    def _finish(self, call: _Call, message: ToolResultMessage, result: ToolResult | None) -> None:
        """Store and show a result, once. Synchronous: no cancellation can come in between."""
        if call.result is not None:
            return
        call.result = result or ToolResult(is_error=True)
        try:
            self.store(message)
        except Exception as error:
            call.failure = error
            return
        call.message = message
        self.emit(
            ToolExecutionEnd(
                tool_call_id=call.block.id,
                tool_name=call.block.name,
                result=PartialResult(content=message.content, details=message.details),
                is_error=message.is_error,
            )
        )


async def _all_ended(calls: Sequence[_Call]) -> None:
    for call in calls:
        await call.ended.wait()


def _clean(block: InputBlock) -> InputBlock:
    if isinstance(block, TextBlock):
        text = clean(block.text)
        return block if text is block.text else TextBlock(text=text)
    return block


def _failure(error: BaseException) -> ToolResult:
    details = error.details if isinstance(error, ToolError) else {}
    return ToolResult.of_text(str(error) or type(error).__name__, is_error=True, details=details)
