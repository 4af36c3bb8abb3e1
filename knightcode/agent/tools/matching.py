"""Where the texts of an edit stand in a file, and the file with them replaced. Pure.

Texts are matched exactly if all of them can be, else on a loosened copy of the file. Either way only
what is replaced changes: every other line keeps its bytes, its own line end included.

Source: agent loop, "edit".
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

import attrs

from knightcode.agent.diff import Span
from knightcode.agent.tools.base import ToolError

BOM = "\ufeff"
_LOOSE = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys(
        "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
        " ",
    )
)
_LINE_BREAK = re.compile(r"\r?\n")


@attrs.frozen
class Replacement:
    """One wish of an edit: `old` stands for exactly one place of the file."""

    old: str
    new: str


@attrs.frozen
class Edited:
    """A file's text after an edit, and where it differs from the text before."""

    text: str
    spans: tuple[Span, ...]


@attrs.frozen
class _Match:
    """A found text: offsets in the text that was searched, and the wish's place in the list."""

    start: int
    end: int
    index: int


def apply_edits(text: str, replacements: Sequence[Replacement], *, path: str) -> Edited:
    """`text` with all replacements made; each is matched against `text` as it was.

    Args:
        text: the whole file as decoded, byte order mark and carriage returns included.
        path: for messages.
    Raises:
        ToolError: a text is empty, not found, found more than once or overlaps another, or the
            result equals `text`. The message names the replacement by its index.
    """
    wishes = [Replacement(_lf(wish.old), _lf(wish.new)) for wish in replacements]
    for index, wish in enumerate(wishes):
        if not wish.old:
            raise ToolError(f"edits[{index}].oldText is empty: give the text to replace in {path}")
    bom = BOM if text.startswith(BOM) else ""
    raw = text.removeprefix(BOM)
    plain = _lf(raw)
    first_break = _LINE_BREAK.search(raw)
    line_end = "\r\n" if first_break is not None and first_break[0] == "\r\n" else "\n"
    loose = _loosen(plain)
    exact = all(wish.old in plain for wish in wishes)
    matches = _find_all(plain if exact else loose, loose, wishes, exact=exact, path=path)
    if exact:
        pieces = [(match.start, match.end, wishes[match.index].new) for match in matches]
        to_raw = _CarriageReturns(raw)
        places = [(to_raw(start), to_raw(end), new) for start, end, new in pieces]
    else:
        places = _by_lines(raw, loose, matches, wishes)
    edited = _splice(
        text, len(bom), [(start, end, new.replace("\n", line_end)) for start, end, new in places]
    )
    if edited.text == text:
        raise ToolError(f"The edit changes nothing in {path}: the new text equals the text that is there")
    return edited


def _find_all(
    searched: str, loose: str, wishes: Sequence[Replacement], *, exact: bool, path: str
) -> list[_Match]:
    """One match for each wish, in the order of the text."""
    matches: list[_Match] = []
    for index, wish in enumerate(wishes):
        old = wish.old if exact else _loosen(wish.old)
        start = searched.find(old) if old else -1
        if start < 0:
            raise ToolError(f"edits[{index}].oldText was not found in {path}; it must match the file's text")
        count = _occurrences(searched, old)
        if exact and not wish.old.isspace():
            # Text that is unique only by its quotes or dashes is likely to be meant elsewhere as well.
            count = max(count, _occurrences(loose, _loosen(wish.old, keep_end=True)))
        if count > 1:
            raise ToolError(
                f"edits[{index}].oldText occurs {count} times in {path}; "
                "add lines around it until it names one place"
            )
        matches.append(_Match(start, start + len(old), index))
    matches.sort(key=lambda match: (match.start, match.end))
    for before, after in pairwise(matches):
        if after.start < before.end:
            first, second = sorted((before.index, after.index))
            raise ToolError(
                f"edits[{first}] and edits[{second}] overlap in {path}; join them or make them smaller"
            )
    return matches


def _by_lines(
    raw: str, loose: str, matches: Sequence[_Match], wishes: Sequence[Replacement]
) -> list[tuple[int, int, str]]:
    """Stretches of whole raw lines with what replaces them: the loosened lines, edited.

    Loosening works line by line, so line n of the copy is line n of the file.
    """
    loose_starts, raw_starts = _line_starts(loose), _line_starts(raw)
    places: list[tuple[int, int, str]] = []
    todo = list(matches)
    while todo:
        start = loose.rfind("\n", 0, todo[0].start) + 1
        group: list[_Match] = []
        end = start
        while todo and (not group or todo[0].start < end):
            match = todo.pop(0)
            group.append(match)
            whole_lines = loose[match.end - 1] == "\n"
            end = max(end, match.end if whole_lines else _end_of_line(loose, match.end))
        pieces: list[str] = []
        at = start
        for match in group:
            pieces += (loose[at : match.start], wishes[match.index].new)
            at = match.end
        pieces.append(loose[at:end])
        first = bisect_left(loose_starts, start)
        if loose[end - 1] == "\n":
            raw_end = raw_starts[bisect_left(loose_starts, end)]
        else:
            line = bisect_left(loose_starts, end + 1) - 1
            found = _LINE_BREAK.search(raw, raw_starts[line])
            raw_end = len(raw) if found is None else found.start()
        places.append((raw_starts[first], raw_end, "".join(pieces)))
    return places


def _splice(text: str, offset: int, places: Sequence[tuple[int, int, str]]) -> Edited:
    """`text` with the places replaced; they count from `offset` and are in order."""
    pieces: list[str] = []
    spans: list[Span] = []
    at = size = 0
    for start, end, new in ((start + offset, end + offset, new) for start, end, new in places):
        pieces += (text[at:start], new)
        size += start - at
        spans.append(Span(start, end, size, size + len(new)))
        size += len(new)
        at = end
    pieces.append(text[at:])
    return Edited("".join(pieces), tuple(spans))


class _CarriageReturns:
    """Offsets in a text without the carriage returns of its line ends, as offsets in the text itself."""

    def __init__(self, raw: str) -> None:
        found = (match.start() for match in re.finditer("\r\n", raw))
        self._breaks = [start - index for index, start in enumerate(found)]

    def __call__(self, offset: int) -> int:
        return offset + bisect_left(self._breaks, offset)


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _loosen(text: str, *, keep_end: bool = False) -> str:
    """`text` with what models get wrong made equal, line for line; `keep_end` spares its last spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_LOOSE)
    *lines, last = text.split("\n")
    return "\n".join((*(line.rstrip() for line in lines), last if keep_end else last.rstrip()))


def _occurrences(text: str, part: str) -> int:
    """How often `part` stands in `text`, overlapping ones counted."""
    count, at = 0, text.find(part)
    while at >= 0:
        count, at = count + 1, text.find(part, at + 1)
    return count


def _line_starts(text: str) -> list[int]:
    return [0, *accumulate(len(line) + 1 for line in text.split("\n"))][:-1]


def _end_of_line(text: str, offset: int) -> int:
    """The offset of the next line feed, or of the end."""
    found = text.find("\n", offset)
    return len(text) if found < 0 else found
