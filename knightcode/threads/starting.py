"""Taking work through its phases, in a task of its thread's nursery.

Whatever happens, work is answered once, an accepted turn is settled once, a steer is decided once,
and the admission is released.

Source: App Server notes, "Admission and the life of a start", "Steering, queue, interrupt".
"""

import logging
from typing import TYPE_CHECKING

from knightcode.agent.compaction import prepare, why_nothing
from knightcode.agent.hooks import Handled as InputHandled
from knightcode.agent.hooks import Input, Settled
from knightcode.models.model import Model
from knightcode.sessions.errors import SessionFileError
from knightcode.threads.images import read_images
from knightcode.threads.items import EndedStatus
from knightcode.threads.phases import Phase
from knightcode.threads.running import run_compaction, run_turn
from knightcode.threads.turn import (
    Compact,
    Handled,
    RunningTurn,
    Start,
    SteerRequest,
    ThreadError,
    Work,
    shutting_down,
    steer_cancelled,
)

if TYPE_CHECKING:
    from knightcode.threads.thread import Thread

log = logging.getLogger(__name__)


async def carry_out(thread: "Thread", work: Work) -> None:
    """Take work through all of its phases."""
    try:
        if isinstance(work, Start):
            await _carry_out_start(thread, work)
        elif isinstance(work, Compact):
            await _carry_out_compact(thread, work)
    except ThreadError as failure:
        work.resolve(failure)
    except SessionFileError as failure:
        thread.broken(str(failure))
        work.resolve(ThreadError("internal", f"The turn was not started. {failure}"))
    except Exception:
        log.exception("work failed", extra={"thread_id": thread.id, "kind": type(work).__name__})
        work.resolve(
            ThreadError("internal", "The turn could not be started; the server's log has the details")
        )
    finally:
        work.resolve(shutting_down())  # only the end of the thread leaves it unanswered
        thread.turns.release(work)


async def _carry_out_start(thread: "Thread", start: Start) -> None:
    given = await _prepare(thread, start)
    if given is None or start.is_cancelled():
        return
    turn = thread.turns.accept(start)
    await _settled(thread, turn, await run_turn(thread, start, turn, given))


async def _carry_out_compact(thread: "Thread", work: Compact) -> None:
    work.enter(Phase.WAITING)
    with work.waits.stops():
        await thread.lane.unheld()
    if work.is_cancelled():
        return
    work.enter(Phase.CHECKING)
    settings = thread.services.compaction_settings(check_model(thread))
    branch = thread.session.current_branch
    preparation = prepare(branch, thread.session.context(), settings)
    if preparation is None:
        raise ThreadError("invalidParams", why_nothing(branch), {"reason": "nothingToCompact"})
    turn = thread.turns.accept(work)
    await _settled(thread, turn, await run_compaction(thread, work, turn, preparation))


async def _settled(thread: "Thread", turn: RunningTurn, status: EndedStatus) -> None:
    if thread.hooks.agent_settled and not thread.closing:
        await thread.hooks.agent_settled.run(Settled(turn.id, status))


async def _prepare(thread: "Thread", start: Start) -> Input | None:
    """Everything before acceptance; None when the input was consumed, or the start cancelled."""
    start.enter(Phase.LOADING)
    with start.waits.stops():
        images = tuple(await read_images(start.input.images))
        start.enter(Phase.WAITING)
        await thread.lane.unheld()
    if start.is_cancelled():
        return None
    start.enter(Phase.INPUT)
    given = await thread.hooks.take_input(Input(start.input.text, images))
    if isinstance(given, InputHandled):
        if not start.sent:
            start.resolve(Handled(thread.id))  # unless it was cancelled
            return None
        # A turn that a handler began while it consumed the input is the outcome of this start.
        first = start.sent.pop(0)
        with start.waits.stops():
            given = Input(first.text, tuple(await read_images(first.images)))
    if start.is_cancelled() or isinstance(given, InputHandled):
        return None
    start.enter(Phase.CHECKING)
    for later in start.sent:
        thread.turns.send(later)
    check_model(thread)
    return given


def check_model(thread: "Thread") -> Model:
    """The thread's model, which can be asked.

    Raises:
        ThreadError: `authRequired`.
    """
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
    return model


async def intercept(thread: "Thread", turn: RunningTurn, steer: SteerRequest) -> None:
    """Take a steer to its decision: its images, then the `input` handlers, which run to their end.

    Steers of a turn are decided in the order in which they came.
    """
    try:
        with steer.waits.stops():
            if steer.after is not None:
                await steer.after.decided.wait()
            images = tuple(await read_images(steer.input.images))
        if steer.decided.is_set():
            return
        given = await thread.hooks.take_input(Input(steer.input.text, images, steering=True))
        if steer.decided.is_set():
            return
        if isinstance(given, InputHandled):
            steer.resolve(None)
        else:
            thread.turns.accept_steer(turn, steer, given)
    except ThreadError as failure:
        steer.resolve(failure)
    except Exception:
        log.exception("steer failed", extra={"thread_id": thread.id})
        steer.resolve(
            ThreadError("internal", "The input could not be taken; the server's log has the details")
        )
    finally:
        steer.resolve(steer_cancelled())  # only the end of the thread leaves it undecided
        turn.steers.remove(steer)
