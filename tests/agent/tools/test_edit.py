"""Source: agent loop, "edit"."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.tools.base import ToolResult
from knightcode.agent.tools.edit import EditTool
from knightcode.agent.tools.files import FileLocks
from knightcode.agent.tools.validate import validate
from tests.agent.test_diff import apply_with_git
from tests.agent.tools.calls import call_context, failure

EDIT = EditTool()


async def edit(folder: Path, path: str, *pairs: tuple[str, str], tool: EditTool = EDIT) -> ToolResult:
    edits = [{"oldText": old, "newText": new} for old, new in pairs]
    with trio.fail_after(5):
        return await tool.execute({"path": path, "edits": edits}, call_context(folder))


async def test_an_edit_tells_what_it_changed(tmp_path: Path) -> None:
    (tmp_path / "rate.py").write_text("LIMIT = 60\n\nprint(LIMIT)\n")
    assert await edit(tmp_path, "rate.py", ("60", "90"), ("print", "show")) == ToolResult.of_text(
        "Replaced 2 blocks in rate.py",
        details={
            "diff": "-1 LIMIT = 60\n+1 LIMIT = 90\n 2 \n-3 print(LIMIT)\n+3 show(LIMIT)",
            "patch": (
                "--- rate.py\n+++ rate.py\n@@ -1,3 +1,3 @@\n"
                "-LIMIT = 60\n+LIMIT = 90\n \n-print(LIMIT)\n+show(LIMIT)\n"
            ),
            "firstChangedLine": 1,
        },
    )
    assert (tmp_path / "rate.py").read_text() == "LIMIT = 90\n\nshow(LIMIT)\n"


async def test_a_file_without_final_line_feed_survives_edit_revert_and_reapply(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\nb")
    patch = (await edit(tmp_path, "f", ("a", "A"))).details["patch"]
    assert file.read_bytes() == b"A\nb"
    assert patch.endswith(" b\n\\ No newline at end of file\n")
    apply_with_git(tmp_path, patch, "--reverse")
    assert file.read_bytes() == b"a\nb"
    apply_with_git(tmp_path, patch)
    assert file.read_bytes() == b"A\nb"


@pytest.mark.parametrize("content", [b"\xef\xbb\xbfa\r\nb\r\n", b"a\r\nb", b"a\nb\r\nc"])
async def test_the_patch_of_a_file_with_crlf_or_a_byte_order_mark_applies_to_that_file(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)
    patch = (await edit(tmp_path, "f", ("b", "x\ny"))).details["patch"]
    after = file.read_bytes()
    apply_with_git(tmp_path, patch, "--reverse")
    assert file.read_bytes() == content
    apply_with_git(tmp_path, patch)
    assert file.read_bytes() == after


async def test_bytes_that_are_no_utf8_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\xfe\na\n\xe9\n")
    result = await edit(tmp_path, "f", ("a", "b"))
    assert (tmp_path / "f").read_bytes() == b"\xff\xfe\nb\n\xe9\n"
    assert "\ufffd" in result.details["patch"]


async def test_the_file_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("echo a\n")
    file.chmod(0o750)
    os.link(file, tmp_path / "hard")
    (tmp_path / "soft").symlink_to("run.sh")
    await edit(tmp_path, "soft", ("a", "b"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert (tmp_path / "hard").read_text() == "echo b\n"
    assert (tmp_path / "soft").is_symlink()


async def test_a_file_that_gets_shorter_keeps_nothing_of_its_old_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a long line\nend\n")
    await edit(tmp_path, "f", ("a long line\n", ""))
    assert (tmp_path / "f").read_text() == "end\n"


async def test_what_is_no_editable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    pair = [{"oldText": "a", "newText": "b"}]
    with trio.fail_after(5):
        assert await failure(EDIT, tmp_path, path="none", edits=pair) == "none does not exist"
        assert "is a folder" in await failure(EDIT, tmp_path, path="folder", edits=pair)
        assert "is not a regular file" in await failure(EDIT, tmp_path, path="pipe", edits=pair)
        assert "NUL" in await failure(EDIT, tmp_path, path="a\0b", edits=pair)
        assert "must not be empty" in await failure(EDIT, tmp_path, path="", edits=pair)
        assert "path must be a string" in await failure(EDIT, tmp_path, edits=pair)
        assert "Not a directory" in await failure(EDIT, tmp_path, path="/dev/null/x", edits=pair)


@pytest.mark.parametrize(
    "edits", [None, [], {}, "x", [None], [{"oldText": "a"}], [{"oldText": 1, "newText": ""}]]
)
async def test_a_malformed_list_of_edits_is_refused(tmp_path: Path, edits: object) -> None:
    (tmp_path / "f").write_text("a")
    assert await failure(EDIT, tmp_path, path="f", edits=edits)
    assert (tmp_path / "f").read_text() == "a"


async def test_a_failing_edit_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a b")
    edits = [{"oldText": "a", "newText": "1"}, {"oldText": "z", "newText": "2"}]
    assert "edits[1]" in await failure(EDIT, tmp_path, path="f", edits=edits)
    assert (tmp_path / "f").read_text() == "a b"


PAIR = {"oldText": "a", "newText": "b"}


@pytest.mark.parametrize(
    "sent",
    [
        {"path": "f", "edits": [PAIR]},
        {"path": "f", "edits": PAIR},
        {"path": "f", "edits": '[{"oldText": "a", "newText": "b"}]'},
        {"path": "f", "edits": '{"oldText": "a", "newText": "b"}'},
        {"path": "f", **PAIR},
    ],
)
def test_other_forms_of_edits_become_the_list_of_the_schema(sent: dict[str, Any]) -> None:
    assert EDIT.prepare(sent) == {"path": "f", "edits": [PAIR]}


def test_edits_and_a_single_edit_beside_them_are_all_made() -> None:
    sent = {"path": "f", "edits": [PAIR], "oldText": "c", "newText": "d"}
    assert EDIT.prepare(sent)["edits"] == [PAIR, {"oldText": "c", "newText": "d"}]


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"path": "f"},
        {"path": "f", "edits": "{not json"},
        {"path": "f", "edits": 5},
        {"path": "f", "edits": "[" * 100_000},
        {"path": "f", "edits": "\ud83d"},
    ],
)
def test_what_cannot_be_rewritten_is_left_to_the_validation(sent: dict[str, Any]) -> None:
    assert EDIT.prepare(sent) == sent
    with pytest.raises(Exception, match="do not fit"):
        validate(EDIT.parameters, sent)


async def test_edits_of_one_file_follow_each_other_and_those_of_others_do_not_wait(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("0")
    (tmp_path / "link").symlink_to("f")
    (tmp_path / "g").write_text("0")
    locks = FileLocks()
    tool = EditTool(locks)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, locks.hold(str(tmp_path / "f")):

            async def append(path: str) -> None:
                await edit(tmp_path, path, ("0", "00"), tool=tool)

            nursery.start_soon(append, "link")
            await wait_all_tasks_blocked()
            await edit(tmp_path, "g", ("0", "1"), tool=tool)
            assert (tmp_path / "f").read_text() == "0"
    assert (tmp_path / "f").read_text() == "00"


async def test_twenty_edits_at_once_are_all_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"<{n}>\n" for n in range(20)))

    async def one(n: int) -> None:
        await edit(tmp_path, "f", (f"<{n}>", f"[{n}]"))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(one, n)
    assert (tmp_path / "f").read_text() == "".join(f"[{n}]\n" for n in range(20))


@pytest.mark.parametrize("checkpoints", range(8))
async def test_an_edit_cancelled_anywhere_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, checkpoints: int
) -> None:
    """The edit is cancelled after each number of steps of the other tasks; a late result is a result."""
    old, new = "a" + "x" * 500_000, "b" + "x" * 500_000
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
                result = await edit(tmp_path, "f", ("a", "b"), tool=EditTool(locks))
        async with locks.hold(str(tmp_path / "f")):
            assert (tmp_path / "f").read_text() == (old if result is None else new)


async def test_an_edit_cancelled_while_it_waits_for_its_turn_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a")
    locks = FileLocks()
    async with locks.hold(str(tmp_path / "f")):
        with trio.move_on_after(0) as scope:
            await edit(tmp_path, "f", ("a", "b"), tool=EditTool(locks))
        assert scope.cancelled_caught
    assert (tmp_path / "f").read_text() == "a"


@given(
    lines=st.lists(st.text("ab é", max_size=5), min_size=1, max_size=8, unique=True),
    ended=st.booleans(),
    crlf=st.booleans(),
    picked=st.data(),
)
def test_the_patch_of_any_edit_takes_the_file_back_and_forth(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    ended: bool,
    crlf: bool,
    picked: st.DataObject,
) -> None:
    line_end = "\r\n" if crlf else "\n"
    content = (line_end.join(f"<{line}>" for line in lines) + (line_end if ended else "")).encode()
    chosen = picked.draw(st.lists(st.sampled_from(lines), min_size=1, unique=True))
    pairs = [(f"<{line}>", picked.draw(st.text("xy\n", max_size=4))) for line in chosen]
    folder = tmp_path_factory.mktemp("edit")
    file = folder / "f"
    file.write_bytes(content)
    patch: str = trio.run(edit, folder, "f", *pairs).details["patch"]
    after = file.read_bytes()
    apply_with_git(folder, patch, "--reverse")
    assert file.read_bytes() == content
    if after:
        apply_with_git(folder, patch)
        assert file.read_bytes() == after
