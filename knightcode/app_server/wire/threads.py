"""Threads, models, usage, and what is sent unasked.

Source: App Server notes, "Objects", "Notification table".
"""

from functools import singledispatch

from msgspec import UNSET, UnsetType

import knightcode_protocol.notifications as sent
import knightcode_protocol.objects as wire
from knightcode.app_server.wire.items import item_to_wire, summary_to_wire, turn_to_wire
from knightcode.models.model import Model
from knightcode.threads import notices
from knightcode.threads.listing import ThreadRow
from knightcode_protocol.wire import Wire, present

EMPTY_UI = wire.Ui(statuses=(), working_visible=True, widgets=())


def status_to_wire(status: notices.Status) -> wire.Status:
    """A thread's status."""
    match status:
        case notices.NotLoaded():
            return wire.StatusNotLoaded()
        case notices.Idle():
            return wire.StatusIdle()
        case notices.Active(waiting_on):
            return wire.StatusActive(waiting_on=waiting_on)
        case notices.Broken(message):
            return wire.StatusSystemError(message=message)


def thread_to_wire(info: notices.ThreadInfo) -> wire.Thread:
    """A thread."""
    return wire.Thread(
        id=info.id,
        cwd=info.cwd,
        name=info.name,
        status=status_to_wire(info.status),
        created_at=info.created_at,
        updated_at=info.updated_at,
        approval_mode=info.approval_mode,
        thinking_level=info.thinking_level,
        workspace=wire.LocalWorkspace(),
        archived=False,
        model=_thread_model(info.model),
        forked_from_id=present(info.forked_from_id),
        session_file=present(info.session_file),
        mode=present(info.mode),
    )


def _thread_model(model: Model | None) -> wire.ThreadModel | UnsetType:
    if model is None:
        return UNSET
    return wire.ThreadModel(
        provider=model.provider, id=model.id, name=model.name, context_window=model.context_window
    )


def row_to_wire(row: ThreadRow) -> wire.ThreadSummary:
    """A row of a listing."""
    return wire.ThreadSummary(
        id=row.id,
        cwd=row.cwd,
        name=row.name,
        status=status_to_wire(row.status),
        created_at=row.created_at,
        updated_at=row.updated_at,
        archived=False,
        message_count=row.message_count,
        forked_from_id=present(row.forked_from_id),
        damaged=row.damaged,
    )


def warnings_to_wire(warnings: tuple[notices.ThreadWarning, ...]) -> tuple[wire.Warning, ...]:
    """Warnings of a load."""
    return tuple(
        wire.Warning(message=one.message, source=one.source, path=present(one.path)) for one in warnings
    )


def usage_to_wire(usage: notices.Usage) -> wire.TokenUsage:
    """Cumulative usage."""
    return wire.TokenUsage(
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        cost=usage.cost,
        context_window=usage.context_window,
        context_tokens=present(usage.context_tokens),
    )


def queue_to_wire(queue: notices.QueueChanged) -> wire.Queue:
    """Both lists of what waits."""
    return wire.Queue(
        steering=queue.steering,
        follow_up=tuple(
            wire.QueuedInput(
                id=row.id, text=row.text, attachments=row.attachments if row.attachments else UNSET
            )
            for row in queue.follow_up
        ),
    )


def model_to_wire(model: Model, *, available: bool, is_default: bool) -> wire.Model:
    """A model of the catalogue."""
    return wire.Model(
        provider=model.provider,
        provider_name=model.provider_name or model.provider,
        id=model.id,
        name=model.name,
        api=model.api,
        reasoning=model.reasoning,
        thinking_levels=model.thinking_levels(),
        input=model.input,
        context_window=model.context_window,
        max_tokens=model.max_tokens,
        cost=wire.ModelCost(
            input=model.prices.input,
            output=model.prices.output,
            cache_read=model.prices.cache_read,
            cache_write=model.prices.cache_write,
        ),
        available=available,
        is_default=is_default,
    )


@singledispatch
def notice_to_wire(notice: object) -> Wire:
    """A notice as the params of its notification."""
    raise TypeError(f"no wire form for {type(notice).__name__}")


@notice_to_wire.register
def _(notice: notices.TextDelta) -> Wire:
    kind = sent.ReasoningDelta if notice.reasoning else sent.AgentMessageDelta
    return kind(
        thread_id=notice.thread_id, turn_id=notice.turn_id, item_id=notice.item_id, delta=notice.delta
    )


