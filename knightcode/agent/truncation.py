"""How much of a text a model is shown, and the words for the rest.

Texts are cut at two limits, whichever comes first: lines and UTF-8 bytes. A head keeps the first
whole lines, a tail the last ones. A caller that no longer holds a whole text gives the totals it
counted; what it kept must then reach beyond the limits.

Source: agent loop, "Truncation".
"""

from typing import Any, Literal

import attrs

MAX_LINES = 2000
MAX_BYTES = 50 * 1024


@attrs.frozen
class Truncation:
    """The outcome of a cut. Sizes are UTF-8 bytes of the text, line breaks included.

    Attributes:
        content: what is shown.
        last_line_partial: a tail whose last line alone was too large: `content` is that line's end.
        first_line_exceeds_limit: a head whose first line alone was too large: `content` is empty.
    """

    content: str
    truncated: bool
    truncated_by: Literal["lines", "bytes"] | None
    total_lines: int
    total_bytes: int
    output_lines: int
    output_bytes: int
    last_line_partial: bool = False
    first_line_exceeds_limit: bool = False
    max_lines: int = MAX_LINES
    max_bytes: int = MAX_BYTES

    def details(self) -> dict[str, Any]:
        """The `truncation` object of a tool result's details."""
        return {
            "content": self.content,
            "truncated": self.truncated,
            "truncatedBy": self.truncated_by,
            "totalLines": self.total_lines,
            "totalBytes": self.total_bytes,
            "outputLines": self.output_lines,
            "outputBytes": self.output_bytes,
            "lastLinePartial": self.last_line_partial,
            "firstLineExceedsLimit": self.first_line_exceeds_limit,
            "maxLines": self.max_lines,
            "maxBytes": self.max_bytes,
        }


def truncate_head(
    text: str,
    *,
    max_lines: int = MAX_LINES,
    max_bytes: int = MAX_BYTES,
    total_lines: int | None = None,
    total_bytes: int | None = None,
) -> Truncation:
    """The first whole lines of `text`. A final line feed is followed by an empty last line.

    Args:
        text: the text, or its beginning if the totals are given: then more than either limit allows.
        total_lines, total_bytes: of the whole text, where `text` is only its beginning.
    """
    lines = text.split("\n")
    whole = _measured(text, lines, max_lines, max_bytes, total_lines, total_bytes)
    if not whole.truncated:
        return whole
    kept, size, by_bytes = _fill(lines, max_lines, max_bytes)
    return attrs.evolve(
        whole,
        content="\n".join(lines[:kept]),
        truncated_by="bytes" if by_bytes else "lines",
        output_lines=kept,
        output_bytes=size,
        first_line_exceeds_limit=kept == 0 and by_bytes,
    )


def truncate_tail(
    text: str,
    *,
    max_lines: int = MAX_LINES,
    max_bytes: int = MAX_BYTES,
    total_lines: int | None = None,
    total_bytes: int | None = None,
) -> Truncation:
    """The last whole lines of `text`; a final line feed belongs to the line that it ends.

    Args:
        text: the text, or its end if the totals are given: then more than either limit allows.
        total_lines, total_bytes: of the whole text, where `text` is only its end.
    """
    end = "\n" if text.endswith("\n") else ""
    lines = text.removesuffix("\n").split("\n") if text else []
    whole = _measured(text, lines, max_lines, max_bytes, total_lines, total_bytes)
    if not whole.truncated:
        return whole
    kept, size, by_bytes = _fill(lines[::-1], max_lines, max_bytes - len(end))
    content = "\n".join(lines[len(lines) - kept :]) + end if kept else ""
    partial = kept == 0 and by_bytes
    if partial:
        content = cut_to_end(lines[-1] + end, max_bytes)
    return attrs.evolve(
        whole,
        content=content,
        truncated_by="bytes" if by_bytes else "lines",
        output_lines=1 if partial else kept,
        output_bytes=utf8_size(content) if partial else (size + len(end) if kept else 0),
        last_line_partial=partial,
    )


def cut_to_end(text: str, max_bytes: int) -> str:
    """The end of `text` that fits into `max_bytes` of UTF-8, beginning at a whole character."""
    data = text[-max_bytes:].encode(errors="replace") if max_bytes > 0 else b""
    return data[max(0, len(data) - max_bytes) :].decode(errors="ignore")


def format_size(size: int) -> str:
    """A size for people: `512B`, `1.5KB`, `2.0MB`."""
    if size < 1024:
        return f"{size}B"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f}KB"
    return f"{size / (1024 * 1024):.1f}MB"


def utf8_size(text: str) -> int:
    """Bytes of `text` as UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _measured(
    text: str,
    lines: list[str],
    max_lines: int,
    max_bytes: int,
    total_lines: int | None,
    total_bytes: int | None,
) -> Truncation:
    """`text` before any cut, and whether it needs one."""
    total_lines = len(lines) if total_lines is None else total_lines
    total_bytes = utf8_size(text) if total_bytes is None else total_bytes
    return Truncation(
        content=text,
        truncated=total_lines > max_lines or total_bytes > max_bytes,
        truncated_by=None,
        total_lines=total_lines,
        total_bytes=total_bytes,
        output_lines=total_lines,
        output_bytes=total_bytes,
        max_lines=max_lines,
        max_bytes=max_bytes,
    )


def _fill(lines: list[str], max_lines: int, max_bytes: int) -> tuple[int, int, bool]:
    """How many of the lines fit, their size with the breaks between them, and whether bytes decided."""
    size = 0
    for count, line in enumerate(lines[:max_lines]):
        more = utf8_size(line) + (1 if count else 0)
        if size + more > max_bytes:
            return count, size, True
        size += more
    return min(len(lines), max_lines), size, False
