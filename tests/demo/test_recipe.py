"""Protocol lines and shell commands, as a person copies them."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import trio

from knightcode.demo.git import Git
from knightcode.demo.recipe import protocol_lines, shell_commands
from tests.demo.commands import SECONDS


def test_the_lines_are_a_handshake_and_one_turn() -> None:
    assert [json.loads(line) for line in protocol_lines("t1", 'say "é"\n').splitlines()] == [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "by-hand", "version": "1"}}},
        {"method": "initialized", "params": {}},
        {
            "id": 2,
            "method": "thread/settings/update",
            "params": {"threadId": "t1", "approvalMode": "fullAccess"},
        },
        {"id": 3, "method": "turn/start", "params": {"threadId": "t1", "text": 'say "é"\n'}},
    ]


def test_paths_are_quoted_for_the_shell() -> None:
    commands = shell_commands("/tmp/it's", "turn.jsonl", ["/my python", "-m", "knightcode"], ["A=b c"])
    first, *_, last = commands.splitlines()
    assert shlex.split(first) == ["cd", "/tmp/it's", "&&"]
    assert shlex.split(last)[:4] == ["A=b c", "/my python", "-m", "knightcode"]


def run_commands(folder: Path) -> int:
    """The exit code of the commands with a server that answers with the end of a turn."""
    (folder / "turn.jsonl").touch()
    commands = shell_commands(str(folder), "turn.jsonl", ["sh", "-c", "echo turn/completed"], [])
    return subprocess.run(
        ["sh", "-c", commands], capture_output=True, timeout=SECONDS, check=False
    ).returncode


async def test_the_commands_put_the_copy_back_whatever_the_turn_did_to_it(tmp_path: Path) -> None:
    project, git = tmp_path / "project", Git.find({"PATH": os.environ["PATH"]})
    project.mkdir()
    (project / ".gitignore").write_text("ignored*\n")
    for name in ("changed", "deleted", "ignored"):
        (project / name).write_text("before\n")
    with trio.fail_after(SECONDS):
        await git.begin(project)
        (project / "changed").write_text("after\n")
        (project / "deleted").unlink()
        await git.run(project, "commit", "--quiet", "--all", "--message", "The turn's own")
        (project / "new" / "repository").mkdir(parents=True)
        await git.begin(project / "new" / "repository")
        (project / "ignored.too").touch()
    assert run_commands(tmp_path) == 0
    files = {path.name: path.read_text() for path in project.iterdir() if path.name != ".git"}
    before = dict.fromkeys(("changed", "deleted", "ignored"), "before\n")
    assert files == {".gitignore": "ignored*\n"} | before


async def test_without_the_copys_repository_nothing_is_put_back_and_nothing_is_run(tmp_path: Path) -> None:
    """A temporary folder may lie inside a repository of the user's."""
    with trio.fail_after(SECONDS):
        await Git.find({"PATH": os.environ["PATH"]}).begin(tmp_path)
    (tmp_path / "precious").write_text("not committed\n")
    (tmp_path / "project").mkdir()
    assert run_commands(tmp_path) != 0
    assert (tmp_path / "precious").read_text() == "not committed\n"
    assert not (tmp_path / "answers.jsonl").exists()
