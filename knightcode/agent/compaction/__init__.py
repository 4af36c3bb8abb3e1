"""Keeping a context small enough: an older part of the branch is replaced by a summary of it.

Pure, but for `summarise`, which asks the model. Whoever runs the session decides when (`decide`,
`over_threshold`), prepares (`prepare`), asks (`summarise`) and stores (`compaction_entry`); nothing
here writes to a session or sends an event.

Source: Compaction.
"""

from knightcode.agent.compaction.decision import Decision, decide, over_threshold
from knightcode.agent.compaction.estimate import context_tokens, message_tokens
from knightcode.agent.compaction.files import FileOps
from knightcode.agent.compaction.preparation import Preparation, prepare, why_nothing
from knightcode.agent.compaction.settings import CompactionSettings
from knightcode.agent.compaction.stored import (
    compaction_entry,
    compaction_result,
    failure_text,
    hidden_attempt,
)
from knightcode.agent.compaction.summary import Aborted, Failed, Outcome, Summary, summarise

__all__ = [
    "Aborted",
    "CompactionSettings",
    "Decision",
    "Failed",
    "FileOps",
    "Outcome",
    "Preparation",
    "Summary",
    "compaction_entry",
    "compaction_result",
    "context_tokens",
    "decide",
    "failure_text",
    "hidden_attempt",
    "message_tokens",
    "over_threshold",
    "prepare",
    "summarise",
    "why_nothing",
]
