"""Source: agent loop, "read", "Truncation"."""

import base64
import os
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.image_types import MODEL_IMAGES, image_type
from knightcode.agent.tools.base import ToolResult
from knightcode.agent.tools.read import ReadTool
from knightcode.agent.tools.read_window import WindowReader
from knightcode.agent.truncation import truncate_head
from knightcode.messages import ImageBlock, TextBlock
from tests.agent.tools.calls import call_context, failure, text

READ = ReadTool()
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
BMP = b"BM" + b"\0" * 12 + (40).to_bytes(4, "little") + b"\0" * 20


async def read(
    folder: Path, path: str, *, offset: object = None, limit: object = None, takes_images: bool = True
) -> ToolResult:
    arguments = {"path": path, "offset": offset, "limit": limit}
    with trio.fail_after(10):
        return await READ.execute(
            {name: value for name, value in arguments.items() if value is not None},
            call_context(folder, takes_images=takes_images),
        )


async def test_a_whole_file_comes_back_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nnaïve 日本\n")
    assert await read(tmp_path, "f") == ToolResult.of_text("a\nnaïve 日本\n", details={"lineCount": 3})


async def test_an_empty_file_has_one_empty_line(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert await read(tmp_path, "f") == ToolResult.of_text("", details={"lineCount": 1})


async def test_a_long_file_is_cut_and_the_note_tells_where_to_go_on(tmp_path: Path) -> None:
    content = "\n".join(map(str, range(1, 2502)))
    (tmp_path / "f").write_text(content)
    shown = "\n".join(map(str, range(1, 2001)))
    assert await read(tmp_path, "f") == ToolResult.of_text(
        shown + "\n\n[Lines 1-2000 of 2501 shown. Continue with offset=2001]",
        details={"lineCount": 2000, "truncation": truncate_head(content).details()},
    )
    rest = await read(tmp_path, "f", offset=2001)
    assert rest == ToolResult.of_text("\n".join(map(str, range(2001, 2502))), details={"lineCount": 501})


async def test_a_wide_file_is_cut_at_50_kib_and_the_note_says_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n".join(["x" * 1023] * 120))
    result = await read(tmp_path, "f", offset=11)
    assert text(result).endswith("x\n\n[Lines 11-60 of 120 shown, cut at 50.0KB. Continue with offset=61]")
    assert result.details["lineCount"] == 50
    assert result.details["truncation"]["totalLines"] == 110
    assert result.details["truncation"]["totalBytes"] == 110 * 1024 - 1


async def test_a_limit_stops_early_and_the_note_counts_the_rest(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\nd")
    assert await read(tmp_path, "f", offset=2, limit=1) == ToolResult.of_text(
        "b\n\n[2 more lines. Continue with offset=3]", details={"lineCount": 1}
    )
    assert text(await read(tmp_path, "f", limit=3)) == "a\nb\nc\n\n[1 more line. Continue with offset=4]"
    assert await read(tmp_path, "f", offset=3, limit=2) == ToolResult.of_text(
        "c\nd", details={"lineCount": 2}
    )


async def test_a_first_line_that_is_too_large_is_told_with_a_command_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("short\n" + "x" * 2_000_000 + "\nend")
    result = await read(tmp_path, "a b", offset=2)
    assert text(result) == (
        "[Line 2 alone is 1.9MB, above the limit of 50.0KB. "
        "Read a part of it with: sed -n 2p 'a b' | head -c 51200]"
    )
    assert result.details["lineCount"] == 0
    assert result.details["truncation"] == {
        "content": "",
        "truncated": True,
        "truncatedBy": "bytes",
        "totalLines": 2,
        "totalBytes": 2_000_004,
        "outputLines": 0,
        "outputBytes": 0,
        "lastLinePartial": False,
        "firstLineExceedsLimit": True,
        "maxLines": 2000,
        "maxBytes": 51200,
    }


@pytest.mark.parametrize("offset", [0, -5, 1, 1.9, None])
async def test_an_offset_below_one_is_the_first_line(tmp_path: Path, offset: object) -> None:
    (tmp_path / "f").write_text("a\nb")
    assert text(await read(tmp_path, "f", offset=offset)) == "a\nb"


async def test_an_offset_beyond_the_end_is_refused_with_the_number_of_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    assert text(await read(tmp_path, "f", offset=3)) == ""
    assert await failure(READ, tmp_path, path="f", offset=4) == (
        "offset 4 is beyond the end of f, which has 3 lines"
    )


async def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with trio.fail_after(5):
        assert await failure(READ, tmp_path, path="none") == "none does not exist"
        assert "is a folder" in await failure(READ, tmp_path, path="folder")
        assert "not a regular file" in await failure(READ, tmp_path, path="pipe")
        assert "not a regular file" in await failure(READ, tmp_path, path="/dev/zero")
        assert "Input/output error" in await failure(READ, tmp_path, path="/proc/self/mem")
        assert "path must be a string" in await failure(READ, tmp_path)
        assert "limit must be at least 1" in await failure(READ, tmp_path, path="f", limit=0)
        assert "offset must be a finite number" in await failure(READ, tmp_path, path="f", offset="x")


async def test_a_file_is_found_under_the_spelling_of_macos(tmp_path: Path) -> None:
    (tmp_path / "at 5\u202fPM").write_text("found")
    assert text(await read(tmp_path, "@at 5 PM")) == "found"


async def test_a_binary_file_says_so_in_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\0\xffb")
    first, rest = text(await read(tmp_path, "f")).split("\n", 1)
    assert "Binary file" in first
    assert rest == "a\0\ufffdb"


async def test_a_character_on_the_border_of_two_reads_is_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (256 * 1024 - 1) + "日\nlast".encode())
    assert text(await read(tmp_path, "f", offset=2)) == "last"
    (tmp_path / "g").write_bytes(b"x\n" * (128 * 1024 - 1) + b"x" + "日".encode())
    assert text(await read(tmp_path, "g", offset=128 * 1024)) == "x日"


async def test_of_a_huge_file_only_a_part_is_held(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        for _ in range(20):
            file.write(b"0123456789abcde\n" * 65_536)
    tracemalloc.start()
    try:
        result = await read(tmp_path, "f", offset=1_000_000, limit=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.details == {"lineCount": 3}
    assert "[310719 more lines" in text(result)
    assert peak < 4_000_000


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"GIF87a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (BMP, "image/bmp"),
        (b"BMW is a car maker of Munich", None),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"", None),
    ],
)
def test_images_are_told_by_their_first_bytes(head: bytes, kind: str | None) -> None:
    assert image_type(head) == kind
    assert (kind in MODEL_IMAGES) == (kind not in (None, "image/bmp"))


