"""A turn from its acceptance to its end.

Source: App Server notes, "Admission and the life of a start"; agent loop, "From prompt to run".
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from knightcode.agent.compaction import Preparation
from knightcode.agent.context_files import load_context_files, load_prompt_files
from knightcode.agent.hooks import Input, Prompt
from knightcode.agent.loop import AgentRun, Setup
from knightcode.agent.prompt import build_sections
from knightcode.agent.session_run import SessionRun
from knightcode.agent.tools.base import ToolContext
from knightcode.failures import first_leaf
from knightcode.messages import AssistantMessage, InputBlock, TextBlock, UserMessage
from knightcode.models.errors import error_kind
from knightcode.threads.compacting import TurnCompaction
from knightcode.threads.items import EndedStatus, TurnError
from knightcode.threads.notices import ThreadWarning
from knightcode.threads.phases import Phase
from knightcode.threads.recorder import Recorder
from knightcode.threads.turn import Cancelled, Compact, Compacted, RunningTurn, ThreadError, Work

if TYPE_CHECKING:
    from knightcode.threads.thread import Thread

log = logging.getLogger(__name__)

SESSION_VARIABLES = frozenset(
    {
        "KNIGHTCODE_SESSION_ID",
        "KNIGHTCODE_SESSION_FILE",
        "KNIGHTCODE_PROVIDER",
        "KNIGHTCODE_MODEL",
        "KNIGHTCODE_REASONING_LEVEL",
    }
)
"""Set for each command; inherited values speak of another session and are taken out first."""


async def run_turn(thread: "Thread", work: Work, turn: RunningTurn, given: Input) -> EndedStatus:
    """Everything from acceptance to the settled turn."""
    reply: AssistantMessage | None = None
    failure: BaseException | None = None
    try:
        try:
            reply = await _run_agent(thread, work, turn, given)
        except* Exception as group:
            failure = first_leaf(group)
            log.error("turn failed", extra={"thread_id": thread.id, "turn": turn.id}, exc_info=failure)
    finally:
        # No wait between the run's last look at its steers and this: a steer is taken or refused.
        status, error = _outcome(turn, reply, failure)
        thread.turns.settle(work, turn, status, error)
    return status


async def run_compaction(
    thread: "Thread", work: Compact, turn: RunningTurn, preparation: Preparation
) -> EndedStatus:
    """The turn of a compaction that was asked for; it is answered in the step in which it ends."""
    compaction = TurnCompaction(thread, turn, Recorder(thread, turn))
    status: EndedStatus = "interrupted"
    outcome: Compacted | Cancelled | ThreadError = Cancelled(thread.id)
    error: TurnError | None = None
    try:
        work.enter(Phase.RUNNING)
        if await compaction.compact("manual", preparation, instructions=work.instructions):
            status, outcome = "completed", Compacted()
        elif not turn.interrupted:
            message = compaction.failure or "Compaction failed"
            status, outcome = "failed", ThreadError("internal", message)
            error = TurnError(message, error_kind(message))
    finally:
        # A compaction that was stored before the interrupt came stands; its turn was interrupted anyway.
        if turn.interrupted:
            status, error = "interrupted", None
        thread.turns.settle(work, turn, status, error)
        work.resolve(outcome)
    return status


async def _run_agent(thread: "Thread", work: Work, turn: RunningTurn, given: Input) -> AssistantMessage:
    services = thread.services
    recorder = Recorder(thread, turn)
    compaction = TurnCompaction(thread, turn, recorder)
    await compaction.before_prompt()
    sections = await _sections(thread)
    work.enter(Phase.PREPARING)
    prompt = Prompt(sections)
    if thread.hooks.before_agent_start and not turn.interrupted:
        changed = await thread.hooks.before_agent_start.run(prompt)
        prompt = prompt if turn.interrupted else changed
    work.enter(Phase.RUNNING)

    def setup() -> Setup:
        model = thread.model
        assert model is not None
        level = model.clamp(thread.thinking_level)
        return Setup(model, level, thread.tools, prompt.sections, prompt.exact_prompt)

    agent = AgentRun(
        conversation=recorder,
        models=services.models,
        setup=setup,
        hooks=thread.hooks,
        interrupt=turn.interrupt,
        calls=services.calls,
        tool_context=lambda: _tool_context(thread),
        emit=recorder.emit,
        now_ms=services.now_ms,
        session_id=thread.id,
        steering=turn.steering,
    )
    content: list[InputBlock] = [TextBlock(text=given.text), *given.images]
    said = UserMessage(timestamp=services.now_ms(), content=content)
    run = SessionRun(agent, recorder, services.retry, compaction)
    return await run.run([said, *prompt.messages])


def _outcome(
    turn: RunningTurn, reply: AssistantMessage | None, failure: BaseException | None
) -> tuple[EndedStatus, TurnError | None]:
    """Interrupted outranks failed; a reply that was cut off by nobody's wish is interrupted too."""
    if turn.interrupted:
        return "interrupted", None
    if failure is not None:
        message = str(failure) or type(failure).__name__
        return "failed", TurnError(message, error_kind(message))
    if reply is None or reply.stop_reason == "aborted":
        return "interrupted", None
    if reply.stop_reason == "error":
        message = reply.error_message or "The provider gave no reason"
        return "failed", TurnError(message, error_kind(message))
    return "completed", None


async def _sections(thread: "Thread") -> dict[str, str]:
    """The system prompt's sections, with the context files as they are now."""
    services, cwd = thread.services, thread.session.cwd
    prompts = await load_prompt_files(services.agent_dir)
    files = await load_context_files(services.agent_dir, cwd)
    for text in (*prompts.warnings, *files.warnings):
        thread.warn(ThreadWarning(text, "server"))
    return build_sections(
        tools=tuple(thread.tools.values()),
        cwd=cwd,
        custom_prompt=prompts.system,
        addenda=() if prompts.append is None else (prompts.append,),
        context_files=files.files,
    )


def _tool_context(thread: "Thread") -> ToolContext:
    services, session, model = thread.services, thread.session, thread.model
    environment = {name: value for name, value in services.environ.items() if name not in SESSION_VARIABLES}
    environment |= {
        "KNIGHTCODE_SESSION_ID": thread.id,
        "KNIGHTCODE_REASONING_LEVEL": thread.thinking_level,
    }
    if session.path is not None:
        environment["KNIGHTCODE_SESSION_FILE"] = str(session.path)
    if model is not None:
        environment |= {"KNIGHTCODE_PROVIDER": model.provider, "KNIGHTCODE_MODEL": model.id}
    return ToolContext(
        cwd=Path(session.cwd),
        environment=environment,
        takes_images=model is not None and "image" in model.input,
        shell_path=services.shell_path,
        shell_command_prefix=services.shell_command_prefix,
    )
