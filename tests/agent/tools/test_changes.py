"""Source: App Server, "Items"; extensions, "Results"."""

from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.tools.changes import FileChange, file_changes
from knightcode.agent.tools.edit import EditTool
from knightcode.agent.tools.write import WriteTool
from tests.agent.tools.calls import call_context

CWD = "/srv/app"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def test_an_edit_modifies_its_file_and_tells_the_patch() -> None:
    assert file_changes("edit", {"path": "src/a.py"}, {"patch": "--- a"}, False, CWD) == (
        FileChange("/srv/app/src/a.py", "modify", "--- a"),
    )


def test_a_write_adds_or_modifies_as_it_found_the_file() -> None:
    assert file_changes("write", {"path": "a"}, {"existed": False, "patch": "p"}, False, CWD) == (
        FileChange("/srv/app/a", "add", "p"),
    )
    assert file_changes("write", {"path": "a"}, {"existed": True, "patch": ""}, False, CWD) == (
        FileChange("/srv/app/a", "modify", None),
    )
    assert file_changes("write", {"path": "a"}, None, False, CWD) == (FileChange("/srv/app/a", "modify"),)


@pytest.mark.parametrize("name", ["edit", "write", "other"])
def test_a_failed_call_reports_nothing(name: str) -> None:
    details = {"patch": "p", "fileChanges": [{"path": "a", "kind": "add"}]}
    assert file_changes(name, {"path": "a"}, details, True, CWD) == ()


@pytest.mark.parametrize("arguments", [None, [], {}, {"path": 5}, {"path": ""}, {"path": "a\0"}])
def test_arguments_without_a_path_report_nothing(arguments: object) -> None:
    assert file_changes("edit", arguments, {"patch": "p"}, False, CWD) == ()


def test_a_tool_of_an_extension_reports_through_its_details() -> None:
    report = [
        {"path": "a", "kind": "add", "diff": "d"},
        {"path": "/b", "kind": "delete", "more": 1},
        {"path": "c", "kind": "modify", "diff": None},
    ]
    assert file_changes("rename", {}, {"fileChanges": report}, False, CWD) == (
        FileChange("/srv/app/a", "add", "d"),
        FileChange("/b", "delete"),
        FileChange("/srv/app/c", "modify"),
    )
    assert file_changes("rename", {"path": "a"}, {}, False, CWD) == ()


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {"kind": "add"},
        {"path": "b"},
        {"path": "b", "kind": "rename"},
        {"path": 5, "kind": "add"},
        {"path": "", "kind": "add"},
        {"path": "b", "kind": "add", "diff": 5},
        {"path": "b", "kind": ["add"]},
    ],
)
def test_one_malformed_entry_makes_the_whole_report_count_as_none(bad: object) -> None:
    report = [{"path": "a", "kind": "add"}, bad]
    assert file_changes("rename", {}, {"fileChanges": report}, False, CWD) == ()
    assert file_changes("edit", {"path": "a"}, {"fileChanges": bad}, False, CWD) == ()


async def test_stored_results_tell_the_same_as_live_ones(tmp_path: Path) -> None:
    context = call_context(tmp_path)
    with trio.fail_after(5):
        written = await WriteTool().execute({"path": "f", "content": "a\n"}, context)
        pair = {"oldText": "a", "newText": "b"}
        edited = await EditTool().execute({"path": "f", "edits": [pair]}, context)
    for name, result, kind in (("write", written, "add"), ("edit", edited, "modify")):
        stored = msgspec.json.decode(msgspec.json.encode(result.details))
        live = file_changes(name, {"path": "f"}, result.details, result.is_error, str(tmp_path))
        assert live == file_changes(name, {"path": "f"}, stored, False, str(tmp_path))
        (change,) = live
        assert (change.path, change.kind) == (str(tmp_path / "f"), kind)
        assert change.diff is not None


@given(name=st.sampled_from(["edit", "write", "x"]), arguments=JSON, details=JSON, report=JSON)
def test_whatever_was_stored_never_fails_to_be_read(
    name: str, arguments: object, details: object, report: object
) -> None:
    assert isinstance(file_changes(name, arguments, details, False, CWD), tuple)
    assert isinstance(file_changes(name, arguments, {"fileChanges": report}, False, CWD), tuple)
