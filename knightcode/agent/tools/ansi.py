"""Terminal escape sequences, taken out of a text that arrives in pieces.

Source: agent loop, the point it leaves open on escapes in the output of commands.
"""

import re

import attrs

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor movement
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # strings: titles, links, device control
    r"|\x1b[ -/]*[0-Z\\^-~]"  # short escapes; after the two above, so that those are taken whole
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_MAX_UNFINISHED = 4096
"""A longer beginning is no sequence of a terminal's; it is text."""


@attrs.define(eq=False)
class EscapeStripper:
    """Removes escape sequences; one that a piece cuts is held back until its end arrives."""

    _held: str = attrs.field(default="", init=False)

    def feed(self, text: str) -> str:
        """The piece without sequences, and with what was held back before it."""
        if "\x1b" not in text and not self._held:
            return text
        text = self._held + text
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _MAX_UNFINISHED))
        self._held = "" if unfinished is None else unfinished[0]
        return _SEQUENCE.sub("", text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """What is still held back, as it is no sequence: nothing, once its escape is dropped."""
        held, self._held = self._held, ""
        return held.replace("\x1b", "")