async def test_an_image_is_named_and_shown_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "picture.txt").write_bytes(PNG)
    assert await read(tmp_path, "picture.txt") == ToolResult(
        content=(
            TextBlock(text="Image: image/png, 28B."),
            ImageBlock(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        )
    )


async def test_an_image_for_a_model_without_images_has_a_note(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(PNG)
    result = await read(tmp_path, "p", takes_images=False)
    assert isinstance(result.content[0], TextBlock)
    assert "takes no images" in result.content[0].text
    assert isinstance(result.content[1], ImageBlock)


async def test_an_image_of_4_5_mib_of_base64_is_shown_and_a_larger_one_only_named(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(PNG.ljust(3_538_944, b"\0"))
    image = (await read(tmp_path, "p")).content[1]
    assert isinstance(image, ImageBlock)
    assert len(image.data) == 4.5 * 1024 * 1024
    (tmp_path / "p").write_bytes(PNG.ljust(3_538_945, b"\0"))
    assert "too large to be shown" in text(await read(tmp_path, "p"))


async def test_a_bmp_is_only_named(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(BMP)
    assert text(await read(tmp_path, "p")).startswith("Image: image/bmp, 38B. This format cannot be shown")


@pytest.mark.parametrize("checkpoints", range(5))
async def test_a_read_can_be_cancelled_anywhere(tmp_path: Path, checkpoints: int) -> None:
    (tmp_path / "f").write_bytes(b"x\n" * 1_000_000)
    done = False
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:

                async def cancel_later() -> None:
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel_later)
                await read(tmp_path, "f")
                done = True
    assert scope.cancelled_caught != done


@given(
    content=st.text(st.sampled_from(["a", "é", "\n", "\r"]), max_size=40),
    offset=st.integers(1, 8),
    limit=st.none() | st.integers(1, 8),
    cuts=st.lists(st.integers(0, 40), max_size=5),
)
def test_any_cut_of_a_file_into_pieces_gives_the_same_lines(
    content: str, offset: int, limit: int | None, cuts: list[int]
) -> None:
    reader = WindowReader(offset, limit)
    borders = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    for start, end in pairwise(borders):
        reader.feed(content[start:end])
    window = reader.finish()
    lines = content.split("\n")
    assert reader.file_lines == len(lines)
    if offset > len(lines):
        assert window is None
        return
    chosen = lines[offset - 1 :][:limit]
    assert window is not None
    assert window.shown == truncate_head("\n".join(chosen))
    assert window.first_line_bytes == len(chosen[0].encode())
    assert window.last_line == offset + len(chosen) - 1
