"""One tool call while it runs: what it is, how far it has come, and what becomes its result.

Source: agent loop, "Tool calls"; extensions, "Nested calls".
"""

import logging
import math
from collections.abc import Sequence
from typing import Any

import attrs
import msgspec
import trio

from knightcode.agent.tools.base import Tool, ToolContext, ToolError, ToolResult, operation_aborted
from knightcode.messages import InputBlock, TextBlock, ToolCallBlock, ToolResultMessage, Usage
from knightcode.text import clean, clean_json

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class Call:
    """One call of the model, or of another call, which then is its `parent`."""

    block: ToolCallBlock
    started_at_ms: int
    parent: "Call | None" = None
    tool: Tool | None = None
    arguments: dict[str, Any] = attrs.field(factory=dict)
    context: ToolContext | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)
    ended: trio.Event = attrs.field(factory=trio.Event, repr=False)
    returned: bool = False  # the tool's part is over; updates and nested calls come too late
    result: ToolResult | None = None  # set once; everything that comes later is dropped
    stored: ToolResultMessage | None = None
    failure: Exception | None = None  # the result could not be stored
    pending: ToolResult | None = None  # a partial result that waits for its time
    shown_at: float = -math.inf
    shows_later: bool = False  # a task waits for the time to show `pending`
    nested: "list[Call]" = attrs.field(factory=list, repr=False)  # those that have not ended
    nested_count: int = 0
    nested_usage: Usage | None = None
    queued: bool = False  # it has its turn in the queue of sequential tools

    @property
    def parent_id(self) -> str | None:
        return None if self.parent is None else self.parent.block.id

    def stopping(self) -> bool:
        """Nothing of it is shown any more but its end."""
        if self.returned or self.result is not None or self.scope.cancel_called:
            return True
        return self.parent is not None and self.parent.stopping()

    def holds_queue(self) -> bool:
        return self.queued or (self.parent is not None and self.parent.holds_queue())

    def aborted(self) -> ToolResult:
        """The result after a cancellation; the tool says it, if it can."""
        if self.context is None:
            return operation_aborted()
        try:
            return self.context.aborted()
        except Exception:
            log.exception("no account of an aborted call", extra={"tool": self.block.name})
            return operation_aborted()

    def message(self, result: ToolResult, now_ms: int) -> ToolResultMessage:
        """The result as it is stored, if it ends the call now."""
        return ToolResultMessage(
            timestamp=now_ms,
            tool_call_id=self.block.id,
            tool_name=self.block.name,
            content=clean_blocks(result.content),
            is_error=result.is_error,
            details=clean_json(result.details),
            usage=plus(result.usage, self.nested_usage),
            duration_ms=max(0, now_ms - self.started_at_ms),
        )


def failure_result(error: BaseException) -> ToolResult:
    """The result of a call that raised."""
    details = error.details if isinstance(error, ToolError) else {}
    return ToolResult.of_text(str(error) or type(error).__name__, is_error=True, details=details)


def json_object(arguments: dict[str, Any]) -> dict[str, Any]:
    """A copy of arguments, as they would have come from a model.

    Raises:
        TypeError: they are no JSON object.
    """
    given = msgspec.json.decode(msgspec.json.encode(clean_json(arguments)))
    if not isinstance(given, dict):
        raise TypeError(f"a call's arguments are an object, not {type(arguments).__name__}")
    return given


def clean_blocks(blocks: Sequence[InputBlock]) -> list[InputBlock]:
    """Blocks whose text can be encoded."""
    return [_clean(block) for block in blocks]


def _clean(block: InputBlock) -> InputBlock:
    if isinstance(block, TextBlock):
        text = clean(block.text)
        return block if text is block.text else TextBlock(text=text)
    return block


def plus(one: Usage | None, other: Usage | None) -> Usage | None:
    """Tokens and dollars of both."""
    if one is None or other is None:
        return one or other
    return one.plus(other)
