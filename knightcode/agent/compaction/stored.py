"""What a compaction leaves in the session, and what is told of it. Pure.

Source: Compaction, "Storing", "Overflow and length recovery".
"""

from collections.abc import Sequence
from typing import Final

from knightcode.agent.compaction.estimate import sum_of_estimates
from knightcode.agent.compaction.preparation import Preparation
from knightcode.agent.compaction.summary import Summary
from knightcode.events import CompactionReason, CompactionResult
from knightcode.messages import AssistantMessage, ToolResultMessage
from knightcode.sessions.context import SessionContext, SystemState
from knightcode.sessions.entries import CompactionEntry, ContextEditEntry, Entry, MessageEntry

_FAILED: Final[dict[CompactionReason, str]] = {
    "manual": "Compaction failed",
    "threshold": "Auto-compaction failed",
    "overflow": "Context overflow recovery failed",
}


def compaction_entry(
    reason: CompactionReason,
    preparation: Preparation,
    summary: Summary,
    context: SessionContext,
    now_ms: int,
) -> CompactionEntry:
    """The draft to append at the leaf.

    Args:
        reason: goes into the details, so that history reads as it was told.
        context: what the branch says now: its prompt and tools go with the summary.
        now_ms: Unix milliseconds, the time of the prompt that is kept.
    """
    declared = context.system != SystemState()
    return CompactionEntry(
        summary=summary.text,
        first_kept_entry_id=preparation.first_kept_entry_id,
        tokens_before=preparation.tokens_before,
        system_message=context.system.message(now_ms) if declared else None,
        usage=summary.usage,
        details={**summary.files.details(), "reason": reason},
    )


def compaction_result(entry: CompactionEntry, context: SessionContext) -> CompactionResult:
    """What is told of a compaction.

    Args:
        entry: as it was stored.
        context: what the branch says after it.
    """
    return CompactionResult(
        summary=entry.summary,
        first_kept_entry_id=entry.first_kept_entry_id or entry.id,
        tokens_before=entry.tokens_before,
        estimated_tokens_after=sum_of_estimates(context.messages),
        usage=entry.usage,
        details=entry.details,
    )


def failure_text(reason: CompactionReason, why: str) -> str:
    """What is told of a compaction that failed."""
    return f"{_FAILED[reason]}: {why}"


def hidden_attempt(path: Sequence[Entry]) -> list[ContextEditEntry]:
    """Drafts that hide the last reply on the branch, and its results, from the model; empty without one."""
    targets: list[str] = []
    for entry in reversed(path):
        message = entry.message if isinstance(entry, MessageEntry) else None
        if isinstance(message, AssistantMessage | ToolResultMessage):
            targets.append(entry.id)
        if isinstance(message, AssistantMessage):
            return [ContextEditEntry(target_id=target, replacement=None) for target in reversed(targets)]
    return []
