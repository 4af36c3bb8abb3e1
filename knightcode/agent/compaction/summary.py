"""Asks a model for the summary that a compaction stores.

Nothing here outlives the call: whoever cancels it, or interrupts it, finds nothing stored and nothing
running.

Source: Compaction, "Producing the summary", "Retrying summary calls", "Aborting".
"""

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from knightcode.agent.compaction.files import FileOps
from knightcode.agent.compaction.preparation import Preparation
from knightcode.agent.compaction.prompts import (
    NO_HISTORY,
    SYSTEM_PROMPT,
    history_prompt,
    joined,
    prefix_prompt,
)
from knightcode.agent.compaction.serialise import serialise
from knightcode.agent.interrupt import Interrupt
from knightcode.agent.loop import Models
from knightcode.agent.retry import RetryPolicy
from knightcode.messages import (
    AssistantMessage,
    TextBlock,
    ThinkingLevel,
    ToolCallBlock,
    Usage,
    UserMessage,
    text_of,
)
from knightcode.models.model import Model
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.sessions.clock import new_session_id

NO_REASON: Final = "The provider gave no reason"
CUT_OFF: Final = "The summary was cut off at its output limit"
CALLED_A_TOOL: Final = "The model called a tool instead of writing a summary"
EMPTY: Final = "The model wrote no summary"


@attrs.frozen
class Summary:
    """What stands for the summarised messages.

    Attributes:
        text: with the file lists at its end.
        usage: of all requests that it took, failed ones included.
    """

    text: str
    usage: Usage
    files: FileOps


@attrs.frozen
class Failed:
    """There is no summary; `reason` is for a person."""

    reason: str


@attrs.frozen
class Aborted:
    """There is no summary, because somebody did not want it any more."""


Outcome = Summary | Failed | Aborted


async def summarise(
    preparation: Preparation,
    *,
    models: Models,
    model: Model,
    thinking_level: ThinkingLevel,
    retry: RetryPolicy,
    interrupt: Interrupt,
    now_ms: Callable[[], int],
    instructions: str | None = None,
) -> Outcome:
    """Summarise what `preparation` says: the history, then the beginning of the turn that is cut.

    An interrupt ends every wait in here at once, and the outcome is then `Aborted`, even when the
    last reply came just before it. To store an outcome in the same step leaves no gap for another.

    Args:
        model: the session's, for all requests of this summary.
        thinking_level: the session's; one that the model has.
        instructions: what the user wants the summary to pay attention to; for the history alone.
    """
    clerk = _Clerk(models, model, thinking_level, retry, interrupt, now_ms)
    reserve = preparation.settings.reserve_tokens
    text = preparation.previous_summary or NO_HISTORY
    if preparation.messages_to_summarize:
        conversation = serialise(preparation.messages_to_summarize)
        prompt = history_prompt(conversation, preparation.previous_summary, instructions)
        history = await clerk.ask(prompt, reserve * 4 // 5)
        if not isinstance(history, str):
            return history
        text = history
    if preparation.turn_prefix_messages:
        prompt = prefix_prompt(serialise(preparation.turn_prefix_messages))
        prefix = await clerk.ask(prompt, reserve // 2)
        if not isinstance(prefix, str):
            return prefix
        text = joined(text, prefix)
    return Summary(text + preparation.file_ops.blocks(), clerk.usage, preparation.file_ops)


@attrs.define(eq=False)
class _Clerk:
    """Asks for one summary's texts, and adds up what that costs."""

    models: Models
    model: Model
    thinking_level: ThinkingLevel
    retry: RetryPolicy
    interrupt: Interrupt
    now_ms: Callable[[], int]
    usage: Usage = attrs.field(factory=Usage, init=False)

    async def ask(self, prompt: str, limit_tokens: int) -> str | Failed | Aborted:
        """One text, after as many tries as the retry policy allows."""
        request = self._request(prompt, limit_tokens)
        retries = 0
        while True:
            reply = await self._reply(request)
            message = reply.message()
            self.usage = self.usage.plus(message.usage)
            if self.interrupt.thrown:
                return Aborted()
            if not self.retry.allows(message, retries, self.model.context_window):
                return _text(message)
            retries += 1
            delay_ms = self.retry.delay_ms(retries, reply.retry_after_ms)
            with self.interrupt.stops():
                await trio.sleep(delay_ms / 1000)

    async def _reply(self, request: ModelRequest) -> ReplyBuilder:
        reply = ReplyBuilder(
            model=self.model, emit=_unheard, now_ms=self.now_ms, thinking_level=request.thinking_level
        )
        if self.interrupt.thrown:
            await trio.lowlevel.checkpoint()
        else:
            with self.interrupt.stops():
                await self.models.stream(request, reply)
        reply.abort()  # changes nothing in one that is finished
        return reply

    def _request(self, prompt: str, limit_tokens: int) -> ModelRequest:
        """A conversation of its own, which no cache need remember."""
        now_ms, model = self.now_ms(), self.model
        if model.max_tokens > 0:
            limit_tokens = min(limit_tokens, model.max_tokens)
        return ModelRequest(
            model=model,
            system_prompt=SYSTEM_PROMPT,
            messages=(UserMessage(timestamp=now_ms, content=[TextBlock(text=prompt)]),),
            thinking_level=self.thinking_level if model.reasoning else "off",
            max_tokens=limit_tokens or None,  # with nothing reserved the model's own limit is left
            session_id=new_session_id(now_ms),
            cache_retention="none",
        )


def _unheard(_: Any) -> None:
    """Nobody watches a summary grow."""


def _text(message: AssistantMessage) -> str | Failed | Aborted:
    """The summary that a reply is, or why it is none."""
    match message.stop_reason:
        case "aborted":
            return Aborted()
        case "error":
            return Failed(message.error_message or NO_REASON)
        case "length":
            return Failed(CUT_OFF)
    if any(isinstance(block, ToolCallBlock) for block in message.content):
        return Failed(CALLED_A_TOOL)
    return text_of(message.content).strip() or Failed(EMPTY)
