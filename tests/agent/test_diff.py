"""Source: agent loop, "edit", "write"; patches are tried with the programs that apply them."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.agent.diff import Span, compare, split_lines

LINES = st.lists(st.sampled_from(["a", "b", "", "c\r", "d e"]), max_size=14)


def texts(lines: list[str], ended: bool) -> str:
    return "\n".join(lines) + ("\n" if ended and lines else "")


def apply_with_git(folder: Path, patch: str, *options: str) -> None:
    git = ["git", "apply", "-p0", "--whitespace=nowarn", *options, "-"]
    done = subprocess.run(git, cwd=folder, input=patch.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def apply_with_patch(folder: Path, patch: str, *options: str) -> None:
    program = ["patch", "-p0", "--binary", "--silent", *options]
    done = subprocess.run(program, cwd=folder, input=patch.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_display_numbers_lines_and_skips_those_far_from_a_change() -> None:
    old = "".join(f"line {n}\n" for n in range(1, 21))
    new = old.replace("line 5\n", "LINE 5\nmore\n").replace("line 19\n", "")
    assert compare(old, new).display() == (
        "    ...\n"
        "  2 line 2\n"
        "  3 line 3\n"
        "  4 line 4\n"
        "- 5 line 5\n"
        "+ 5 LINE 5\n"
        "+ 6 more\n"
        "  7 line 6\n"
        "  8 line 7\n"
        "  9 line 8\n"
        "    ...\n"
        " 17 line 16\n"
        " 18 line 17\n"
        " 19 line 18\n"
        "-19 line 19\n"
        " 20 line 20"
    )


def test_patch_has_plain_headers_four_context_lines_and_no_git_header() -> None:
    old = "".join(f"{n}\n" for n in range(1, 12))
    assert compare(old, old.replace("6\n", "six\n")).patch("src/a.py") == (
        "--- src/a.py\n+++ src/a.py\n@@ -2,9 +2,9 @@\n 2\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n 10\n"
    )


def test_one_line_file_has_short_ranges() -> None:
    diff = compare("LIMIT = 60\n", "LIMIT = 90\n")
    assert diff.patch("src/rate.py") == (
        "--- src/rate.py\n+++ src/rate.py\n@@ -1 +1 @@\n-LIMIT = 60\n+LIMIT = 90\n"
    )


def test_missing_final_line_feed_is_marked_on_the_side_that_lacks_it() -> None:
    assert compare("a\nb", "A\nb").patch("x").endswith("-a\n+A\n b\n\\ No newline at end of file\n")
    assert compare("a\n", "a").patch("x").endswith("-a\n+a\n\\ No newline at end of file\n")
    assert compare("a", "a\n").patch("x").endswith("-a\n\\ No newline at end of file\n+a\n")


def test_new_file_is_compared_with_dev_null() -> None:
    assert compare("", "a\n").patch("n", added=True) == "--- /dev/null\n+++ n\n@@ -0,0 +1 @@\n+a\n"


def test_equal_texts_have_no_diff() -> None:
    diff = compare("a\n", "a\n")
    assert (diff.display(), diff.patch("x"), diff.first_changed_line) == ("", "", 1)


def test_first_changed_line_counts_in_the_new_text() -> None:
    assert compare("a\nb\nc\n", "a\nc\n").first_changed_line == 2
    assert compare("a\nb\n", "a\nb\nc\n").first_changed_line == 3


def test_only_line_feeds_end_lines() -> None:
    assert split_lines("a\u2028b\x85c\rd\x1e\ne") == ["a\u2028b\x85c\rd\x1e\n", "e"]


def test_a_huge_difference_is_told_as_one_replaced_block() -> None:
    old = "".join(f"{n % 101}\n" for n in range(15_000))
    new = "".join(f"{n % 103}\n" for n in range(15_000))
    assert len(compare(old, "x\n" + new + "y\n").blocks) == 1


def test_small_edits_far_apart_in_a_huge_file_stay_small() -> None:
    lines = ["same\n"] * 100_000
    old = "".join(lines)
    new = "first\n" + old[5:-5] + "last\n"
    spans = (Span(0, 5, 0, 6), Span(len(old) - 5, len(old), len(new) - 5, len(new)))
    assert len(compare(old, new, spans).patch("x").splitlines()) == 2 + 2 * 7


@pytest.mark.parametrize(
    "name", ["with space.txt", "naïve 日本.txt", 'a"b', "a\tb", "a\nb", "back\\slash", "sub/x", ":(top)x"]
)
def test_git_finds_the_file_whatever_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("a\nb")
    apply_with_git(tmp_path, compare("a\nb", "a\nc").patch(name))
    assert file.read_text() == "a\nc"


@settings(max_examples=25)
@given(old=LINES, new=LINES, old_ended=st.booleans(), new_ended=st.booleans())
def test_git_apply_makes_the_new_file_from_the_old_one_and_back(
    tmp_path_factory: pytest.TempPathFactory,
    old: list[str],
    new: list[str],
    old_ended: bool,
    new_ended: bool,
) -> None:
    before, after = texts(old, old_ended), texts(new, new_ended)
    patch = compare(before, after).patch("f")
    if before == after:
        assert patch == ""
        return
    folder = tmp_path_factory.mktemp("apply")
    (folder / "f").write_bytes(before.encode())
    apply_with_git(folder, patch)
    content = (folder / "f").read_bytes() if (folder / "f").exists() else b""
    assert content == after.encode()
    if before and after:
        apply_with_git(folder, patch, "--reverse")
        assert (folder / "f").read_bytes() == before.encode()


@settings(max_examples=15)
@given(old=LINES.filter(bool), new=LINES.filter(bool), ended=st.booleans())
def test_the_patch_program_takes_it_too(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str], ended: bool
) -> None:
    before, after = "x\n" + texts(old, ended), "x\n" + texts(new, not ended)
    folder = tmp_path_factory.mktemp("patch")
    (folder / "f").write_bytes(before.encode())
    apply_with_patch(folder, compare(before, after).patch("f"))
    assert (folder / "f").read_bytes() == after.encode()


@given(
    pieces=st.lists(
        st.tuples(st.text("ab\n", max_size=6), st.text("ab\n", max_size=4), st.text("ab\n", max_size=4))
    ),
    rest=st.text("ab\n", max_size=6),
)
def test_known_spans_tell_the_same_change_as_the_texts(pieces: list[tuple[str, str, str]], rest: str) -> None:
    old = new = ""
    spans: list[Span] = []
    for same, before, after in pieces:
        old, new = old + same, new + same
        spans.append(Span(len(old), len(old) + len(before), len(new), len(new) + len(after)))
        old, new = old + before, new + after
    old, new = old + rest, new + rest
    diff = compare(old, new, spans)
    rebuilt: list[str] = []
    at = 0
    for block in diff.blocks:
        rebuilt += diff.old[at : block.old_start]
        assert len(rebuilt) == block.new_start
        rebuilt += diff.new[block.new_start : block.new_end]
        at = block.old_end
    rebuilt += diff.old[at:]
    assert "".join(rebuilt) == new
    assert bool(diff.blocks) == (old != new)
