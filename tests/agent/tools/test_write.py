"""Source: agent loop, "write"."""

import os
import stat
from pathlib import Path

import pytest
import trio

from knightcode.agent.tools.base import ToolResult
from knightcode.agent.tools.files import FileLocks
from knightcode.agent.tools.write import MAX_DIFF_CHARS, WriteTool
from tests.agent.test_diff import apply_with_git
from tests.agent.tools.calls import call_context, failure

WRITE = WriteTool()


async def write(folder: Path, path: str, content: str, tool: WriteTool = WRITE) -> ToolResult:
    with trio.fail_after(5):
        return await tool.execute({"path": path, "content": content}, call_context(folder))


async def test_a_new_file_is_reported_as_new_with_a_patch_that_makes_it(tmp_path: Path) -> None:
    assert await write(tmp_path, "a/b/c.txt", "one\ntwo") == ToolResult.of_text(
        "Created a/b/c.txt",
        details={
            "existed": False,
            "patch": (
                "--- /dev/null\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
            ),
        },
    )
    file = tmp_path / "a/b/c.txt"
    assert file.read_bytes() == b"one\ntwo"


async def test_the_patch_of_a_new_file_is_taken_by_git(tmp_path: Path) -> None:
    patch = (await write(tmp_path, "new.txt", "one\n")).details["patch"]
    apply_with_git(tmp_path, patch, "--reverse")
    assert not (tmp_path / "new.txt").exists()
    apply_with_git(tmp_path, patch)
    assert (tmp_path / "new.txt").read_bytes() == b"one\n"


async def test_a_replaced_file_is_reported_with_diff_and_patch(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    result = await write(tmp_path, "f", "a\nc\n")
    assert result == ToolResult.of_text(
        "Replaced f",
        details={
            "existed": True,
            "diff": " 1 a\n-2 b\n+2 c",
            "patch": "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n",
        },
    )
    apply_with_git(tmp_path, result.details["patch"], "--reverse")
    assert (tmp_path / "f").read_text() == "a\nb\n"


async def test_the_same_text_again_and_an_empty_new_file_have_no_diff(tmp_path: Path) -> None:
    assert (await write(tmp_path, "f", "")).details == {"existed": False}
    assert (await write(tmp_path, "f", "")).details == {"existed": True}


async def test_large_texts_have_no_diff(tmp_path: Path) -> None:
    half = "x" * (MAX_DIFF_CHARS // 2)
    assert set((await write(tmp_path, "f", half)).details) == {"existed", "patch"}
    assert set((await write(tmp_path, "f", half[:-1] + "y")).details) == {"existed", "diff", "patch"}
    assert (await write(tmp_path, "f", half + "y")).details == {"existed": True}


async def test_a_replaced_file_keeps_its_mode_and_links_and_loses_its_old_end(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("a long text")
    file.chmod(0o700)
    os.link(file, tmp_path / "hard")
    (tmp_path / "soft").symlink_to("run.sh")
    await write(tmp_path, "soft", "short")
    assert stat.S_IMODE(file.stat().st_mode) == 0o700
    assert (tmp_path / "hard").read_text() == "short"
    assert (tmp_path / "soft").is_symlink()


async def test_a_dangling_link_gets_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    assert (await write(tmp_path, "link", "x")).details["existed"] is False
    assert (tmp_path / "target").read_text() == "x"


async def test_text_is_written_byte_for_byte(tmp_path: Path) -> None:
    text = "\ufeffa\r\nb\u2028c\x00\n日本"
    await write(tmp_path, "naïve 日本.txt", text)
    assert (tmp_path / "naïve 日本.txt").read_bytes() == text.encode()


async def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    await write(tmp_path, "f", "a\ud83d")
    assert (tmp_path / "f").read_text() == "a\ufffd"


async def test_a_binary_file_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\x00\n")
    result = await write(tmp_path, "f", "text\n")
    assert "\ufffd" in result.details["diff"]
    assert (tmp_path / "f").read_text() == "text\n"


async def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with trio.fail_after(5):
        assert "Is a directory" in await failure(WRITE, tmp_path, path="folder", content="x")
        assert "could not be written" in await failure(WRITE, tmp_path, path="pipe", content="x")
        assert "parents is not a folder" in await failure(WRITE, tmp_path, path="file/x", content="x")
        assert "Not a directory" in await failure(WRITE, tmp_path, path="file/x/y", content="x")
        assert "not a regular file" in await failure(WRITE, tmp_path, path="/dev/null", content="x")
        assert "content must be a string" in await failure(WRITE, tmp_path, path="f")
        assert "NUL" in await failure(WRITE, tmp_path, path="a\0", content="x")


@pytest.mark.parametrize("checkpoints", range(8))
async def test_a_write_cancelled_anywhere_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, checkpoints: int
) -> None:
    old, new = "a" * 1_000_000, "b" * 1_000_000
    (tmp_path / "f").write_text(old)
    locks = FileLocks()
    result: ToolResult | None = None
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def cancel_later() -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel_later)
            with scope:
                result = await write(tmp_path, "f", new, WriteTool(locks))
        async with locks.hold(str(tmp_path / "f")):
            assert (tmp_path / "f").read_text() == (old if result is None else new)
