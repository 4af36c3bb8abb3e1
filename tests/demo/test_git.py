"""Git on the copy: nothing of the user's configuration and environment counts."""

import os
from pathlib import Path

import pytest
import trio

from knightcode.demo.failures import DemoError
from knightcode.demo.git import Git, without_git
from tests.demo.commands import SECONDS


def test_variables_of_git_are_taken_away() -> None:
    assert without_git({"GIT_DIR": "x", "GIT_INDEX_FILE": "y", "PATH": "z"}) == {"PATH": "z"}


def test_a_missing_git_is_an_error_that_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"git is not installed.*https://git-scm\.com/downloads"):
        Git.find({"PATH": str(tmp_path)})


async def test_a_repository_is_begun_whatever_the_users_configuration_says(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (home / ".gitconfig").write_text("[commit]\n\tgpgSign = true\n[core]\n\thooksPath = /nowhere\n[user\n")
    (project / "a").write_text("one\n")
    (project / ".gitignore").write_text("a\n")
    git = Git.find({"PATH": os.environ["PATH"], "HOME": str(home)})
    with trio.fail_after(SECONDS):
        await git.begin(project)
        log = await git.run(project, "log", "--format=%an <%ae> %s")
        names = await git.run(project, "ls-files")
    assert log == "KnightCode demo <demo@knightcode.invalid> As it was before the turn\n"
    assert names == ".gitignore\na\n"


async def test_a_diff_shows_new_files_and_leaves_the_index_alone(tmp_path: Path) -> None:
    git = Git.find({"PATH": os.environ["PATH"]})
    (tmp_path / "a").write_text("one\n")
    with trio.fail_after(SECONDS):
        await git.begin(tmp_path)
        (tmp_path / "a").write_text("two\n")
        (tmp_path / "b").write_text("new\n")
        diff = await git.diff(tmp_path)
        status = await git.run(tmp_path, "status", "--short")
    assert [line for line in diff.splitlines() if line.startswith(("-", "+"))] == [
        "--- a/a",
        "+++ b/a",
        "-one",
        "+two",
        "--- /dev/null",
        "+++ b/b",
        "+new",
    ]
    assert status == " M a\n?? b\n"


async def test_a_diff_shows_also_what_has_been_committed_since(tmp_path: Path) -> None:
    git = Git.find({"PATH": os.environ["PATH"]})
    (tmp_path / "a").write_text("one\n")
    with trio.fail_after(SECONDS):
        await git.begin(tmp_path)
        (tmp_path / "a").write_text("two\n")
        await git.run(tmp_path, "commit", "--quiet", "--all", "--message", "Mine")
        diff = await git.diff(tmp_path)
    assert diff.endswith("\n-one\n+two\n")


async def test_the_list_leaves_out_what_git_ignores_and_is_none_where_git_cannot_tell(tmp_path: Path) -> None:
    git = Git.find({"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path)})
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a").touch()
        (folder / "ignored").touch()
    with trio.fail_after(SECONDS):
        await git.begin(inside)
        await git.run(inside, "rm", "--quiet", "--cached", "ignored")
        (inside / ".gitignore").write_text("ignored\n")
        assert await git.listed(inside) == frozenset({".gitignore", "a"})
        assert await git.listed(outside) is None


async def test_a_command_that_fails_is_an_error_with_what_git_said(tmp_path: Path) -> None:
    git = Git.find({"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    with trio.fail_after(SECONDS):
        with pytest.raises(DemoError) as failure:
            await git.run(tmp_path, "log")
    assert str(failure.value).startswith(f"git log failed in {tmp_path} with code 128: fatal: not a git repo")
