"""Whether a context has to be made smaller, and why. Pure.

Source: Compaction, "When automatic compaction runs", "Decision after a reply".
"""

import sys
from collections.abc import Sequence
from enum import Enum

from knightcode.agent.compaction.cut import edits_of, kept_from, last_compaction
from knightcode.agent.compaction.estimate import context_tokens, list_tokens, reports_usage
from knightcode.agent.compaction.settings import CompactionSettings
from knightcode.messages import AssistantMessage
from knightcode.models.errors import is_overflow
from knightcode.models.model import Model
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import ContextEditEntry, Entry, MessageEntry
from knightcode.sessions.projection import milliseconds


class Decision(Enum):
    """What is to be done after a reply."""

    NOTHING = "nothing"
    THRESHOLD = "threshold"
    """Compact with this reason; the reply stands."""
    OVERFLOW = "overflow"
    """Compact with this reason; the reply stands, though it did not see everything."""
    RECOVER = "recover"
    """Hide the reply, compact with reason `overflow`, and ask again."""


def over_threshold(tokens: int, model: Model, settings: CompactionSettings) -> bool:
    """Whether a context of this size is to be compacted, without regard to how the last reply ended.

    Never for a model whose window is unknown.
    """
    window = model.context_window
    return settings.enabled and window > 0 and tokens > window - settings.reserve_tokens


def decide(
    path: Sequence[Entry],
    context: SessionContext,
    model: Model,
    settings: CompactionSettings,
    *,
    before_prompt: bool = False,
) -> Decision:
    """What the last reply on a branch calls for.

    Args:
        path: the branch, root first.
        context: what the branch says at its end.
        model: the one that the next request is for.
        settings: as they hold for the model.
        before_prompt: whether a new prompt follows: then a reply that was aborted counts as well.
    """
    compacted_at = last_compaction(path)
    reply_at = _last_reply(path, 0 if compacted_at is None else compacted_at + 1)
    if not settings.enabled or reply_at is None:
        return Decision.NOTHING
    reply = _reply(path[reply_at])
    assert reply is not None
    if reply.stop_reason == "aborted" and not before_prompt:
        return Decision.NOTHING
    # Times are compared as well: the request may have begun before the compaction.
    compacted_ms = None if compacted_at is None else milliseconds(path[compacted_at])
    if _is_stale(reply, compacted_ms):
        return Decision.NOTHING
    if _did_not_fit(reply, model) and _is_seen(path, reply_at):
        return Decision.OVERFLOW if reply.stop_reason == "stop" else Decision.RECOVER
    tokens = _tokens(path, context, reply, compacted_at)
    over = tokens is not None and over_threshold(tokens, model, settings)
    return Decision.THRESHOLD if over else Decision.NOTHING


def _last_reply(path: Sequence[Entry], since: int) -> int | None:
    return next((at for at in range(len(path) - 1, since - 1, -1) if _reply(path[at]) is not None), None)


def _reply(entry: Entry) -> AssistantMessage | None:
    message = entry.message if isinstance(entry, MessageEntry) else None
    return message if isinstance(message, AssistantMessage) else None


def _is_stale(reply: AssistantMessage, compacted_ms: int | None) -> bool:
    # The branch has the reply after the compaction. Within one millisecond that order is what counts: the
    # request that follows a recovery begins at once.
    return compacted_ms is not None and reply.timestamp < compacted_ms


def _did_not_fit(reply: AssistantMessage, model: Model) -> bool:
    """Whether the current model's reply overflowed, or was cut off before the model's own limit."""
    if (reply.provider, reply.model) != model.key:
        return False
    # Against an unknown window no size is too large; the provider's words still count.
    window = model.context_window if model.context_window > 0 else sys.maxsize
    cut_off = reply.stop_reason == "length" and reply.usage.output < model.max_tokens
    return cut_off or is_overflow(reply, window)


def _is_seen(path: Sequence[Entry], reply_at: int) -> bool:
    """Whether the model still sees the reply: a retry or a recovery may have hidden it."""
    edit = edits_of(path[reply_at:]).get(path[reply_at].id)
    return edit is None or edit.replacement is not None


def _tokens(
    path: Sequence[Entry], context: SessionContext, reply: AssistantMessage, compacted_at: int | None
) -> int | None:
    """The size of the context; None when the only figure for it is from before the last compaction."""
    if any(type(entry) is ContextEditEntry for entry in path[kept_from(path, compacted_at) :]):
        return context_tokens(path, context)
    if reply.stop_reason != "error" and (reported := reply.usage.tokens):
        return reported
    figure = next((one for one in reversed(context.messages) if reports_usage(one)), None)
    if figure is None or compacted_at is None:
        return list_tokens(context.messages)
    # Nothing is edited here, so the context has the very messages of the branch.
    is_new = any(_reply(entry) is figure for entry in path[compacted_at + 1 :])
    return list_tokens(context.messages) if is_new else None
