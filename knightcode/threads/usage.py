"""What a thread has cost so far, over all of its entries.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Queue, usage, model, warning, UI".
"""

from collections.abc import Iterable

import attrs

from knightcode.messages import AssistantMessage, ToolResultMessage
from knightcode.messages import Usage as MessageUsage
from knightcode.models.model import Model
from knightcode.sessions.entries import BranchSummaryEntry, CompactionEntry, Entry, MessageEntry, UsageEntry
from knightcode.threads.notices import Usage

_WITH_USAGE = (MessageEntry, CompactionEntry, BranchSummaryEntry, UsageEntry)


@attrs.frozen
class UsageTotals:
    """Sums; `context_tokens` is what the last reply's request and answer took, None when unknown."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float = 0.0
    context_tokens: int | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "UsageTotals":
        """The totals of a whole file."""
        totals = cls()
        for entry in entries:
            if isinstance(entry, _WITH_USAGE):  # of a long file these are the few
                totals = totals.plus(entry)
        return totals

    def plus(self, entry: Entry) -> "UsageTotals":
        """The totals with one more entry."""
        usage: MessageUsage | None = None
        context = self.context_tokens
        if isinstance(entry, MessageEntry):
            if isinstance(entry.message, AssistantMessage):
                usage = entry.message.usage
                if entry.message.stop_reason not in ("error", "aborted"):
                    context = usage.tokens or None
            elif isinstance(entry.message, ToolResultMessage):
                usage = entry.message.usage
        elif isinstance(entry, (CompactionEntry, BranchSummaryEntry, UsageEntry)):
            usage = entry.usage
            if isinstance(entry, CompactionEntry):
                context = None
        if usage is None:
            return self if context == self.context_tokens else attrs.evolve(self, context_tokens=context)
        return UsageTotals(
            input=self.input + usage.input,
            output=self.output + usage.output,
            cache_read=self.cache_read + usage.cache_read,
            cache_write=self.cache_write + usage.cache_write,
            cost=self.cost + usage.cost.total,
            context_tokens=context,
        )

    def usage(self, model: Model | None) -> Usage:
        """As clients see it."""
        return Usage(**attrs.asdict(self), context_window=0 if model is None else model.context_window)
