"""Source: app server, "Limits and client reference"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.app_server.core.outbox import Outbox


def test_lines_come_out_whole_in_order_and_joined_up_to_the_size_asked_for() -> None:
    outbox = Outbox()
    for line in (b"aaa\n", b"bb\n", b"cccccccc\n", b"d\n"):
        outbox.post(line)
    assert [outbox.take(8) for _ in range(4)] == [b"aaa\nbb\n", b"cccccccc\n", b"d\n", b""]


@given(lines=st.lists(st.binary(min_size=1, max_size=9), max_size=30), size=st.integers(0, 20))
def test_nothing_is_lost_or_doubled_whatever_the_size_of_the_batches(lines: list[bytes], size: int) -> None:
    outbox = Outbox()
    for line in lines:
        outbox.post(line)
    taken = list(iter(lambda: outbox.take(size), b""))
    assert b"".join(taken) == b"".join(lines)
    assert outbox.pending_bytes == 0


def test_what_was_taken_stays_pending_until_more_is_asked_for() -> None:
    outbox = Outbox()
    outbox.post(b"12345\n")
    outbox.post(b"123\n")
    assert outbox.pending_bytes == 10
    outbox.take(6)
    assert outbox.pending_bytes == 10
    outbox.take(6)
    assert outbox.pending_bytes == 4
    outbox.take(6)
    assert outbox.pending_bytes == 0


def test_more_than_the_limit_drops_everything_and_closes() -> None:
    outbox = Outbox(limit=10)
    outbox.post(b"12345")
    outbox.post(b"67890")
    assert not outbox.overflowed
    outbox.post(b"x")
    assert (outbox.overflowed, outbox.closed, outbox.take(100)) == (True, True, b"")
    outbox.post(b"y")
    assert outbox.take(100) == b""


def test_bytes_in_the_hands_of_the_writer_count_towards_the_limit() -> None:
    outbox = Outbox(limit=10)
    outbox.post(b"123456")
    outbox.take(100)
    outbox.post(b"12345")
    assert outbox.overflowed


def test_the_limit_is_64_mib() -> None:
    outbox = Outbox()
    for _ in range(64):
        outbox.post(b"x" * 1024 * 1024)
    assert not outbox.overflowed
    outbox.post(b"x")
    assert outbox.overflowed


def test_closing_is_no_overflow_and_drops_what_comes_later() -> None:
    outbox = Outbox()
    outbox.post(b"a\n")
    outbox.close()
    outbox.post(b"b\n")
    assert (outbox.take(100), outbox.overflowed, outbox.closed) == (b"", False, True)


def test_the_writer_is_woken_by_the_first_line_only_until_it_has_taken_all() -> None:
    outbox = Outbox()
    woken: list[int] = []
    outbox.wake = lambda: woken.append(outbox.pending_bytes)
    for line in (b"a", b"b", b"c"):
        outbox.post(line)
    assert (woken, outbox.take(2)) == ([1], b"ab")
    outbox.post(b"d")
    assert (woken, outbox.take(2), outbox.take(2)) == ([1], b"cd", b"")
    outbox.post(b"e")
    assert woken == [1, 1]


@pytest.mark.parametrize(("line", "wakes"), [(b"ok", 1), (b"far too long", 1)])
def test_the_writer_is_woken_by_output_and_by_the_end(line: bytes, wakes: int) -> None:
    outbox = Outbox(limit=5)
    woken: list[bool] = []
    outbox.wake = lambda: woken.append(outbox.overflowed)
    outbox.post(line)
    assert woken == [line != b"ok"] * wakes
    outbox.close()
    assert len(woken) == wakes + 1
