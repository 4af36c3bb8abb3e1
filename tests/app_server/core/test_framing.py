"""Source: app server notes, "Framing"; app server, "Limits and client reference"."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.app_server.core.framing import LineSplitter, LineTooLong

Pieces = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b"a", b"bc", b"\xc3\xa4", b"x" * 9]), max_size=40
)


def split(*chunks: bytes, max_line: int = 8) -> list[bytes | LineTooLong]:
    splitter = LineSplitter(max_line)
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events + splitter.finish()


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\r\n  \n\t\r\n", []),
        (b"\r", []),
        ("a\u2028b\u2029c\u0085d\n".encode(), [LineTooLong(12)]),
        ("\u2028\n\x1e".encode(), [b"\xe2\x80\xa8", b"\x1e"]),
        (b"12345678\n", [b"12345678"]),
        (b"12345678\r\n", [b"12345678"]),
        (b"123456789\n", [LineTooLong(9)]),
        (b"123456789\r\nok\n", [LineTooLong(9), b"ok"]),
        (b"1234567890123\r\nok", [LineTooLong(13), b"ok"]),
        (b"123456789", [LineTooLong(9)]),
        (b" " * 9 + b"\n", [LineTooLong(9)]),
    ],
)
def test_lines_end_at_lf_alone_and_the_limit_leaves_line_ends_out(
    stream: bytes, lines: list[bytes | LineTooLong]
) -> None:
    assert split(stream) == lines
    assert split(*(stream[at : at + 1] for at in range(len(stream)))) == lines


@given(pieces=Pieces, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_any_cut_of_the_bytes_gives_the_same_lines(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in itertools.pairwise(borders)]
    assert split(*chunks) == split(stream)


@pytest.mark.proves("LIMIT-015")
def test_the_limit_counts_bytes_and_a_line_of_exactly_64_mib_passes() -> None:
    limit = 64 * 1024 * 1024
    line = "ä".encode() * (limit // 2)
    splitter = LineSplitter()
    events = [event for at in range(0, limit, 65536) for event in splitter.feed(line[at : at + 65536])]
    events += splitter.feed(b"\n" + line + b"x\n")
    assert [event == line for event in events[:1]] == [True]
    assert events[1:] == [LineTooLong(limit + 1)]


def test_a_line_over_the_limit_is_not_kept_while_it_is_read() -> None:
    splitter = LineSplitter(1000)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    assert sum(map(len, splitter._pieces)) <= 1000
    assert splitter.feed(b"\nnext\n") == [LineTooLong(1_000_000), b"next"]


def test_ten_thousand_lines_in_one_chunk_come_out_in_order() -> None:
    lines = [b"%d" % number for number in range(10_000)]
    assert split(b"\n".join(lines)) == lines
