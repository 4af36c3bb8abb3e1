"""The approval gate: which calls ask, what is offered, and what an answer means.

Source: tools and gates, "Approval gate"; App Server, "Approvals".
"""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from knightcode.agent.tools.base import Tool

ApprovalMode = Literal["ask", "autoEdit", "fullAccess"]
Decision = Literal["accept", "acceptForSession", "acceptPrefixForSession", "decline", "cancel"]

MODES: tuple[ApprovalMode, ...] = ("ask", "autoEdit", "fullAccess")
READ_ONLY = frozenset({"read", "grep", "find", "ls", "ask_user", "submit_plan"})
MESSAGE_LIMIT = 4_000
"""Characters of a decline's message that reach the agent."""

_OFFERED: tuple[Decision, ...] = ("accept", "decline", "cancel")


@attrs.frozen
class Question:
    """A call that may not run before a person said so."""

    tool: str
    arguments: Mapping[str, Any]
    decisions: tuple[Decision, ...] = _OFFERED
    reason: str | None = None


@attrs.frozen
class Verdict:
    """What became of a question."""

    decision: Decision
    message: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the call runs."""
        return self.decision in ("accept", "acceptForSession", "acceptPrefixForSession")

    def blocked_reason(self) -> str:
        """What the model reads when the call does not run."""
        if self.decision == "cancel":
            return "This call was cancelled before it ran."
        return self.message or "The user declined this call."


def question_for(mode: ApprovalMode, tool: Tool, arguments: Mapping[str, Any]) -> Question | None:
    """The question to ask before `tool` runs; None when it runs unasked.

    The read-only set holds the built-in implementations alone: a tool of an extension that takes
    the name of one of them asks. In `autoEdit` everything outside that set asks as well, until
    edits inside the workspace can be told from others.
    """
    if mode == "fullAccess" or (tool.builtin and tool.name in READ_ONLY):
        return None
    return Question(tool.name, arguments)


def verdict_of(question: Question, result: object) -> Verdict:
    """What a client's answer means. Anything but a decision that was offered declines.

    Args:
        result: the `result` of the response, any JSON; None for an error response.
    """
    if not isinstance(result, Mapping):
        return Verdict("decline")
    for decision in question.decisions:
        if result.get("decision") == decision:
            message = result.get("message")
            if decision != "decline" or not isinstance(message, str):
                return Verdict(decision)
            return Verdict("decline", message.strip()[:MESSAGE_LIMIT] or None)
    return Verdict("decline")
