"""Answering the server's questions: by itself, or as the person at the terminal says.

Source: app server, "Approvals".
"""

import os
from contextlib import suppress

import attrs
import trio

from knightcode.demo.screen import Screen
from knightcode.demo.show import Transcript, approval_text
from knightcode_protocol.objects import Decision
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams, ToolCallRequestApprovalResult

_LINE_BYTES = 4096
"""A terminal hands over a line at a time, and no longer one."""

_ANSWERS: dict[str, Decision] = {
    "y": "accept",
    "yes": "accept",
    "n": "decline",
    "no": "decline",
    "c": "cancel",
    "cancel": "cancel",
}


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
            else:
                decision = await self._ask(self.terminal)
            return ToolCallRequestApprovalResult(decision=decision)

    async def _ask(self, terminal: int) -> Decision:
        while line := await self._read_line(terminal):
            decision = _ANSWERS.get(line.decode(errors="replace").strip().lower())
            if decision is not None:
                return decision
        return "cancel"

    async def _read_line(self, terminal: int) -> bytes:
        """What a person typed, with its end; empty at the end of input."""
        line = b""
        self.screen.write(self.screen.style.asks("    run it? y/n/cancel: "))
        try:
            # Not in a worker thread: one that waits for a key cannot be cancelled.
            await trio.lowlevel.wait_readable(terminal)
            with suppress(OSError):  # the terminal was closed
                line = os.read(terminal, _LINE_BYTES)
        finally:
            if not line:
                self.screen.line()  # nobody pressed enter, so the question's line is still open
        return line
