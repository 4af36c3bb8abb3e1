"""The one way to the terminal: text out, with colours where they are wanted.

Source: the demo's own decisions; NO_COLOR as no-color.org has it.
"""

import os
from collections.abc import Mapping
from typing import TextIO

import attrs


@attrs.frozen
class Style:
    """Words with a look; without colours each comes back as it is."""

    colours: bool = False

    def bold(self, text: str) -> str:
        """Headings."""
        return self._wrapped(text, "1")

    def dim(self, text: str) -> str:
        """What may be skipped: reasoning, output, hints."""
        return self._wrapped(text, "2")

    def good(self, text: str) -> str:
        """Success, and added lines."""
        return self._wrapped(text, "32")

    def bad(self, text: str) -> str:
        """Failure, and removed lines."""
        return self._wrapped(text, "31")

    def asks(self, text: str) -> str:
        """What a person is asked."""
        return self._wrapped(text, "33")

    def place(self, text: str) -> str:
        """Where one is: file headers and hunks of a diff."""
        return self._wrapped(text, "36")

    def _wrapped(self, text: str, code: str) -> str:
        if not self.colours or not text:
            return text
        # Line by line: a colour that runs over a line's end stains what others print after it.
        return "\n".join(line and f"\x1b[{code}m{line}\x1b[0m" for line in text.split("\n"))


def wants_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is a terminal that can show colours, and nobody has asked for none."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


@attrs.define(eq=False)
class Screen:
    """Writes to a stream. Output that cannot be written does not stop the demo, which has a server to end.

    Attributes:
        lost: the output leads nowhere any more; everything written since is dropped.
        failure: why, where that is not the reader's wish: a full disk, a closed descriptor.
    """

    _stream: TextIO = attrs.field(alias="stream")
    style: Style = Style()
    lost: bool = attrs.field(default=False, init=False)
    failure: str | None = attrs.field(default=None, init=False)

    def write(self, text: str) -> None:
        """Show `text` as it is, at once. Characters that the stream's encoding lacks become `?`."""
        if self.lost or not text:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except OSError as error:
            self.lost = True
            if not isinstance(error, BrokenPipeError):  # `demo | head` has read all it wants
                self.failure = error.strerror or str(error)
            self._let_go()

    def line(self, text: str = "") -> None:
        """Show `text` and end the line."""
        self.write(f"{text}\n")

    def _let_go(self) -> None:
        """Point the descriptor at nothing: the interpreter flushes the stream once more at exit."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nothing, self._stream.fileno())
        finally:
            os.close(nothing)
