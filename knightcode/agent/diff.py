"""Line diffs: one for people to look at, one that `git apply -p0` and `patch -p0` take.

Lines end at line feeds and nothing else; carriage returns and other separators are part of a line,
so a patch of a file with CRLF line ends applies to that file.

Source: agent loop, "edit", "write".
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate

import attrs

DISPLAY_CONTEXT = 3
PATCH_CONTEXT = 4
_MAX_COMPARED_LINES = 20_000
"""Above this a differing stretch is shown as replaced: comparing takes time by the square of it."""
_QUOTED = re.compile(r'["\\\x00-\x1f\x7f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


@attrs.frozen
class Span:
    """A replaced stretch, as offsets of characters in the old and in the new text."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


@attrs.frozen
class Block:
    """Lines `old_start` to `old_end` (from 0, end excluded) became the lines named by `new_`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


@attrs.frozen
class Diff:
    """Two texts as lines, ends included, and the blocks in which they differ, in order."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def first_changed_line(self) -> int:
        """Line number, from 1, in the new text; of the line after a removed block."""
        return self.blocks[0].new_start + 1 if self.blocks else 1

    def display(self, context: int = DISPLAY_CONTEXT) -> str:
        """For people: `+NN text`, `-NN text`, ` NN text`, and `...` where lines are skipped.

        Context and added lines carry their number in the new text, removed ones that in the old.
        """
        width = len(str(max(len(self.old), len(self.new), 1)))
        skipped = f" {'':{width}} ..."
        rows: list[str] = []
        shown = 0  # lines of the new text
        for hunk in self._hunks(context):
            start, end = self._reach(hunk, context)[2:]
            if start > shown:
                rows.append(skipped)
            at = start
            for block in hunk:
                rows += (f" {n + 1:{width}} {_bare(self.new[n])}" for n in range(at, block.new_start))
                rows += (
                    f"-{n + 1:{width}} {_bare(self.old[n])}" for n in range(block.old_start, block.old_end)
                )
                rows += (
                    f"+{n + 1:{width}} {_bare(self.new[n])}" for n in range(block.new_start, block.new_end)
                )
                at = block.new_end
            rows += (f" {n + 1:{width}} {_bare(self.new[n])}" for n in range(at, end))
            shown = end
        if self.blocks and shown < len(self.new):
            rows.append(skipped)
        return "\n".join(rows)

    def patch(self, path: str, *, added: bool = False, context: int = PATCH_CONTEXT) -> str:
        """A unified diff; empty when the texts are equal.

        Args:
            path: for both headers, as it is: without `a/` and `b/`.
            added: the file is new, so the old side is `/dev/null`.
        """
        if not self.blocks:
            return ""
        header = _header_path(path)
        out = [f"--- {'/dev/null' if added else header}\n", f"+++ {header}\n"]
        for hunk in self._hunks(context):
            old_start, old_end, new_start, new_end = self._reach(hunk, context)
            out.append(f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n")
            at = old_start
            for block in hunk:
                out += (_patch_line(" ", line) for line in self.old[at : block.old_start])
                out += (_patch_line("-", line) for line in self.old[block.old_start : block.old_end])
                out += (_patch_line("+", line) for line in self.new[block.new_start : block.new_end])
                at = block.old_end
            out += (_patch_line(" ", line) for line in self.old[at:old_end])
        return "".join(out)

    def _hunks(self, context: int) -> Iterator[list[Block]]:
        """Blocks whose context would touch or overlap, together."""
        hunk: list[Block] = []
        for block in self.blocks:
            if hunk and block.old_start - hunk[-1].old_end > 2 * context:
                yield hunk
                hunk = []
            hunk.append(block)
        if hunk:
            yield hunk

    def _reach(self, hunk: Sequence[Block], context: int) -> tuple[int, int, int, int]:
        """A hunk's lines with context: old start and end, new start and end."""
        before = min(context, hunk[0].old_start)
        after = min(context, len(self.old) - hunk[-1].old_end)
        return (
            hunk[0].old_start - before,
            hunk[-1].old_end + after,
            hunk[0].new_start - before,
            hunk[-1].new_end + after,
        )


def compare(old: str, new: str, spans: Sequence[Span] | None = None) -> Diff:
    """The line diff of two texts. Takes time: large texts belong into a worker thread.

    Args:
        spans: where the texts may differ, in order and apart; all else is then taken as equal. None
            compares everything.
    """
    old_lines, new_lines = split_lines(old), split_lines(new)
    if old == new:
        regions = []
    elif spans is None:
        regions = [Block(0, len(old_lines), 0, len(new_lines))]
    else:
        regions = _line_regions(old, new, old_lines, new_lines, spans)
    blocks = [block for region in regions for block in _differences(old_lines, new_lines, region)]
    return Diff(tuple(old_lines), tuple(new_lines), tuple(blocks))


def split_lines(text: str) -> list[str]:
    """The lines of a text with their line feeds; the last one may have none."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _line_regions(
    old: str, new: str, old_lines: list[str], new_lines: list[str], spans: Sequence[Span]
) -> list[Block]:
    """Spans widened to whole lines on both sides; those without a line's border between them together."""
    joined: list[Span] = []
    for span in spans:
        if joined and not _apart(old, new, joined[-1], span):
            last = joined.pop()
            joined.append(attrs.evolve(last, old_end=span.old_end, new_end=span.new_end))
        else:
            joined.append(span)
    old_starts, new_starts = _starts(old_lines), _starts(new_lines)
    regions: list[Block] = []
    for span in joined:
        old_end, new_end = span.old_end, span.new_end
        if not (_at_line_start(old, old_end) and _at_line_start(new, new_end)):
            old_end, new_end = _line_end(old, old_end), _line_end(new, new_end)
        regions.append(
            Block(
                _line_of(old, old_starts, span.old_start),
                _lines_before(old_starts, old_end),
                _line_of(new, new_starts, span.new_start),
                _lines_before(new_starts, new_end),
            )
        )
    return regions


def _apart(old: str, new: str, before: Span, after: Span) -> bool:
    """Whether a line starts, in both texts, within the equal text between two spans."""
    if before.old_end == after.old_start:
        return False
    aligned = _at_line_start(old, before.old_end) and _at_line_start(new, before.new_end)
    return aligned or "\n" in old[before.old_end : after.old_start]


def _differences(old: list[str], new: list[str], region: Block) -> Iterator[Block]:
    old_start, old_end, new_start, new_end = attrs.astuple(region)
    while old_start < old_end and new_start < new_end and old[old_start] == new[new_start]:
        old_start, new_start = old_start + 1, new_start + 1
    while old_start < old_end and new_start < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end, new_end = old_end - 1, new_end - 1
    if old_start == old_end and new_start == new_end:
        return
    one_sided = old_start == old_end or new_start == new_end
    if one_sided or old_end - old_start + new_end - new_start > _MAX_COMPARED_LINES:
        yield Block(old_start, old_end, new_start, new_end)
        return
    matcher = SequenceMatcher(None, old[old_start:old_end], new[new_start:new_end])
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield Block(old_start + i1, old_start + i2, new_start + j1, new_start + j2)


def _starts(lines: list[str]) -> list[int]:
    """The offset at which each line starts, and the length of the text last."""
    return [0, *accumulate(map(len, lines))]


def _line_of(text: str, starts: list[int], offset: int) -> int:
    """The line that holds `offset`, or the one that would follow if all lines before it are ended."""
    return bisect_right(starts, text.rfind("\n", 0, offset) + 1) - 1


def _lines_before(starts: list[int], offset: int) -> int:
    """Lines that start before `offset`."""
    return bisect_right(starts, offset - 1, hi=len(starts) - 1) if offset else 0


def _at_line_start(text: str, offset: int) -> bool:
    return offset == 0 or text[offset - 1] == "\n"


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end + 1


def _range(start: int, end: int) -> str:
    """Lines of a hunk header; an empty range is named by the line before it."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _patch_line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _header_path(path: str) -> str:
    """A header's path as git writes it: quoted where it must be, a tab behind a name with spaces."""
    if _QUOTED.search(path):
        return f'"{_QUOTED.sub(_escape, path)}"'
    return f"{path}\t" if " " in path else path


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\{ord(match[0]):03o}"
