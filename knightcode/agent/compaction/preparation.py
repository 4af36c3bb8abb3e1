"""What a compaction is going to do: which messages are summarised, and what stays. Pure.

Source: Compaction, "Choosing the cut", "Manual compaction".
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from knightcode.agent.compaction.cut import Placed, find_cut, last_compaction, span_of
from knightcode.agent.compaction.estimate import context_tokens
from knightcode.agent.compaction.files import FileOps, file_ops, summary_without_blocks
from knightcode.agent.compaction.settings import CompactionSettings
from knightcode.messages import Message, SystemMessage
from knightcode.sessions.context import SessionContext
from knightcode.sessions.entries import CompactionEntry, Entry, TurnEndEntry, TurnStartEntry

ALREADY_COMPACTED: Final = "Already compacted"
NOTHING_TO_COMPACT: Final = "Nothing to compact (session too small)"

_MARKERS: Final = (TurnStartEntry, TurnEndEntry)
"""A compaction that was asked for is a turn of its own, so these may follow one that nothing follows."""


@attrs.frozen
class Preparation:
    """A compaction that can be carried out.

    Attributes:
        first_kept_entry_id: where what stays word for word begins.
        messages_to_summarize: from the end of the last summary to the cut, or to the start of the turn
            that is cut; without system messages.
        turn_prefix_messages: the beginning of the turn that is cut, empty when none is.
        is_split_turn: whether the cut is inside a turn.
        tokens_before: estimated size of the context.
        previous_summary: the last compaction's, without its file lists; None if there was none.
        file_ops: what was done to files in all that the new summary stands for.
        settings: the numbers that this compaction keeps to its end.
    """

    first_kept_entry_id: str
    messages_to_summarize: tuple[Message, ...]
    turn_prefix_messages: tuple[Message, ...]
    is_split_turn: bool
    tokens_before: int
    previous_summary: str | None
    file_ops: FileOps
    settings: CompactionSettings


def prepare(
    path: Sequence[Entry], context: SessionContext, settings: CompactionSettings
) -> Preparation | None:
    """How to compact a branch; None when there is nothing to compact, see `why_nothing`.

    Args:
        path: the branch, root first.
        context: what the branch says at its end.
        settings: of the model that the session uses; `enabled` is not looked at.
    """
    if _is_compacted(path):
        return None
    span = span_of(path)
    cut = find_cut(span, settings.keep_recent_tokens)
    if cut is None:
        return None
    previous = _previous(path)
    history = [*_retained(previous), *_messages(span[: cut.turn])]
    prefix = _messages(span[cut.turn : cut.kept])
    if not history and not prefix:
        return None
    return Preparation(
        first_kept_entry_id=span[cut.kept].entry.id,
        messages_to_summarize=tuple(history),
        turn_prefix_messages=tuple(prefix),
        is_split_turn=cut.turn < cut.kept,
        tokens_before=context_tokens(path, context),
        previous_summary=None if previous is None else summary_without_blocks(previous),
        file_ops=file_ops([*history, *prefix], previous),
        settings=settings,
    )


def why_nothing(path: Sequence[Entry]) -> str:
    """Why `prepare` found nothing to do, for the person who asked for a compaction."""
    return ALREADY_COMPACTED if _is_compacted(path) else NOTHING_TO_COMPACT


def _is_compacted(path: Sequence[Entry]) -> bool:
    last = next((entry for entry in reversed(path) if not isinstance(entry, _MARKERS)), None)
    return isinstance(last, CompactionEntry)


def _previous(path: Sequence[Entry]) -> CompactionEntry | None:
    at = last_compaction(path)
    if at is None:
        return None
    entry = path[at]
    assert isinstance(entry, CompactionEntry)
    return entry


def _retained(previous: CompactionEntry | None) -> Iterable[Message]:
    """Messages that an older form keeps inside the entry: no cut can keep them, so they are summarised."""
    if previous is None or previous.first_kept_entry_id is not None:
        return ()
    return _without_system(previous.retained_tail or [])


def _messages(span: Sequence[Placed]) -> list[Message]:
    return _without_system(placed.message for placed in span if placed.message is not None)


def _without_system(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if not isinstance(message, SystemMessage)]
