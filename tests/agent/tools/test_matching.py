"""Source: agent loop, "edit"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.diff import compare
from knightcode.agent.tools.base import ToolError
from knightcode.agent.tools.matching import Replacement, apply_edits


def edited(text: str, *pairs: tuple[str, str]) -> str:
    return apply_edits(text, [Replacement(old, new) for old, new in pairs], path="f").text


def refusal(text: str, *pairs: tuple[str, str]) -> str:
    with pytest.raises(ToolError) as caught:
        edited(text, *pairs)
    return str(caught.value)


def test_every_edit_is_matched_against_the_original() -> None:
    assert edited("a b c", ("a", "b"), ("b", "c"), ("c", "a")) == "b c a"


def test_edits_are_applied_whatever_their_order() -> None:
    assert edited("one two three", ("three", "3"), ("one", "1")) == "1 two 3"


def test_edits_that_touch_each_other_do_not_overlap() -> None:
    assert edited("abcd", ("ab", "1"), ("cd", "2")) == "12"


def test_a_file_without_final_line_feed_gets_none() -> None:
    assert edited("a\nb", ("a", "A")) == "A\nb"


def test_byte_order_mark_and_crlf_are_restored_and_the_texts_may_be_written_with_lf() -> None:
    assert edited("\ufeffa\r\nb\r\n", ("a\nb", "x\ny\nz")) == "\ufeffx\r\ny\r\nz\r\n"
    assert edited("a\r\nb\r\n", ("a\r\n", "x\r\n")) == "x\r\nb\r\n"


def test_a_file_with_lf_gets_lf_from_texts_written_with_crlf() -> None:
    assert edited("a\nb\n", ("a\r\nb", "x\r\ny")) == "x\ny\n"


def test_lines_that_are_not_touched_keep_their_own_ends() -> None:
    assert edited("a\r\nb\nc\r\n", ("b", "x\ny")) == "a\r\nx\r\ny\nc\r\n"
    assert edited("a\nb\r\nc\n", ("a\nb\nc", "x")) == "x\n"


@pytest.mark.parametrize(
    ("file", "old", "new", "after"),
    [
        ("say “hi”\n", 'say "hi"', "bye", "bye\n"),
        ("it\u2019s\n", "it's", "is", "is\n"),
        ("a – b\n", "a - b", "c", "c\n"),
        ("a\u00a0b\n", "a b", "c", "c\n"),
        ("ﬁne\n", "fine", "good", "good\n"),
        ("a  \nb\t\n", "a\nb", "c", "c\n"),
        ("a\nb\n", "a  \nb", "c", "c\n"),
        ("a\u2212b\r\n", "a-b", "c\nd", "c\r\nd\r\n"),
    ],
)
def test_what_models_get_wrong_is_found_on_a_loosened_copy(file: str, old: str, new: str, after: str) -> None:
    assert edited(file, (old, new)) == after


def test_loosened_matching_changes_only_the_lines_that_it_touches() -> None:
    text = "“keep”  \r\n“x” – “y”  \r\n“keep”\t\n"
    assert edited(text, ('"x"', "z")) == '“keep”  \r\nz - "y"\r\n“keep”\t\n'


def test_all_edits_use_the_loosened_copy_when_one_needs_it() -> None:
    assert edited("“a”\nb  \n“c”\n", ('"a"', "1"), ("b", "2")) == "1\n2\n“c”\n"


def test_two_loosened_edits_of_one_line_are_both_made() -> None:
    assert edited("“a” – “b”\nrest\n", ('"a"', "1"), ('"b"', "2")) == "1 - 2\nrest\n"


def test_a_loosened_match_over_a_line_end_joins_the_lines() -> None:
    assert edited("“a”\n\n“b”\n“c”\n", ('"a"\n\n', "x ")) == "x “b”\n“c”\n"


def test_an_empty_text_to_replace_is_refused() -> None:
    assert refusal("a", ("a", "b"), ("", "c")) == "edits[1].oldText is empty: give the text to replace in f"


@pytest.mark.parametrize("old", ["z", "a\n\nb", "A", " \u00a0"])
def test_a_text_that_is_not_there_is_refused(old: str) -> None:
    assert refusal("a\nb\n", (old, "x")) == (
        "edits[0].oldText was not found in f; it must match the file's text"
    )


@pytest.mark.parametrize(
    ("text", "old", "count"),
    [
        ("a a a", "a", 3),
        ("aaa", "aa", 2),
        ("'x'\n‘x’\n", "'x'", 2),
        ("a \nb\na\nb\n", "a\nb", 2),
        ("\t\tx\n\t\ty\n", "\t\t", 2),
        ("“a” “a”", '"a"', 2),
    ],
)
def test_a_text_that_occurs_more_than_once_is_refused_with_its_number(
    text: str, old: str, count: int
) -> None:
    assert f"edits[0].oldText occurs {count} times in f" in refusal(text, (old, "y"))


def test_a_text_that_ends_in_a_space_is_not_counted_without_it() -> None:
    assert edited("return x\nreturn\n", ("return ", "yield ")) == "yield x\nreturn\n"


def test_overlapping_edits_are_refused_with_both_indexes() -> None:
    assert "edits[0] and edits[2] overlap" in refusal("abcdef", ("cde", "1"), ("f", "2"), ("bc", "3"))
    assert "edits[0] and edits[1] overlap" in refusal("abc", ("abc", "1"), ("b", "2"))
    assert "edits[0] and edits[1] overlap" in refusal("abc", ("b", "1"), ("b", "2"))


def test_an_edit_that_changes_nothing_is_refused() -> None:
    assert "changes nothing in f" in refusal("a\r\nb", ("a\nb", "a\r\nb"))


def joined(pieces: list[str], count: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), max_size=count).map("".join)


@given(
    text=joined(["a", "b", "“", "–", " ", "\n", "\r\n", "ﬁ"], 30),
    old=joined(["a", "b", '"', "-", " ", "\n", "fi"], 4),
    new=st.text("xy\n ", max_size=4),
)
def test_an_edit_is_refused_or_changes_only_the_spans_that_it_tells(text: str, old: str, new: str) -> None:
    try:
        result = apply_edits(text, [Replacement(old, new)], path="f")
    except ToolError:
        return
    (span,) = result.spans
    assert result.text[: span.new_start] == text[: span.old_start]
    assert result.text[span.new_end :] == text[span.old_end :]
    assert compare(text, result.text, result.spans).blocks


@given(
    text=joined(["a", "b", "\n", "\r\n", "é"], 30),
    cut=st.tuples(st.integers(0, 30), st.integers(1, 6)),
    new=st.text("xy", max_size=4),
)
def test_an_exact_and_unique_text_is_replaced_as_by_the_language(
    text: str, cut: tuple[int, int], new: str
) -> None:
    old = text[cut[0] : cut[0] + cut[1]]
    if not old or text.count(old) != 1 or old.startswith("\n") or old.endswith("\r"):
        return
    overlapping = sum(text.startswith(old, at) for at in range(len(text)))
    if overlapping == 1:
        assert edited(text, (old, new)) == text.replace(old, new)
    else:
        assert f"occurs {overlapping} times" in refusal(text, (old, new))
