"""The work of one start, phase by phase, in a task of its thread's nursery.

Whatever happens, the start is answered once, an accepted turn is settled once, and the admission is
released.

Source: App Server notes, "Admission and the life of a start".
"""

import logging
from pathlib import Path

from knightcode.agent.context_files import load_context_files, load_prompt_files
from knightcode.agent.hooks import Handled as InputHandled
from knightcode.agent.hooks import Input, Prompt
from knightcode.agent.loop import AgentRun, Setup
from knightcode.agent.prompt import build_sections
from knightcode.agent.tools.base import ToolContext
from knightcode.events import (
    MessageStart,
    MessageUpdate,
    SessionEvent,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.failures import first_leaf
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    InputBlock,
    StoredMessage,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.models.errors import error_kind
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import CustomMessageEntry, MessageEntry
from knightcode.sessions.errors import SessionFileError
from knightcode.threads.images import read_images
from knightcode.threads.items import EndedStatus, TurnError
from knightcode.threads.notices import ThreadWarning
from knightcode.threads.thread import Thread
from knightcode.threads.turn import Handled, RunningTurn, Start, ThreadError

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


async def run_start(thread: Thread, start: Start) -> None:
    """Take a start through all of its phases."""
    try:
        given = None if start.cancelled else await _prepare(thread, start)
        if given is not None and not start.cancelled:
            turn = thread.accept(start)
            await _run_turn(thread, turn, given)
    except ThreadError as failure:
        start.resolve(failure)
    except SessionFileError as failure:
        thread.broken(str(failure))
        start.resolve(ThreadError("internal", f"The turn was not started. {failure}"))
    except Exception:
        log.exception("start failed", extra={"thread_id": thread.id})
        start.resolve(
            ThreadError("internal", "The turn could not be started; the server's log has the details")
        )
    finally:
        start.resolve(ThreadError("shuttingDown", "The thread was closed before the turn started"))
        thread.release(start)


async def _prepare(thread: Thread, start: Start) -> Input | None:
    """Everything before acceptance; None when the input was consumed."""
    images = await read_images(start.input.images)
    given = await thread.hooks.take_input(Input(start.input.text, tuple(images)))
    if isinstance(given, InputHandled):
        start.resolve(Handled(thread.id))
        return None
    model = thread.model
    if model is None:
        raise ThreadError(
            "authRequired",
            "No model is selected; choose one of model/list with thread/settings/update",
            {"reason": "noModel"},
        )
    if not thread.services.catalogue.available(model):
        raise ThreadError(
            "authRequired",
            f"There are no credentials for {model.provider}; set its API key and try again",
            {"reason": "noCredentials", "provider": model.provider},
        )
    return given


async def _run_turn(thread: Thread, turn: RunningTurn, given: Input) -> None:
    """Everything from acceptance to the settled turn."""
    reply: AssistantMessage | None = None
    failure: BaseException | None = None
    try:
        try:
            reply = await _run_agent(thread, turn, given)
        except* Exception as group:
            failure = first_leaf(group)
            log.error("turn failed", extra={"thread_id": thread.id, "turn": turn.id}, exc_info=failure)
    finally:
        status, error = _outcome(turn, reply, failure)
        thread.settle(turn, status, error)


async def _run_agent(thread: Thread, turn: RunningTurn, given: Input) -> AssistantMessage:
    recorder = _Recorder(thread, turn)
    services = thread.services
    sections = await _sections(thread)
    prompt = Prompt(sections)
    if thread.hooks.before_agent_start and not turn.interrupted:
        changed = await thread.hooks.before_agent_start.run(prompt)
        prompt = prompt if turn.interrupted else changed
    tools = {tool.name: tool for tool in services.tools}

    def setup() -> Setup:
        model = thread.model
        assert model is not None
        level = model.clamp(thread.thinking_level)
        return Setup(model, level, tools, prompt.sections, prompt.exact_prompt)

    run = AgentRun(
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
    )
    content: list[InputBlock] = [TextBlock(text=given.text), *given.images]
    said = UserMessage(timestamp=services.now_ms(), content=content)
    reply = await run.run([said, *prompt.messages])
    settling = thread.hooks.agent_before_settle
    while settling and not turn.interrupted and await settling.run(False) and run.can_go_on():
        reply = await run.run([])
    return reply


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


async def _sections(thread: Thread) -> dict[str, str]:
    """The system prompt's sections, with the context files as they are now."""
    services, cwd = thread.services, thread.session.cwd
    prompts = await load_prompt_files(services.agent_dir)
    files = await load_context_files(services.agent_dir, cwd)
    for text in (*prompts.warnings, *files.warnings):
        thread.warn(ThreadWarning(text, "server"))
    return build_sections(
        tools=services.tools,
        cwd=cwd,
        custom_prompt=prompts.system,
        addenda=() if prompts.append is None else (prompts.append,),
        context_files=files.files,
    )


def _tool_context(thread: Thread) -> ToolContext:
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


class _Recorder:
    """Stores the run's messages in the session and shows its events to the running turn's items."""

    def __init__(self, thread: Thread, turn: RunningTurn) -> None:
        self._thread, self._turn = thread, turn

    def append(self, message: StoredMessage | CustomMessage) -> None:
        session = self._thread.session
        entry: MessageEntry | CustomMessageEntry
        if isinstance(message, CustomMessage):
            entry = session.append_entry(
                CustomMessageEntry(
                    custom_type=message.custom_type,
                    content=message.content,
                    display=message.display,
                    details=message.details,
                )
            )
        else:
            entry = session.append_message(message)
        live = self._turn.live
        if isinstance(message, AssistantMessage):
            live.reply_stored(message)
        elif isinstance(message, ToolResultMessage):
            live.call_ended(message)
        elif isinstance(message, UserMessage | CustomMessage):
            live.input_stored(entry)
        self._thread.appended(entry)

    def context(self) -> SessionContext:
        return self._thread.session.context()

    def emit(self, event: SessionEvent) -> None:
        live = self._turn.live
        if isinstance(event, MessageUpdate):
            live.reply_grew(event)
        elif isinstance(event, MessageStart):
            if isinstance(event.message, AssistantMessage):
                live.reply_started()
        elif isinstance(event, ToolExecutionStart):
            live.call_started(event)
        elif isinstance(event, ToolExecutionUpdate):
            live.call_grew(event)
