"""Server-sent events out of bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.models.sse import EventTooLargeError, SseEvent, SseSplitter


def split(*pieces: bytes) -> list[SseEvent]:
    splitter = SseSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.close()


@given(
    st.lists(
        st.sampled_from(
            [
                b"data: {}",
                b"data:x",
                b"data",
                b"event: e",
                b": note",
                b"id: 1",
                b"",
                b"",
                b"data: \xc3\xa9",
                b"\xef\xbb\xbf",
            ]
        ),
        max_size=12,
    ),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 120), max_size=6),
)
def test_any_cut_of_the_bytes_gives_the_same_events(
    lines: list[bytes], ending: bytes, cuts: list[int]
) -> None:
    whole = ending.join(lines)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    assert split(*pieces) == split(whole) == split(*(whole[i : i + 1] for i in range(len(whole))))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_separates_the_same_events(ending: str) -> None:
    text = "event: a\ndata: 1\ndata: 2\n\n: comment\n\ndata:3\nretry: 5\n\ndata:\n\n".replace("\n", ending)
    assert split(text.encode()) == [SseEvent(b"1\n2", b"a"), SseEvent(b"3")]


def test_the_end_of_the_stream_ends_the_last_event() -> None:
    assert split(b"data: 1\n\ndata: 2") == [SseEvent(b"1"), SseEvent(b"2")]


def test_events_come_with_the_bytes_that_complete_them() -> None:
    splitter = SseSplitter()
    assert [splitter.feed(piece) for piece in (b"data: 1\n", b"\ndata: 2\n\nda", b"ta: 3\n\n")] == [
        [],
        [SseEvent(b"1"), SseEvent(b"2")],
        [SseEvent(b"3")],
    ]


def test_a_byte_order_mark_before_the_first_event_is_left_out() -> None:
    assert split(b"\xef", b"\xbb\xbfdata: 1\n\n") == [SseEvent(b"1")]


def test_an_event_that_never_ends_is_refused_at_the_limit() -> None:
    splitter = SseSplitter(limit_bytes=100)
    splitter.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLargeError, match="larger than 100 bytes"):
        splitter.feed(b"x" * 10)


def test_a_whole_event_over_the_limit_is_refused_too() -> None:
    with pytest.raises(EventTooLargeError):
        SseSplitter(limit_bytes=100).feed(b"data: 1\n\ndata: " + b"x" * 200 + b"\n\n")


def test_many_events_may_arrive_together_beyond_the_limit_of_one() -> None:
    assert len(SseSplitter(limit_bytes=100).feed(b"data: x\n\n" * 1000)) == 1000
