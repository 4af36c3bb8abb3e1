"""All agent runs between a turn's start and its end: the first one, and what goes on after it.

After each run comes one decision: try a failed reply again, recover from a full context, deliver
what was said meanwhile, let the handlers of `agent_before_settle` go on, or end. The last look at
the steers and the return are one step, so that a steer is either part of this turn or refused.

Source: agent loop, "After an agent run", "Automatic retry", "Abort".
"""

from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from knightcode.agent.loop import AgentRun
from knightcode.agent.retry import CANCELLED, RetryPolicy
from knightcode.events import AutoRetryEnd, AutoRetryStart, MessageEnd, SessionEvent
from knightcode.messages import AssistantMessage, CustomMessage, StoredMessage


class Compaction(Protocol):
    """Keeps the context small enough. Each call may take a model request; an interrupt ends it at once."""

    async def between_turns(self) -> None:
        """Before another request of the same run."""

    async def after_run(self, reply: AssistantMessage) -> bool:
        """After the last reply of a run; True when another request is to be made in its place."""


class History(Protocol):
    """What a retry needs of the session."""

    def hide_last_reply(self) -> None:
        """The model does not see its last reply any more; history keeps it."""


@attrs.define(eq=False)
class SessionRun:
    """One turn's runs. Made for one prompt."""

    agent: AgentRun
    history: History
    retry: RetryPolicy
    compaction: Compaction
    _attempt: int = attrs.field(default=0, init=False)
    """Retries since the last reply that did not fail; above 0 while a chain is open."""

    def __attrs_post_init__(self) -> None:
        self.agent.between_turns = self.compaction.between_turns
        send = self.agent.emit

        def emit(event: SessionEvent) -> None:
            send(event)
            if self._attempt and isinstance(event, MessageEnd):
                self._replied(event)

        self.agent.emit = emit

    async def run(self, prompt: Sequence[StoredMessage | CustomMessage]) -> AssistantMessage:
        """Run until the turn has nothing left to do; returns the last reply, which may have failed."""
        agent, hooks = self.agent, self.agent.hooks
        try:
            reply = await agent.run(prompt)
            while not self._stopped():
                if await self._retried(reply):
                    reply = await agent.run()
                    continue
                if self._stopped():
                    break
                self._end_chain(success=False, error=reply.error_message)
                if await self.compaction.after_run(reply):
                    reply = await agent.run()
                    continue
                go_on = False
                if hooks.agent_before_settle and not agent.steering and not self._stopped():
                    go_on = await hooks.agent_before_settle.run(False) and agent.can_go_on()
                if self._stopped() or not (go_on or agent.steering):
                    break
                reply = await agent.run()
        finally:
            # Only an interrupt, an unload or a fault leaves a chain open.
            self._end_chain(success=False, error=CANCELLED)
        return reply

    def _stopped(self) -> bool:
        return self.agent.interrupt.thrown

    async def _retried(self, reply: AssistantMessage) -> bool:
        """Wait for the time of another try, if the reply is worth one; whether it is to be made now."""
        agent = self.agent
        window = agent.setup().model.context_window
        if not self.retry.allows(reply, self._attempt, window):
            return False
        self._attempt += 1
        delay_ms = self.retry.delay_ms(self._attempt, agent.retry_after_ms)
        agent.tell(
            AutoRetryStart(
                attempt=self._attempt,
                max_attempts=self.retry.max_retries,
                delay_ms=delay_ms,
                error_message=reply.error_message or "",
            )
        )
        self.history.hide_last_reply()
        with agent.interrupt.stops():
            await trio.sleep(delay_ms / 1000)
        return not agent.interrupt.thrown

    def _replied(self, event: MessageEnd) -> None:
        if isinstance(event.message, AssistantMessage) and event.message.stop_reason not in (
            "error",
            "aborted",
        ):
            self._end_chain(success=True)

    def _end_chain(self, *, success: bool, error: str | None = None) -> None:
        attempt, self._attempt = self._attempt, 0
        if attempt:
            ended = AutoRetryEnd(success=success, attempt=attempt)
            if not success:
                ended = AutoRetryEnd(success=False, attempt=attempt, final_error=error or "")
            self.agent.tell(ended)
