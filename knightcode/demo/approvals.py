"""Answering the server's questions: by itself, or as the person at the terminal says.

Source: app server, "Approvals".
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import trio

from knightcode.demo.screen import Screen
from knightcode.demo.show import Transcript, approval_text
from knightcode_protocol.objects import Decision
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams, ToolCallRequestApprovalResult

_LINE_BYTES = 4096
"""A terminal hands over a line at a time, and no longer one."""

_SHORT: Mapping[Decision, tuple[str, ...]] = {
    "accept": ("y", "yes"),
    "decline": ("n", "no"),
    "cancel": ("c",),
}


def answers_to(decisions: Sequence[Decision]) -> dict[str, Decision]:
    """What may be typed, in lower case, for each decision: its name, its first letter, and yes or no.

    Where two begin with the same letter, the letter is the first one's.
    """
    answers: dict[str, Decision] = {}
    for decision in decisions:
        answers[decision.lower()] = decision
        for short in (*_SHORT.get(decision, ()), decision[0]):
            answers.setdefault(short, decision)
    return answers


def choices_text(decisions: Sequence[Decision]) -> str:
    """What may be typed, for a person: each decision, and the shortest way to say it if there is one."""
    texts = [f"{name} ({_SHORT[name][0]})" if name in _SHORT else name for name in decisions]
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)


@attrs.define(eq=False)
class Approver:
    """Shows each question and answers it.

    Attributes:
        terminal: descriptor on which a person answers; None lets the demo accept by itself.
    """

    screen: Screen
    transcript: Transcript
    terminal: int | None = None
    _one_at_a_time: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def answer(self, asked: ToolCallRequestApprovalParams) -> ToolCallRequestApprovalResult:
        """The answer to a question. The client cancels this when the server takes its question back."""
        async with self._one_at_a_time:
            self.screen.write(self.transcript.interject(approval_text(self.screen.style, asked)))
            decision: Decision = "accept"
            if self.terminal is None:
                self.screen.line(self.screen.style.asks("    accept") + " (the demo answers)")
            elif self.screen.lost:  # nobody can have read the question
                decision = "cancel"
            else:
                decision = await self._ask(self.terminal, asked.decisions)
            return ToolCallRequestApprovalResult(decision=decision)

    async def _ask(self, terminal: int, decisions: Sequence[Decision]) -> Decision:
        answers, choices = answers_to(decisions), choices_text(decisions)
        while line := await self._read_line(terminal, choices):
            decision = answers.get(line.decode(errors="replace").strip().lower())
            if decision is not None:
                return decision
            self.screen.line(f"    That is no answer; please type {choices}.")
        return "cancel"

    async def _read_line(self, terminal: int, choices: str) -> bytes:
        """What a person typed, with its end; empty at the end of input."""
        line = b""
        self.screen.write(self.screen.style.asks(f"    {choices}? "))
        try:
            # Not in a worker thread: one that waits for a key cannot be cancelled.
            await trio.lowlevel.wait_readable(terminal)
            with suppress(OSError):  # the terminal was closed
                line = os.read(terminal, _LINE_BYTES)
        finally:
            if not line:
                self.screen.line()  # nobody pressed enter, so the question's line is still open
        return line
