"""Source: agent loop, the point it leaves open on escapes in the output of commands."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.tools.ansi import EscapeStripper

PIECES = [
    "a",
    "\n",
    "日",
    "\x1b[0m",
    "\x1b[38;5;196m",
    "\x1b[2K",
    "\x1b]0;title\x07",
    "\x1b]8;;https://example.org\x1b\\",
    "\x1b(B",
    "\x1b7",
    "\x1bPq#0\x1b\\",
    "\x1bM",
]


def stripped(*pieces: str) -> str:
    stripper = EscapeStripper()
    return "".join(stripper.feed(piece) for piece in pieces) + stripper.finish()


@pytest.mark.parametrize("sequence", PIECES[3:])
def test_a_sequence_is_taken_out(sequence: str) -> None:
    assert stripped(f"a{sequence}b") == "ab"


def test_text_without_escapes_and_lone_line_controls_stay() -> None:
    assert stripped("a\r\n\tb\x07c") == "a\r\n\tb\x07c"


def test_an_unfinished_sequence_at_the_end_loses_its_escape() -> None:
    assert stripped("a\x1b[3") == "a[3"
    assert stripped("a\x1b") == "a"


def test_text_behind_an_endless_beginning_is_not_held_back_for_ever() -> None:
    stripper = EscapeStripper()
    out = "".join(stripper.feed(piece) for piece in ("\x1b]0;", "x" * 5000, "y"))
    assert out.endswith("xy")


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_any_cut_of_the_output_gives_the_same_text(pieces: list[str], cuts: list[int]) -> None:
    whole = "".join(pieces)
    borders = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    cut = (whole[start:end] for start, end in pairwise(borders))
    assert stripped(*cut) == "".join(piece for piece in pieces if "\x1b" not in piece)
