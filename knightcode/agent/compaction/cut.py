"""Where a branch is cut: what comes before the cut is summarised, the rest stays as it is. Pure.

Source: Compaction, "Choosing the cut".
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import attrs

from knightcode.agent.compaction.estimate import message_tokens
from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, Entry, MessageEntry
from knightcode.sessions.projection import message_of

_STARTS_TURN: Final = (UserMessage, BashExecutionMessage, CustomMessage, BranchSummaryMessage)
_CANDIDATE: Final = (AssistantMessage, *_STARTS_TURN)

_E = TypeVar("_E", bound=Entry)


@attrs.frozen
class Placed:
    """An entry with the message that it is to the model; None for one that the model does not see."""

    entry: Entry
    message: Message | None


@attrs.frozen
class Cut:
    """Places in a span: `kept` is where the kept part begins, `turn` where the turn began that it cuts.

    `turn` equals `kept` when no turn is cut in two.
    """

    kept: int
    turn: int


def last_compaction(path: Sequence[Entry]) -> int | None:
    """Where on the branch its last compaction stands."""
    return next((at for at in range(len(path) - 1, -1, -1) if type(path[at]) is CompactionEntry), None)


def kept_from(path: Sequence[Entry], compacted_at: int | None) -> int:
    """Where on the branch the entries begin that are still in the context, word for word."""
    if compacted_at is None:
        return 0
    compaction = path[compacted_at]
    assert isinstance(compaction, CompactionEntry)
    first = compaction.first_kept_entry_id
    # From the end: what is kept is the shorter part of a long branch.
    return next((at for at in range(compacted_at - 1, -1, -1) if path[at].id == first), compacted_at)


def edits_of(path: Sequence[Entry]) -> dict[str, ContextEditEntry]:
    """The edit that holds for each entry that has one, under the entry's id."""
    return {entry.target_id: entry for entry in path if type(entry) is ContextEditEntry}


def span_of(path: Sequence[Entry]) -> list[Placed]:
    """What a compaction may summarise: all that is in the context but the compaction before it.

    System messages that this one has kept are no part of the context any more, and none of the span.
    """
    compacted_at = last_compaction(path)
    edits = edits_of(path)
    span: list[Placed] = []
    for at in range(kept_from(path, compacted_at), len(path)):
        entry = path[at]
        message = message_of(entry, edits)
        before = compacted_at is not None and at < compacted_at
        if at != compacted_at and not (before and isinstance(message, SystemMessage)):
            span.append(Placed(entry, message))
    return span


def find_cut(span: Sequence[Placed], keep_recent_tokens: int) -> Cut | None:
    """Where to cut so that about the wanted number of tokens stays; None when there is no such place."""
    candidates = _candidates(span)
    if not candidates:
        return None
    full_at = _where_full(span, keep_recent_tokens)
    if full_at is None:
        chosen = candidates[0]
    else:
        chosen = next((at for at in candidates if at >= full_at), candidates[-1])
        if _is_recovery(span[chosen + 1 :]):
            chosen += 1
    kept = chosen
    while kept > 0 and span[kept - 1].message is None and not _is_compaction(span[kept - 1]):
        kept -= 1
    return Cut(kept, _turn_start(span, chosen, kept))


def _candidates(span: Sequence[Placed]) -> list[int]:
    """The places at which the kept part may begin, in order.

    Not between a call and its result, wherever that was stored: a provider refuses one alone.
    """
    called_at: dict[str, int] = {}
    first_call: list[int] = []
    """Of each result the place of its call, of anything else its own."""
    for at, placed in enumerate(span):
        message = placed.message
        first_call.append(at)
        if isinstance(message, AssistantMessage):
            called_at |= {block.id: at for block in message.content if isinstance(block, ToolCallBlock)}
        elif isinstance(message, ToolResultMessage):
            first_call[at] = called_at.get(message.tool_call_id, at)
    found: list[int] = []
    needed = len(span)
    for at in range(len(span) - 1, -1, -1):
        needed = min(needed, first_call[at])
        if needed == at and isinstance(span[at].message, _CANDIDATE):
            found.append(at)
    return found[::-1]


def _where_full(span: Sequence[Placed], budget: int) -> int | None:
    """The newest place from which on the span holds at least the budget; None when it holds less."""
    total = 0
    for at in range(len(span) - 1, -1, -1):
        message = span[at].message
        tokens = 0 if message is None else message_tokens(message)
        total += tokens
        if tokens and total >= budget:
            return at
    return None


def _is_recovery(after: Sequence[Placed]) -> bool:
    """Whether all that follows is an attempt that was taken out of the context.

    Then even the newest message may be summarised: it is what did not fit.
    """
    ids = {placed.entry.id for placed in after}
    return (
        all(placed.message is None for placed in after)
        and any(_is_reply(placed.entry) for placed in after)
        and not any(_is_compaction(placed) for placed in after)
        and not any(
            entry.replacement is not None and entry.target_id not in ids
            for entry in _of_type(after, ContextEditEntry)
        )
    )


def _turn_start(span: Sequence[Placed], chosen: int, kept: int) -> int:
    if isinstance(span[chosen].message, _STARTS_TURN):
        return kept
    return next((at for at in range(kept - 1, -1, -1) if isinstance(span[at].message, _STARTS_TURN)), kept)


def _of_type(span: Sequence[Placed], kind: type[_E]) -> list[_E]:
    return [placed.entry for placed in span if isinstance(placed.entry, kind)]


def _is_reply(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage)


def _is_compaction(placed: Placed) -> bool:
    return isinstance(placed.entry, CompactionEntry)
