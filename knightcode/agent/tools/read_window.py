"""The lines of a file that one read shows, taken from a stream of text. Pure.

Whatever the size of the file, no more is held than what can be shown.

Source: agent loop, "read", "Truncation".
"""

import attrs

from knightcode.agent.truncation import MAX_BYTES, MAX_LINES, Truncation, truncate_head, utf8_size


@attrs.frozen
class Window:
    """What was found.

    Attributes:
        first_line: the number, from 1, of the first line shown.
        shown: the selected lines, cut at the limits.
        file_lines: lines of the whole file.
        first_line_bytes: size of the first selected line.
    """

    first_line: int
    shown: Truncation
    file_lines: int
    first_line_bytes: int

    @property
    def last_line(self) -> int:
        """The number of the last line shown."""
        return self.first_line + self.shown.output_lines - 1


@attrs.define(eq=False)
class WindowReader:
    """Collects lines `offset` to `offset + limit - 1`; a final line feed is followed by an empty line.

    Attributes:
        offset: first line, from 1.
        limit: number of lines; None for all.
    """

    offset: int = 1
    limit: int | None = None
    file_lines: int = attrs.field(default=1, init=False)

    _kept: list[str] = attrs.field(factory=list, init=False)
    _kept_bytes: int = attrs.field(default=0, init=False)
    _kept_breaks: int = attrs.field(default=0, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _breaks: int = attrs.field(default=0, init=False)
    _first_line_bytes: int = attrs.field(default=0, init=False)
    _past: bool = attrs.field(default=False, init=False)

    def feed(self, text: str) -> None:
        """The next piece of the file."""
        missing = self.offset - self.file_lines
        breaks = text.count("\n")
        self.file_lines += breaks
        if self._past or missing > breaks:
            return
        if missing > 0:
            text = text.split("\n", missing)[missing]
            breaks -= missing
        if self.limit is not None and breaks >= self.limit - self._breaks:
            lines_left = self.limit - self._breaks
            text = "\n".join(text.split("\n", lines_left)[:lines_left])
            breaks = lines_left - 1
            self._past = True
        self._select(text, breaks)

    def finish(self) -> Window | None:
        """The window once the file has ended; None when `offset` is beyond its last line."""
        if self.offset > self.file_lines:
            return None
        shown = truncate_head("".join(self._kept), total_lines=self._breaks + 1, total_bytes=self._bytes)
        return Window(self.offset, shown, self.file_lines, self._first_line_bytes)

    def _select(self, text: str, breaks: int) -> None:
        size = utf8_size(text)
        if self._breaks == 0:
            head = text.split("\n", 1)[0]
            self._first_line_bytes += utf8_size(head) if breaks else size
        self._bytes += size
        self._breaks += breaks
        # One piece beyond a limit is enough to see that it was reached.
        if self._kept_bytes <= MAX_BYTES and self._kept_breaks < MAX_LINES:
            self._kept.append(text)
            self._kept_bytes += size
            self._kept_breaks += breaks
