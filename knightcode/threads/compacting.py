"""Compaction in a thread: before a prompt, between two requests, after a run, and when asked for.

Each compaction that is shown has one end, and what is stored and what is told of it are one step.

Source: Compaction, "When automatic compaction runs", "Manual compaction", "Overflow and length
recovery"; App Server notes, "thread/start, fork, compact, settings".
"""

import logging
from typing import TYPE_CHECKING

import attrs

from knightcode.agent.compaction import (
    CompactionSettings,
    Decision,
    Failed,
    Preparation,
    Summary,
    compaction_entry,
    compaction_result,
    context_tokens,
    decide,
    failure_text,
    hidden_attempt,
    over_threshold,
    prepare,
    summarise,
)
from knightcode.events import CompactionEnd, CompactionReason, CompactionStart, SessionEvent
from knightcode.failures import first_leaf
from knightcode.messages import AssistantMessage
from knightcode.models.model import Model
from knightcode.threads.recorder import Recorder
from knightcode.threads.turn import RunningTurn

if TYPE_CHECKING:
    from knightcode.threads.thread import Thread

log = logging.getLogger(__name__)

OVERFLOWED_AGAIN = "the context is still too large after it was compacted once"


@attrs.define(eq=False)
class TurnCompaction:
    """The compactions of one turn.

    Attributes:
        failure: why the last one failed, for the person who asked for it.
    """

    thread: "Thread"
    turn: RunningTurn
    recorder: Recorder
    failure: str | None = attrs.field(default=None, init=False)
    _recovered_at: int | None = attrs.field(default=None, init=False)
    """How many inputs the turn had when the one repetition that each is allowed was used."""
    _useless: bool = attrs.field(default=False, init=False)
    """Compacting between requests failed, or what is kept is too large by itself: once a turn is enough."""

    async def before_prompt(self) -> None:
        """Make room for a prompt, if the last reply says that it is needed."""
        decision = self._decide(before_prompt=True)
        if decision is Decision.THRESHOLD:
            await self._automatic("threshold")
        elif decision is not Decision.NOTHING:
            if decision is Decision.RECOVER:
                self._hide_attempt()
            await self._automatic("overflow")

    async def between_turns(self) -> None:
        """Make room for the next request of a run."""
        if self._useless or self.turn.interrupted or not self._is_full():
            return
        await self._automatic("threshold")
        self._useless = self._is_full()

    async def after_run(self, reply: AssistantMessage) -> bool:
        """Make room after a reply; True when the reply did not fit and is to be asked for again."""
        if reply.stop_reason not in ("error", "length"):
            self._recovered_at = None
        decision = self._decide()
        if decision is Decision.THRESHOLD:
            await self._automatic("threshold")
        elif decision is Decision.OVERFLOW:
            await self._automatic("overflow")
        elif decision is Decision.RECOVER:
            return await self._recover()
        return False

    async def compact(
        self,
        reason: CompactionReason,
        preparation: Preparation,
        *,
        instructions: str | None = None,
        will_retry: bool = False,
    ) -> bool:
        """Carry out one compaction; whether it was stored."""
        thread, model = self.thread, self._model()
        self.failure = None
        ended = CompactionEnd(reason=reason, aborted=True)
        self._emit(CompactionStart(reason=reason))
        try:
            try:
                outcome = await summarise(
                    preparation,
                    models=thread.services.models,
                    model=model,
                    thinking_level=model.clamp(thread.thinking_level),
                    retry=thread.services.retry,
                    interrupt=self.turn.interrupt,
                    now_ms=thread.services.now_ms,
                    instructions=instructions,
                )
                if isinstance(outcome, Summary):
                    ended = self._store(reason, preparation, outcome, will_retry)
                elif isinstance(outcome, Failed):
                    self.failure = failure_text(reason, outcome.reason)
                    ended = CompactionEnd(reason=reason, error_message=self.failure)
            except* Exception as group:
                failure = first_leaf(group)
                log.error("compaction failed", extra={"thread_id": thread.id}, exc_info=failure)
                self.failure = failure_text(reason, str(failure) or type(failure).__name__)
                ended = CompactionEnd(reason=reason, error_message=self.failure)
        finally:
            self._emit(ended)
        return ended.result is not None

    async def _automatic(self, reason: CompactionReason, *, will_retry: bool = False) -> bool:
        session = self.thread.session
        preparation = prepare(session.current_branch, session.context(), self._settings())
        if preparation is None or self.turn.interrupted:
            return False
        return await self.compact(reason, preparation, will_retry=will_retry)

    async def _recover(self) -> bool:
        if self._recovered_at == self.recorder.inputs:
            self.failure = failure_text("overflow", OVERFLOWED_AGAIN)
            self._emit(CompactionEnd(reason="overflow", error_message=self.failure))
            return False
        self._recovered_at = self.recorder.inputs
        self._hide_attempt()
        return await self._automatic("overflow", will_retry=True)

    def _hide_attempt(self) -> None:
        for edit in hidden_attempt(self.thread.session.current_branch):
            self.thread.session.append_entry(edit)

    def _store(
        self, reason: CompactionReason, preparation: Preparation, summary: Summary, will_retry: bool
    ) -> CompactionEnd:
        thread = self.thread
        draft = compaction_entry(
            reason, preparation, summary, thread.session.context(), thread.services.now_ms()
        )
        entry = self.recorder.compacted(draft)
        result = compaction_result(entry, thread.session.context())
        return CompactionEnd(reason=reason, result=result, will_retry=will_retry)

    def _decide(self, *, before_prompt: bool = False) -> Decision:
        if self.turn.interrupted:
            return Decision.NOTHING
        session, model = self.thread.session, self._model()
        branch, context = session.current_branch, session.context()
        return decide(branch, context, model, self._settings(), before_prompt=before_prompt)

    def _is_full(self) -> bool:
        session = self.thread.session
        tokens = context_tokens(session.current_branch, session.context())
        return over_threshold(tokens, self._model(), self._settings())

    def _model(self) -> Model:
        model = self.thread.model
        assert model is not None
        return model

    def _settings(self) -> CompactionSettings:
        return self.thread.services.compaction_settings(self._model())

    def _emit(self, event: SessionEvent) -> None:
        if self.thread.hooks.observers:
            self.thread.hooks.observe(event)
        self.recorder.emit(event)
