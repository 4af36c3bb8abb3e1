"""Source: agent loop, "bash", "Truncation"."""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.tools.shell_output import ShellOutput
from knightcode.agent.truncation import truncate_tail


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    """An empty folder that takes the logs."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path)
    yield tmp_path
    tempfile.tempdir = before


async def collected(*pieces: bytes) -> ShellOutput:
    output = ShellOutput()
    with trio.fail_after(10):
        for piece in pieces:
            await output.feed(piece)
        await output.finish()
    return output


async def test_short_output_is_whole_and_leaves_no_log(logs: Path) -> None:
    output = await collected(b"a\n", b"b")
    assert output.tail() == truncate_tail("a\nb")
    assert (output.log_path, output.note(output.tail()), output.details(output.tail())) == (None, "", {})
    assert list(logs.iterdir()) == []


async def test_long_output_is_logged_in_full_for_the_user_alone(logs: Path) -> None:
    raw = b"".join(b"\x1b[31m%d\x1b[0m\n" % n for n in range(1, 3001))
    output = await collected(*(raw[at : at + 1000] for at in range(0, len(raw), 1000)))
    cut = output.tail()
    (log,) = logs.iterdir()
    assert re.fullmatch("knightcode-bash-[0-9a-f]{16}[.]log", log.name)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert log.read_bytes() == raw
    assert cut == truncate_tail("".join(f"{n}\n" for n in range(1, 3001)))
    assert output.note(cut) == f"[Lines 1001-3000 of 3000 shown. All of it: {log}]"
    assert output.details(cut) == {"truncation": cut.details(), "fullOutputPath": str(log)}


async def test_output_cut_by_its_size_says_so(logs: Path) -> None:
    output = await collected((b"x" * 1023 + b"\n") * 100)
    assert output.note(output.tail()) == (
        f"[Lines 51-100 of 100 shown, cut at 50.0KB. All of it: {output.log_path}]"
    )


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_last_line_that_is_too_large_is_told_with_its_size(logs: Path, end: bytes) -> None:
    output = await collected(b"first\n", b"x" * 60_000, b"x" * 60_000 + end)
    assert output.note(output.tail()) == (
        f"[The last 50.0KB of line 2 shown, which is 117.2KB. All of it: {output.log_path}]"
    )
    assert len(output.tail().content) == 51_200


async def test_output_that_is_long_only_by_its_escapes_is_whole_and_leaves_no_log(logs: Path) -> None:
    output = await collected(b"\x1b[0m" * 20_000, b"a")
    assert (output.tail(), output.log_path) == (truncate_tail("a"), None)
    assert list(logs.iterdir()) == []


async def test_a_log_that_cannot_be_written_is_not_promised(tmp_path: Path) -> None:
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path / "gone")
    try:
        output = await collected(b"x\n" * 100_000)
    finally:
        tempfile.tempdir = before
    cut = output.tail()
    assert output.note(cut) == "[Lines 98001-100000 of 100000 shown. All of it could not be saved]"
    assert output.details(cut) == {"truncation": cut.details()}


async def test_a_character_cut_by_two_pieces_is_whole_and_a_broken_one_is_replaced() -> None:
    sign = "日".encode()
    assert (await collected(sign[:1], sign[1:])).tail().content == "日"
    assert (await collected(b"a\xff", sign[:2])).tail().content == "a\ufffd\ufffd"


async def test_a_cancelled_piece_is_in_the_text_and_in_the_log(logs: Path) -> None:
    output = ShellOutput()
    data = b"x\n" * 300_000
    with trio.move_on_after(0) as scope:
        await output.feed(data)
    assert scope.cancelled_caught
    with trio.fail_after(5):
        await output.finish()
    assert output.log_path is not None
    assert Path(output.log_path).read_bytes() == data
    assert output.tail() == truncate_tail(data.decode())


async def test_finished_output_holds_no_descriptor(logs: Path) -> None:
    before = os.listdir("/proc/self/fd")
    await collected(b"x\n" * 300_000)
    assert os.listdir("/proc/self/fd") == before


@given(lines=st.lists(st.text("aé", max_size=3), max_size=12), ended=st.booleans(), size=st.integers(1, 7))
def test_any_cut_of_the_output_tells_the_same(lines: list[str], ended: bool, size: int) -> None:
    text = "\n".join(lines) + ("\n" if ended else "")
    data = text.encode()
    output = trio.run(collected, *(data[at : at + size] for at in range(0, len(data), size)))
    assert output.tail() == truncate_tail(text)
