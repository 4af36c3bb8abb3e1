"""`thread/*`.

Source: App Server, "Threads and turns", "Subscriptions and replacement", "History, listings, and
large values".
"""

from contextlib import ExitStack

from msgspec import UNSET, UnsetType

import knightcode_protocol.objects as wire
from knightcode.app_server.connection import Connection, Later
from knightcode.app_server.core.pending import Call
from knightcode.app_server.wire.items import turn_to_wire
from knightcode.app_server.wire.threads import (
    EMPTY_UI,
    queue_to_wire,
    row_to_wire,
    thread_to_wire,
    usage_to_wire,
    warnings_to_wire,
)
from knightcode.threads.history import Page, check_cursor, cut_page, read_page
from knightcode.threads.listing import DEFAULT_LIMIT
from knightcode.threads.opening import NewThread
from knightcode.threads.settings import pick_model
from knightcode.threads.turn import ThreadError
from knightcode_protocol import params, results
from knightcode_protocol.envelope import encode
from knightcode_protocol.limits import ENVELOPE_RESERVE_BYTES, MAX_RESPONSE_BYTES
from knightcode_protocol.wire import Wire, present


def start(connection: Connection, call: Call, wanted: params.ThreadStartParams) -> Later:
    """`thread/start`: the answer and the subscription are one step, then everyone hears of it."""
    manager, caller = connection.manager, connection.caller()
    new = NewThread(
        cwd=wanted.cwd,
        approval_mode=wanted.approval_mode,
        model=None if wanted.model is None else (wanted.model.provider, wanted.model.id),
        thinking_level=wanted.thinking_level,
        name=wanted.name,
    )

    async def finish() -> None:
        thread = await manager.start_thread(new, caller)
        thread.subscribe(caller.connection)
        call.answer(
            results.ThreadStartResult(
                thread=thread_to_wire(thread.info()), warnings=warnings_to_wire(thread.warnings), ui=EMPTY_UI
            )
        )
        manager.announce(thread)

    return finish


def resume(connection: Connection, call: Call, wanted: params.ThreadResumeParams) -> Later:
    """`thread/resume`: history, live snapshots and the subscription in one synchronous step."""
    manager, caller = connection.manager, connection.caller()
    if wanted.cursor is not None:
        check_cursor(wanted.cursor, wanted.thread_id)

    async def finish() -> None:
        if wanted.cursor is not None and manager.loaded(wanted.thread_id) is None:
            # A cursor that the saved branch does not know must not cause a load.
            saved = await manager.read(wanted.thread_id)
            await read_page(
                saved.stored, thread_id=wanted.thread_id, cwd=saved.info.cwd, cursor=wanted.cursor
            )
        thread = await manager.load(wanted.thread_id, caller)
        await connection.room()  # from here on it is one step
        page = cut_page(
            thread.session.current_branch,
            thread_id=thread.id,
            cwd=thread.session.cwd,
            cursor=wanted.cursor,
            running=None if thread.turn is None else thread.turn.id,
        )
        running = thread.running_turn()
        shown = UNSET if running is None else turn_to_wire(running)
        turns, next_cursor = _fitting(page, shown)
        thread.subscribe(caller.connection)
        call.answer(
            results.ThreadResumeResult(
                thread=thread_to_wire(thread.info()),
                warnings=warnings_to_wire(thread.warnings),
                turns=turns,
                next_cursor=present(next_cursor),
                running_turn=shown,
                queue=queue_to_wire(thread.turns.queue_rows()),
                usage=usage_to_wire(thread.usage()),
                ui=EMPTY_UI,
            )
        )

    return finish


def read(connection: Connection, call: Call, wanted: params.ThreadReadParams) -> Later:
    """`thread/read`: saved history, without loading or locking."""
    manager = connection.manager
    if wanted.cursor is not None:
        check_cursor(wanted.cursor, wanted.thread_id)

    async def finish() -> Wire:
        saved = await manager.read(wanted.thread_id)
        thread = manager.in_memory(wanted.thread_id)
        running = None if thread is None else thread.running_turn()
        page = await read_page(
            saved.stored,
            thread_id=wanted.thread_id,
            cwd=saved.info.cwd,
            cursor=wanted.cursor,
            running=None if running is None else running.id,
        )
        shown = UNSET if running is None or wanted.cursor is not None else turn_to_wire(running)
        turns, next_cursor = _fitting(page, shown)
        return results.ThreadReadResult(
            thread=thread_to_wire(saved.info),
            turns=turns if isinstance(shown, UnsetType) else (*turns, shown),
            next_cursor=present(next_cursor),
        )

    return finish


def _fitting(page: Page, running: wire.Turn | UnsetType) -> tuple[tuple[wire.Turn, ...], str | None]:
    """The newest turns of a page that fit into one response, at least one, and the cursor to the others."""
    room = MAX_RESPONSE_BYTES - ENVELOPE_RESERVE_BYTES
    if not isinstance(running, UnsetType):
        room -= len(encode(running))
    kept: list[wire.Turn] = []
    for turn in reversed(page.turns):
        shown = turn_to_wire(turn)
        room -= len(encode(shown)) + 1
        if room < 0 and kept:
            break
        kept.append(shown)
    return tuple(reversed(kept)), page.newest(len(kept)).next_cursor


def list_threads(connection: Connection, call: Call, wanted: params.ThreadListParams) -> Later:
    """`thread/list`: most recently updated first."""
    manager = connection.manager

    async def finish() -> Wire:
        page = await manager.list_threads(
            cwd=wanted.cwd,
            archived=bool(wanted.archived),
            cursor=wanted.cursor,
            limit=wanted.limit or DEFAULT_LIMIT,
        )
        return results.ThreadListResult(
            threads=tuple(row_to_wire(row) for row in page.rows), next_cursor=present(page.next_cursor)
        )

    return finish


def unsubscribe(connection: Connection, call: Call, wanted: params.ThreadUnsubscribeParams) -> Wire:
    """`thread/unsubscribe`."""
    followed = connection.manager.unsubscribe(wanted.thread_id, connection.id)
    return results.ThreadUnsubscribeResult(status="unsubscribed" if followed else "notSubscribed")


def update_settings(connection: Connection, call: Call, wanted: params.ThreadSettingsUpdateParams) -> Later:
    """`thread/settings/update`: all of it or, on a bad value, nothing."""
    manager, caller = connection.manager, connection.caller()
    if wanted.model is None and wanted.thinking_level is None and wanted.approval_mode is None:
        raise ThreadError(
            "invalidParams",
            "thread/settings/update needs model, thinkingLevel or approvalMode; nothing was given",
        )

    change = ExitStack()
    change.enter_context(manager.hold(wanted.thread_id, "settings"))  # a start that comes after it waits

    async def finish() -> Wire:
        with change:
            thread = await manager.load(wanted.thread_id, caller)
            model = None
            if wanted.model is not None:
                model = pick_model(manager.services.catalogue, wanted.model.provider, wanted.model.id)
            thread.change_settings(
                model=model, thinking_level=wanted.thinking_level, approval_mode=wanted.approval_mode
            )
        return results.ThreadSettingsUpdateResult(thread=thread_to_wire(thread.info()))

    return finish