@notice_to_wire.register
def _(notice: notices.OutputDelta) -> Wire:
    return sent.ToolCallOutputDelta(
        thread_id=notice.thread_id,
        turn_id=notice.turn_id,
        item_id=notice.item_id,
        delta=notice.delta,
        replace=notice.replace,
    )


@notice_to_wire.register
def _(notice: notices.ItemStarted) -> Wire:
    return sent.ItemStarted(
        thread_id=notice.thread_id, turn_id=notice.turn_id, item=item_to_wire(notice.item)
    )


@notice_to_wire.register
def _(notice: notices.ItemCompleted) -> Wire:
    return sent.ItemCompleted(
        thread_id=notice.thread_id, turn_id=notice.turn_id, item=item_to_wire(notice.item)
    )


@notice_to_wire.register
def _(notice: notices.ItemRemoved) -> Wire:
    return sent.ItemRemoved(thread_id=notice.thread_id, turn_id=notice.turn_id, item_id=notice.item_id)


@notice_to_wire.register
def _(notice: notices.TurnStarted) -> Wire:
    return sent.TurnStarted(
        thread_id=notice.turn.thread_id, turn=turn_to_wire(notice.turn), request_id=present(notice.request_id)
    )


@notice_to_wire.register
def _(notice: notices.TurnCompleted) -> Wire:
    return sent.TurnCompleted(thread_id=notice.turn.thread_id, turn=summary_to_wire(notice.turn))


@notice_to_wire.register
def _(notice: notices.ThreadTurnCompleted) -> Wire:
    return sent.ThreadTurnCompleted(turn=summary_to_wire(notice.turn))


@notice_to_wire.register
def _(notice: notices.ThreadStarted) -> Wire:
    return sent.ThreadStarted(thread=thread_to_wire(notice.thread))


@notice_to_wire.register
def _(notice: notices.StatusChanged) -> Wire:
    return sent.ThreadStatusChanged(thread_id=notice.thread_id, status=status_to_wire(notice.status))


@notice_to_wire.register
def _(notice: notices.Warned) -> Wire:
    warning = notice.warning
    return sent.WarningNotification(
        thread_id=notice.thread_id,
        message=warning.message,
        source=warning.source,
        path=present(warning.path),
    )


@notice_to_wire.register
def _(notice: notices.ThreadDeleted) -> Wire:
    return sent.ThreadDeleted(thread_id=notice.thread_id)


@notice_to_wire.register
def _(notice: notices.SettingsChanged) -> Wire:
    return sent.ThreadSettingsUpdated(
        thread_id=notice.thread_id,
        thinking_level=notice.thinking_level,
        approval_mode=notice.approval_mode,
        model=_thread_model(notice.model),
    )


@notice_to_wire.register
def _(notice: notices.UsageChanged) -> Wire:
    return sent.TokenUsageUpdated(
        thread_id=notice.thread_id, turn_id=notice.turn_id, usage=usage_to_wire(notice.usage)
    )


@notice_to_wire.register
def _(notice: notices.QueueChanged) -> Wire:
    queue = queue_to_wire(notice)
    return sent.TurnQueueUpdated(
        thread_id=notice.thread_id, steering=queue.steering, follow_up=queue.follow_up
    )


@notice_to_wire.register
def _(notice: notices.InputDropped) -> Wire:
    return sent.ErrorNotification(
        code=notice.code,  # type: ignore[arg-type]
        message=notice.message,
        thread_id=notice.thread_id,
        queue_id=notice.queue_id,
        client_message_id=present(notice.client_message_id),
        data=dict(notice.data) if notice.data else UNSET,
    )


@notice_to_wire.register
def _(notice: notices.RetryWaiting) -> Wire:
    return sent.TurnRetry(
        thread_id=notice.thread_id,
        turn_id=notice.turn_id,
        state="waiting",
        attempt=notice.attempt,
        max_attempts=notice.max_attempts,
        delay_ms=notice.delay_ms,
        message=notice.message,
    )


@notice_to_wire.register
def _(notice: notices.RetryEnded) -> Wire:
    return sent.TurnRetry(
        thread_id=notice.thread_id,
        turn_id=notice.turn_id,
        state="ended",
        attempt=notice.attempt,
        success=notice.success,
        message=present(notice.message),
    )
