"""Source: agent loop, "Truncation"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.truncation import (
    Truncation,
    cut_to_end,
    format_size,
    truncate_head,
    truncate_tail,
)

TEXTS = st.text(st.sampled_from(["a", "é", "日", "😀", "\n", "\r"]), max_size=60)
LIMITS = st.integers(0, 20)


def test_text_within_both_limits_comes_back_whole() -> None:
    assert truncate_head("a\nb\n") == Truncation(
        content="a\nb\n",
        truncated=False,
        truncated_by=None,
        total_lines=3,
        total_bytes=4,
        output_lines=3,
        output_bytes=4,
    )
    assert truncate_tail("a\nb\n") == Truncation(
        content="a\nb\n",
        truncated=False,
        truncated_by=None,
        total_lines=2,
        total_bytes=4,
        output_lines=2,
        output_bytes=4,
    )


def test_head_keeps_the_first_2000_lines() -> None:
    cut = truncate_head("\n".join(map(str, range(1, 2002))))
    assert cut.content == "\n".join(map(str, range(1, 2001)))
    assert (cut.truncated_by, cut.total_lines, cut.output_lines) == ("lines", 2001, 2000)


def test_tail_keeps_the_last_2000_lines_and_the_final_line_feed() -> None:
    cut = truncate_tail("".join(f"{n}\n" for n in range(1, 2002)))
    assert cut.content == "".join(f"{n}\n" for n in range(2, 2002))
    assert (cut.truncated_by, cut.total_lines, cut.output_lines) == ("lines", 2001, 2000)


def test_50_kib_decide_before_2000_lines_do() -> None:
    text = "\n".join(["x" * 1023] * 60)
    head, tail = truncate_head(text), truncate_tail(text)
    assert (head.truncated_by, head.output_lines, head.output_bytes) == ("bytes", 50, 51_199)
    assert (tail.truncated_by, tail.output_lines, tail.output_bytes) == ("bytes", 50, 51_199)


def test_text_of_exactly_the_byte_limit_is_whole_and_one_byte_more_is_cut() -> None:
    assert not truncate_head("x" * 51_200).truncated
    assert not truncate_tail("x" * 51_200).truncated
    assert truncate_head("x" * 51_201).truncated
    assert truncate_tail("x" * 51_201).truncated


def test_head_of_a_text_whose_first_line_is_too_large_is_empty() -> None:
    assert truncate_head("aaaa\nb", max_bytes=3).details() == {
        "content": "",
        "truncated": True,
        "truncatedBy": "bytes",
        "totalLines": 2,
        "totalBytes": 6,
        "outputLines": 0,
        "outputBytes": 0,
        "lastLinePartial": False,
        "firstLineExceedsLimit": True,
        "maxLines": 2000,
        "maxBytes": 3,
    }


def test_tail_of_a_text_whose_last_line_is_too_large_is_that_lines_end_at_a_whole_character() -> None:
    assert truncate_tail("a\nbb日日\n", max_bytes=6).details() == {
        "content": "日\n",
        "truncated": True,
        "truncatedBy": "bytes",
        "totalLines": 2,
        "totalBytes": 11,
        "outputLines": 1,
        "outputBytes": 4,
        "lastLinePartial": True,
        "firstLineExceedsLimit": False,
        "maxLines": 2000,
        "maxBytes": 6,
    }


def test_empty_output_has_no_lines_and_an_empty_file_has_one() -> None:
    assert truncate_tail("").output_lines == 0
    assert truncate_head("").output_lines == 1


@given(text=TEXTS, max_lines=LIMITS, max_bytes=LIMITS)
def test_head_is_the_longest_beginning_of_whole_lines_within_the_limits(
    text: str, max_lines: int, max_bytes: int
) -> None:
    lines = text.split("\n")
    fitting = [
        n for n in range(len(lines) + 1) if n <= max_lines and len("\n".join(lines[:n]).encode()) <= max_bytes
    ]
    cut = truncate_head(text, max_lines=max_lines, max_bytes=max_bytes)
    assert cut.content == "\n".join(lines[: fitting[-1]])
    assert (cut.output_lines, cut.output_bytes) == (fitting[-1], len(cut.content.encode()))
    assert cut.truncated == (fitting[-1] < len(lines)) == (cut.truncated_by is not None)


@given(text=TEXTS, max_lines=LIMITS, max_bytes=LIMITS)
def test_tail_is_an_end_of_the_text_within_the_limits(text: str, max_lines: int, max_bytes: int) -> None:
    cut = truncate_tail(text, max_lines=max_lines, max_bytes=max_bytes)
    assert text.endswith(cut.content)
    assert cut.output_bytes == len(cut.content.encode()) <= max_bytes
    assert cut.output_lines <= max(max_lines, 1)
    assert cut.truncated == (cut.content != text) or not cut.content
    if cut.content and not cut.last_line_partial:
        before = text[: len(text) - len(cut.content)]
        assert before == "" or before.endswith("\n")


@given(text=TEXTS, max_bytes=LIMITS)
def test_totals_that_are_given_stand_for_the_text_that_was_let_go(text: str, max_bytes: int) -> None:
    whole = truncate_tail(text, max_bytes=max_bytes)
    kept = text[-(max_bytes + 1) :]
    again = truncate_tail(
        kept, max_bytes=max_bytes, total_lines=whole.total_lines, total_bytes=whole.total_bytes
    )
    assert again == whole


@given(text=TEXTS, max_bytes=LIMITS)
def test_a_cut_end_is_the_longest_one_that_fits(text: str, max_bytes: int) -> None:
    fitting = [text[n:] for n in range(len(text) + 1) if len(text[n:].encode()) <= max_bytes]
    assert cut_to_end(text, max_bytes) == fitting[0]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KB"),
        (51_200, "50.0KB"),
        (1_048_576, "1.0MB"),
        (1_572_864, "1.5MB"),
    ],
)
def test_sizes_are_told_in_bytes_kilobytes_and_megabytes(size: int, words: str) -> None:
    assert format_size(size) == words
