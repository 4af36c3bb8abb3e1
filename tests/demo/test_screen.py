"""Colours only where they are wanted, and a reader that may go away."""

import io
import os

import pytest

from knightcode.demo.screen import Screen, Style, wants_colours


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_need_a_terminal_and_nobody_against_them(
    stream: io.StringIO, environ: dict[str, str], wanted: bool
) -> None:
    assert wants_colours(stream, environ) is wanted


def test_without_colours_every_look_leaves_the_text_as_it_is() -> None:
    style = Style()
    looks = (style.bold, style.dim, style.good, style.bad, style.asks, style.place)
    assert [look("a\nb") for look in looks] == ["a\nb"] * 6


def test_a_colour_ends_with_every_line() -> None:
    assert Style(colours=True).bad("a\n\nb") == "\x1b[31ma\x1b[0m\n\n\x1b[31mb\x1b[0m"


def test_what_the_encoding_lacks_becomes_a_question_mark() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Screen(stream).line("é…\udc80")
    assert raw.getvalue() == b"???\n"


def test_writing_to_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as stream:
        screen = Screen(stream)
        screen.line("nobody reads this")
        assert (screen.lost, screen.failure) == (True, None)
        screen.line("nor this")


def test_output_that_cannot_be_written_is_an_error_with_its_reason() -> None:
    with open("/dev/full", "w", encoding="utf-8") as stream:
        screen = Screen(stream)
        screen.line("there is no room for this")
        assert (screen.lost, screen.failure) == (True, "No space left on device")
