"""Running the tool calls of one reply.

Calls are prepared one by one in order (shown, looked up, checked, judged by the gates), then run
side by side, each in a task of its own that the batch cancels when the turn is interrupted. A call
that ignores that for `ABANDON_AFTER` seconds is abandoned: the turn goes on without it, and whatever
it does later appears nowhere.

A tool may call tools itself. Such a nested call goes the same way, in the task and as a part of the
call that makes it: it is shown, never stored, and over before its caller is.

Source: agent loop, "Tool calls"; App Server notes, "Interrupts"; extensions, "Nested calls".
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import attrs
import trio

from knightcode.agent.call import Call, clean_blocks, failure_result, json_object, plus
from knightcode.agent.hooks import Blocked, FinishedCall, Hooks, PendingCall
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.tools.base import (
    OPERATION_ABORTED,
    Tool,
    ToolContext,
    ToolResult,
    operation_aborted,
)
from knightcode.agent.tools.validate import validate
from knightcode.events import (
    PartialResult,
    SessionEvent,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.failures import first_leaf
from knightcode.messages import ToolCallBlock, ToolResultMessage
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
    _queue: trio.Lock = attrs.field(factory=trio.Lock, init=False, repr=False)

    async def run(self) -> list[ToolResultMessage]:
        """Run the calls; the results come in call order, without those never reached."""
        if any(
            tool is not None and tool.sequential for tool in map(self.tools, (b.name for b in self.calls))
        ):
            groups = [[block] for block in self.calls]
        else:
            groups = [list(self.calls)]
        done: list[Call] = []
        for group in groups:
            done += await self._run_group(group)
            for call in done:
                if call.failure is not None:
                    raise call.failure
        self.terminate = bool(done) and all(
            call.result is not None and call.result.terminate for call in done
        )
        return [call.stored for call in done if call.stored is not None]

    async def _run_group(self, blocks: Sequence[ToolCallBlock]) -> list[Call]:
        reached: list[Call] = []
        try:
            for block in blocks:
                if self.interrupt.thrown:
                    break
                call = Call(block, self.now_ms())
                reached.append(call)
                self._show_start(call)
                refused = await self._prepare(call)
                if refused is not None:
                    await self._complete(call, refused)
            waiting = [call for call in reached if call.result is None]
            if self.interrupt.thrown:
                for call in waiting:
                    await self._complete(call, operation_aborted())
            elif waiting:
                await self._run_prepared(waiting)
        finally:
            # Also when the turn itself is cancelled before they run: what was shown has its end.
            for call in reached:
                if call.result is None:
                    aborted = operation_aborted()
                    self._finish(call, call.message(aborted, self.now_ms()), aborted)
        return reached

    async def _prepare(self, call: Call) -> ToolResult | None:
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
        except Exception as error:
            return failure_result(error)
        verdict = await self.hooks.judge(PendingCall(call.block.id, tool, arguments, call.parent_id))
        if isinstance(verdict, Blocked):
            blocked = ToolResult.of_text(verdict.reason, is_error=True, details={"blocked": True})
            return attrs.evolve(blocked, terminate=verdict.terminate)
        call.tool, call.arguments = tool, dict(verdict.arguments)
        return None

    async def _run_prepared(self, calls: Sequence[Call]) -> None:
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

    def _abandon(self, call: Call) -> None:
        """Go on without this call; what it still does appears nowhere."""
        call.scope.cancel(reason="abandoned")
        log.warning("tool abandoned", extra={"tool": call.block.name, "call": call.block.id})
        text = (
            f"{OPERATION_ABORTED}: {call.block.name} did not stop in {ABANDON_AFTER:g} seconds "
            "and may still be running"
        )
        result = ToolResult.of_text(text, is_error=True, details={})
        self._finish(call, call.message(result, self.now_ms()), result)

    async def _run_call(self, call: Call) -> None:
        result: ToolResult | None = None
        try:
            result = await self._contained(call, self._outcome)
            if call.result is None:
                await self._complete(call, result)
        finally:
            # Also when the whole process is being cancelled: the batch must never wait for nothing.
            if call.result is None:
                result = result or call.aborted()
                self._finish(call, call.message(result, self.now_ms()), result)
            call.ended.set()

    async def _contained(self, call: Call, run: Callable[[Call], Awaitable[ToolResult]]) -> ToolResult:
        """The result of `run` in the call's scope; a failure and a cancellation of that scope are one too."""
        result: ToolResult | None = None
        try:
            with call.scope:
                result = await run(call)
        except* Exception as group:
            result = failure_result(first_leaf(group))
        return result or call.aborted()

    async def _outcome(self, call: Call) -> ToolResult:
        """Run a call that is prepared, and show what its tool gives to the hooks."""
        tool, context = call.tool, self.context()
        assert tool is not None
        context.update = functools.partial(self._update, call)
        context.call = functools.partial(self._run_nested, call)
        call.context = context
        try:
            result = await tool.execute(call.arguments, context)
        except* Exception as group:
            result = failure_result(first_leaf(group))
        finally:
            call.returned = True
            if call.nested:
                # Only calls from tasks that are not the tool's own outlive its return.
                with trio.move_on_after(ABANDON_AFTER, shield=True):
                    await _cancel_all(tuple(call.nested))
        if self.hooks.tool_result:
            pending = PendingCall(call.block.id, tool, call.arguments, call.parent_id)
            result = (await self.hooks.tool_result.run(FinishedCall(pending, result))).result
        return _storable(result)

    # --- calls of calls --------------------------------------------------------------------------

    async def _run_nested(self, caller: Call, name: str, arguments: dict[str, Any]) -> ToolResult:
        """A call that `caller` makes, in a task of its own choice."""
        given = json_object(arguments)
        if caller.stopping() or self.interrupt.thrown:
            await trio.lowlevel.checkpoint()
            return operation_aborted()
        caller.nested_count += 1
        block = ToolCallBlock(
            id=f"{caller.block.id}/{caller.nested_count}", name=clean(name), arguments=given
        )
        call = Call(block, self.now_ms(), parent=caller)
        caller.nested.append(call)
        self._show_start(call)
        result: ToolResult | None = None
        try:
            result = await self._contained(call, self._nested_outcome)
        finally:
            # Also when the caller is being cancelled: its calls end before it does.
            result = result or call.aborted()
            self._finish(call, call.message(result, self.now_ms()), result)
            call.ended.set()
        assert call.result is not None
        return call.result

    async def _nested_outcome(self, call: Call) -> ToolResult:
        tool = self.tools(call.block.name)
        if tool is None or not tool.sequential or call.holds_queue():
            return await self._judged_outcome(call)
        async with self._queue:
            call.queued = True
            return await self._judged_outcome(call)

    async def _judged_outcome(self, call: Call) -> ToolResult:
        refused = await self._prepare(call)
        if refused is not None:
            return refused
        if self.interrupt.thrown or call.stopping():
            return operation_aborted()
        return await self._outcome(call)

    # --- what is shown ---------------------------------------------------------------------------

    def _show_start(self, call: Call) -> None:
        self.emit(
            ToolExecutionStart(
                tool_call_id=call.block.id,
                tool_name=call.block.name,
                args=call.block.arguments,
                parent_tool_call_id=call.parent_id,
            )
        )

    def _update(self, call: Call, partial: ToolResult) -> None:
        """Take a partial result; it is shown at once, or with the next one after the interval."""
        if call.stopping():
            return
        call.pending = partial
        self._show_when_due(call)

    def _show_when_due(self, call: Call) -> None:
        wait = call.shown_at + UPDATE_INTERVAL - trio.current_time()
        if wait <= 0:
            self._show(call)
        elif not call.shows_later:
            call.shows_later = True
            self.nursery.start_soon(self._show_later, call, wait, name=f"update of {call.block.name}")

    async def _show_later(self, call: Call, wait: float) -> None:
        await trio.sleep(wait)
        call.shows_later = False
        if call.pending is not None:
            # This task may wake late, just after another partial result was shown at once.
            self._show_when_due(call)

    def _show(self, call: Call) -> None:
        partial, call.pending = call.pending, None
        if partial is None or call.stopping():
            return
        if partial.content:
            call.shown_at = trio.current_time()
        try:
            shown = PartialResult(content=clean_blocks(partial.content), details=clean_json(partial.details))
        except Exception:
            log.exception("partial result dropped", extra={"tool": call.block.name})
            return
        self.emit(
            ToolExecutionUpdate(
                tool_call_id=call.block.id,
                tool_name=call.block.name,
                args=call.block.arguments,
                partial_result=shown,
                parent_tool_call_id=call.parent_id,
            )
        )

    async def _complete(self, call: Call, result: ToolResult) -> None:
        """Give a call its result, after the handlers of `message_end` have seen it."""
        message = call.message(result, self.now_ms())
        if self.hooks.message_end:
            message = await self.hooks.finish_message(message)
        self._finish(call, message, result)

    def _finish(self, call: Call, message: ToolResultMessage, result: ToolResult) -> None:
        """Store and show a result, once. Synchronous: no cancellation can come in between."""
        if call.result is not None:
            return
        for nested in tuple(call.nested):
            nested.scope.cancel(reason="its caller ended")
            aborted = operation_aborted()
            self._finish(nested, nested.message(aborted, self.now_ms()), aborted)
        call.result = result
        if call.parent is not None:
            call.parent.nested.remove(call)
            call.parent.nested_usage = plus(call.parent.nested_usage, message.usage)
        else:
            try:
                self.store(message)
            except Exception as error:
                call.failure = error
                return
        call.stored = message
        self.emit(
            ToolExecutionEnd(
                tool_call_id=call.block.id,
                tool_name=call.block.name,
                result=PartialResult(content=message.content, details=message.details),
                is_error=message.is_error,
                parent_tool_call_id=call.parent_id,
            )
        )


async def _cancel_all(calls: Sequence[Call]) -> None:
    for call in calls:
        call.scope.cancel(reason="its caller returned")
    await _all_ended(calls)


def _storable(result: object) -> ToolResult:
    """What a tool gave, as it can be stored and sent. Raises when it cannot: that is the tool's failure."""
    if not isinstance(result, ToolResult):
        raise TypeError(f"The tool gave a {type(result).__name__} instead of a result")
    return attrs.evolve(
        result, content=tuple(clean_blocks(result.content)), details=clean_json(result.details)
    )


async def _all_ended(calls: Sequence[Call]) -> None:
    for call in calls:
        await call.ended.wait()
