"""Source: agent loop, "Context files", "System prompt". Worktrees are made with the real git."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from knightcode.agent.context_files import (
    MAX_FILE_BYTES,
    ContextFile,
    ContextFiles,
    PromptFiles,
    load_context_files,
    load_prompt_files,
    read_context_files,
    read_prompt_files,
)


def put(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, *names: str) -> Path:
    for name in names:
        put(folder / name, name)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    return folder


def paths(found: ContextFiles, below: Path) -> Sequence[str]:
    return [os.path.relpath(file.path, below) for file in found.files]


async def test_files_come_from_the_agent_directory_then_from_the_root_down(tmp_path: Path) -> None:
    put(tmp_path / "agent/AGENTS.md", "mine")
    put(tmp_path / "srv/AGENTS.md", "outer")
    put(tmp_path / "srv/app/sub/CLAUDE.md", "\ufeffinner")
    with trio.fail_after(5):
        found = await load_context_files(tmp_path / "agent", tmp_path / "srv/app/sub")
    assert found == ContextFiles(
        files=(
            ContextFile(str(tmp_path / "agent/AGENTS.md"), "mine"),
            ContextFile(str(tmp_path / "srv/AGENTS.md"), "outer"),
            ContextFile(str(tmp_path / "srv/app/sub/CLAUDE.md"), "inner"),
        )
    )


def test_each_folder_gives_the_first_of_the_names(tmp_path: Path) -> None:
    order = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"]
    for name in order:
        put(tmp_path / "w" / name, name)
    for name in order:
        assert [file.text for file in read_context_files(tmp_path / "none", tmp_path / "w").files] == [name]
        (tmp_path / "w" / name).unlink()


def test_what_is_no_regular_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.override.md").mkdir()
    os.mkfifo(tmp_path / "AGENTS.md")
    (tmp_path / "AGENTS.MD").symlink_to(tmp_path / "gone")
    put(tmp_path / "CLAUDE.md", "text")
    assert paths(read_context_files(tmp_path / "none", tmp_path), tmp_path) == ["CLAUDE.md"]


def test_a_file_reached_twice_counts_once(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/AGENTS.md").symlink_to(tmp_path / "AGENTS.md")
    assert paths(read_context_files(tmp_path, tmp_path / "sub"), tmp_path) == ["AGENTS.md"]


def test_a_file_that_cannot_be_read_is_named_in_a_warning(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").symlink_to("/proc/self/mem")  # opens for everybody, and fails to be read
    found = read_context_files(tmp_path / "none", tmp_path)
    assert found.files == ()
    assert found.warnings == (f"{tmp_path}/AGENTS.md could not be read: Input/output error",)


def test_an_impossible_agent_directory_does_not_end_the_search(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "x")
    assert paths(read_context_files("a\0b", tmp_path), tmp_path) == ["AGENTS.md"]


def test_a_large_file_is_cut_at_a_character_and_named_in_a_warning(tmp_path: Path) -> None:
    path = put(tmp_path / "AGENTS.md", "x" + "é" * MAX_FILE_BYTES)
    found = read_context_files(tmp_path / "none", tmp_path)
    assert found.files[0].text == "x" + "é" * (MAX_FILE_BYTES // 2 - 1)
    assert found.warnings == (f"{path} is larger than 256 KiB: the rest of it is left out",)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", b"a\xff")
    assert read_context_files(tmp_path / "none", tmp_path).files[0].text == "a\ufffd"


def test_a_worktree_inside_its_repository_hides_the_repositorys_copy(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "AGENTS.md", "sub/AGENTS.md")
    git(main, "worktree", "add", "--quiet", "-b", "other", ".worktrees/one")
    tree = main / ".worktrees/one"
    found = read_context_files(tmp_path / "none", tree / "sub")
    assert paths(found, main) == [".worktrees/one/AGENTS.md", ".worktrees/one/sub/AGENTS.md"]


def test_a_worktree_keeps_files_of_the_repository_that_it_has_no_copy_of(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "AGENTS.md")
    git(main, "worktree", "add", "--quiet", "-b", "other", ".worktrees/one")
    put(main / "AGENTS.override.md", "not committed")
    put(main / ".worktrees/CLAUDE.md", "between")
    found = read_context_files(tmp_path / "none", main / ".worktrees/one")
    assert paths(found, main) == ["AGENTS.override.md", ".worktrees/CLAUDE.md", ".worktrees/one/AGENTS.md"]


def test_the_worktree_rule_holds_through_a_link_to_the_repository(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "AGENTS.md")
    git(main, "worktree", "add", "--quiet", "-b", "other", "one")
    (tmp_path / "link").symlink_to(main)
    found = read_context_files(tmp_path / "none", tmp_path / "link/one")
    assert paths(found, tmp_path) == ["link/one/AGENTS.md"]


def test_a_worktree_beside_its_repository_and_a_plain_clone_inside_one_hide_nothing(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "AGENTS.md")
    git(main, "worktree", "add", "--quiet", "-b", "other", "../beside")
    repository(main / "inner", "AGENTS.md")
    assert paths(read_context_files(tmp_path / "none", tmp_path / "beside"), tmp_path) == ["beside/AGENTS.md"]
    assert paths(read_context_files(tmp_path / "none", main / "inner"), main) == [
        "AGENTS.md",
        "inner/AGENTS.md",
    ]


@pytest.mark.parametrize(
    "pointer", ["gitdir: ../.git/modules/sub", "gitdir:", "nonsense", "", "gitdir: a\0b"]
)
def test_a_submodule_and_a_damaged_pointer_hide_nothing(tmp_path: Path, pointer: str) -> None:
    put(tmp_path / "AGENTS.md")
    put(tmp_path / "sub/AGENTS.md")
    put(tmp_path / "sub/.git", pointer)
    assert paths(read_context_files(tmp_path / "none", tmp_path / "sub"), tmp_path) == [
        "AGENTS.md",
        "sub/AGENTS.md",
    ]


async def test_prompt_files_of_a_trusted_project_win_over_those_of_the_agent(tmp_path: Path) -> None:
    put(tmp_path / "agent/SYSTEM.md", "agent")
    put(tmp_path / "agent/APPEND_SYSTEM.md", "agent too")
    put(tmp_path / "project/SYSTEM.md", "project")
    with trio.fail_after(5):
        found = await load_prompt_files(tmp_path / "agent", tmp_path / "project")
    assert found == PromptFiles(system="project", append="agent too")


def test_an_untrusted_projects_prompt_files_are_not_opened(tmp_path: Path) -> None:
    put(tmp_path / "project/SYSTEM.md", "project")
    assert read_prompt_files(tmp_path / "agent", None) == PromptFiles()
