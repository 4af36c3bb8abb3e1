"""`turn/*`.

Source: App Server, "Threads and turns"; App Server notes, "Admission and the life of a start".
"""

from knightcode.app_server.connection import Connection, Later, fail
from knightcode.app_server.core.pending import Call
from knightcode.messages import ImageBlock
from knightcode.text import clean
from knightcode.threads.turn import (
    Cancelled,
    Handled,
    PathImage,
    Start,
    Started,
    StartOutcome,
    ThreadError,
    TurnInput,
)
from knightcode_protocol import params, results
from knightcode_protocol.wire import Wire, present


def start(connection: Connection, call: Call, wanted: params.TurnStartParams) -> None:
    """`turn/start`: admitted here; the thread answers when the start is accepted or ends otherwise."""
    images = tuple(_image(image) for image in wanted.images or ())
    if not wanted.text.strip() and not images:
        raise ThreadError(
            "invalidParams", "The input is empty; send a text or an image", {"reason": "emptyInput"}
        )
    connection.manager.begin_turn(
        Start(
            thread_id=wanted.thread_id,
            input=TurnInput(clean(wanted.text), images),
            answer=lambda outcome: _answer(call, outcome, wanted.request_id),
            initiator=connection.id,
            request_id=wanted.request_id,
            client_message_id=wanted.client_message_id,
        ),
        connection.caller(),
    )


def interrupt(connection: Connection, call: Call, wanted: params.TurnInterruptParams) -> Wire | Later:
    """`turn/interrupt`: answered at once, without waiting for what it stops."""
    manager = connection.manager
    if manager.interrupt(wanted.thread_id, wanted.turn_id):
        return results.TurnInterruptResult()

    async def finish() -> Wire:
        await manager.check_exists(wanted.thread_id)
        # A start may have been admitted meanwhile; this interrupt came before it and does not stop it.
        if wanted.turn_id is not None:
            raise ThreadError(
                "turnMismatch",
                f"turn/interrupt named turn {wanted.turn_id}, but no turn is running; leave it be",
            )
        return results.TurnInterruptResult()

    return finish


def _answer(call: Call, outcome: StartOutcome, request_id: str | None) -> None:
    match outcome:
        case ThreadError():
            fail(call, outcome)
        case Started(thread_id):
            call.answer(_result("started", thread_id, request_id))
        case Handled(thread_id):
            call.answer(_result("handled", thread_id, request_id))
        case Cancelled(thread_id):
            call.answer(_result("cancelled", thread_id, request_id))


def _result(status: str, thread_id: str, request_id: str | None) -> Wire:
    return results.TurnStartResult(
        status=status,  # type: ignore[arg-type]
        thread_id=thread_id,
        request_id=present(request_id),
    )


def _image(image: params.InputImage) -> ImageBlock | PathImage:
    if image.path is not None:
        return PathImage(image.path)
    return ImageBlock(data=image.data or "", mime_type=image.mime_type or "")
