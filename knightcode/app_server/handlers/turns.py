"""`turn/*`.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start".
"""

from collections.abc import Callable

from knightcode.app_server.connection import Connection, Later, fail
from knightcode.app_server.core.pending import Call
from knightcode.messages import ImageBlock
from knightcode.text import clean
from knightcode.threads.images import INPUT_LIMIT
from knightcode.threads.queue import QueuedInput
from knightcode.threads.turn import (
    Cancelled,
    Compact,
    Compacted,
    Handled,
    Outcome,
    PathImage,
    Start,
    Started,
    SteerRequest,
    ThreadError,
    TurnInput,
    turn_mismatch,
)
from knightcode_protocol import params, results
from knightcode_protocol.wire import Wire, present


def start(connection: Connection, call: Call, wanted: params.TurnStartParams) -> None:
    """`turn/start`: admitted here; the thread answers when the start is accepted or ends otherwise."""
    connection.manager.begin(
        Start(
            thread_id=wanted.thread_id,
            input=_input(wanted.text, wanted.images),
            answer=_start_answer(call, wanted.request_id),
            initiator=connection.id,
            request_id=wanted.request_id,
            client_message_id=wanted.client_message_id,
        ),
        connection.caller(),
    )


def compact(connection: Connection, call: Call, wanted: params.ThreadCompactParams) -> None:
    """`thread/compact`: a turn of its own; the thread answers when it has ended."""

    def answer(outcome: Outcome) -> None:
        match outcome:
            case ThreadError():
                fail(call, outcome)
            case Compacted():
                call.answer(results.ThreadCompactResult(status="completed"))
            case _:
                call.answer(results.ThreadCompactResult(status="cancelled"))

    connection.manager.begin(
        Compact(
            thread_id=wanted.thread_id,
            answer=answer,
            initiator=connection.id,
            instructions=wanted.instructions,
        ),
        connection.caller(),
    )


def steer(connection: Connection, call: Call, wanted: params.TurnSteerParams) -> Later | None:
    """`turn/steer`: taken by the running turn here, or after the `input` handlers have seen it."""
    manager = connection.manager
    _check_room(connection)

    def answer(refusal: ThreadError | None) -> None:
        if refusal is None:
            call.answer(results.TurnSteerResult())
        else:
            fail(call, refusal)

    request = SteerRequest(
        expected_turn_id=wanted.expected_turn_id,
        input=_input(wanted.text, wanted.images),
        connection=connection.id,
        answer=answer,
    )
    if manager.steer(wanted.thread_id, request):
        return None
    return _not_running(connection, "turn/steer", wanted.thread_id, wanted.expected_turn_id)


def add_to_queue(connection: Connection, call: Call, wanted: params.TurnQueueAddParams) -> Later | None:
    """`turn/queue/add`: the input has its place from here on; the answer comes when it is checked."""
    _check_room(connection)
    return connection.manager.queue_input(
        wanted.thread_id,
        QueuedInput(
            input=_input(wanted.text, wanted.images),
            connection=connection.id,
            accepted=lambda queue_id: _queued(call, queue_id),
            client_message_id=wanted.client_message_id,
        ),
        connection.caller(),
    )


def remove_from_queue(
    connection: Connection, call: Call, wanted: params.TurnQueueRemoveParams
) -> Wire | Later:
    """`turn/queue/remove`: decided at once, so that exactly one of the removal and the start happens."""
    manager = connection.manager
    if manager.loaded(wanted.thread_id) is not None:
        return results.TurnQueueRemoveResult(removed=manager.queue_remove(wanted.thread_id, wanted.queue_id))

    async def finish() -> Wire:
        await manager.check_exists(wanted.thread_id)
        return results.TurnQueueRemoveResult(removed=False)

    return finish


def interrupt(connection: Connection, call: Call, wanted: params.TurnInterruptParams) -> Wire | Later:
    """`turn/interrupt`: answered at once, without waiting for what it stops."""
    if connection.manager.interrupt(wanted.thread_id, wanted.turn_id):
        return results.TurnInterruptResult()
    if wanted.turn_id is not None:
        return _not_running(connection, "turn/interrupt", wanted.thread_id, wanted.turn_id)

    async def finish() -> Wire:
        # A start may have been admitted meanwhile; this interrupt came before it and does not stop it.
        await connection.manager.check_exists(wanted.thread_id)
        return results.TurnInterruptResult()

    return finish


def _not_running(connection: Connection, method: str, thread_id: str, turn_id: str) -> Later:
    """The refusal of a turn id when the thread is not loaded, or of the thread when there is none."""

    async def finish() -> None:
        await connection.manager.check_exists(thread_id)
        raise turn_mismatch(method, turn_id, None)

    return finish


def _start_answer(call: Call, request_id: str | None) -> Callable[[Outcome], None]:
    def answer(outcome: Outcome) -> None:
        match outcome:
            case ThreadError():
                fail(call, outcome)
            case Started(thread_id):
                call.answer(_result("started", thread_id, request_id))
            case Handled(thread_id):
                call.answer(_result("handled", thread_id, request_id))
            case Cancelled(thread_id):
                call.answer(_result("cancelled", thread_id, request_id))

    return answer


def _check_room(connection: Connection) -> None:
    """Each change of what waits sends all of it, so who does not read may add no more."""
    if connection.is_full():
        raise ThreadError(
            "invalidParams",
            "Too much of what the server has sent is not read yet; read it, then send this again",
            {"reason": "queueFull"},
        )


def _queued(call: Call, queue_id: str) -> None:
    call.answer(results.TurnQueueAddResult(queue_id=queue_id))


def _result(status: str, thread_id: str, request_id: str | None) -> Wire:
    return results.TurnStartResult(
        status=status,  # type: ignore[arg-type]
        thread_id=thread_id,
        request_id=present(request_id),
    )


def _input(text: str, images: params.InputImages | None) -> TurnInput:
    """What a user sent.

    Raises:
        ThreadError: `invalidParams`, `emptyInput`.
    """
    given = tuple(_image(image) for image in images or ())
    if not text.strip() and not given:
        raise ThreadError(
            "invalidParams", "The input is empty; send a text or an image", {"reason": "emptyInput"}
        )
    if len(text) > INPUT_LIMIT:
        raise ThreadError(
            "invalidParams", f"The text has {len(text)} characters; at most {INPUT_LIMIT} are taken"
        )
    return TurnInput(clean(text), given)


def _image(image: params.InputImage) -> ImageBlock | PathImage:
    if image.path is not None:
        return PathImage(image.path)
    return ImageBlock(data=image.data or "", mime_type=image.mime_type or "")
