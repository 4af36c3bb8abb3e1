"""A copy holds what belongs to a folder, and there is no way back from it into the original."""

import os
from pathlib import Path

import pytest

from knightcode.demo.copying import MAX_FILE_BYTES, MAX_FILES, Inventory, copy, take_inventory
from knightcode.demo.failures import DemoError


def copied(folder: Path, target: Path, listed: frozenset[str] | None = None) -> Inventory:
    target.mkdir()
    return copy(take_inventory(folder, listed), target)


def content(folder: Path) -> dict[str, str]:
    """Every file and link below a folder; a link's content is where it leads."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def make(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_files_are_copied_with_their_folders_and_modes(tmp_path: Path) -> None:
    folder = make(tmp_path / "from", "a", "b/c/d")
    (folder / "a").chmod(0o755)
    found = copied(folder, tmp_path / "to")
    assert found == Inventory(folder, ("a", "b/c/d"), (), ())
    assert content(tmp_path / "to") == {"a": "a", "b/c/d": "b/c/d"}
    assert os.access(tmp_path / "to" / "a", os.X_OK)


def test_git_folders_are_left_out_and_so_are_the_files_that_stand_for_them(tmp_path: Path) -> None:
    folder = make(tmp_path / "from", ".git/config", "a", "worktree/.git", "worktree/b")
    copied(folder, tmp_path / "to")
    assert content(tmp_path / "to") == {"a": "a", "worktree/b": "worktree/b"}


def test_only_listed_paths_are_copied_when_there_is_a_list(tmp_path: Path) -> None:
    folder = make(tmp_path / "from", "a", "b/c", "b/d", "e/f")
    copied(folder, tmp_path / "to", frozenset({"a", "b/c", "gone"}))
    assert content(tmp_path / "to") == {"a": "a", "b/c": "b/c"}


def test_links_inside_the_folder_are_kept_and_those_that_lead_out_are_not(tmp_path: Path) -> None:
    folder = make(tmp_path / "from", "a", "deep/er/b")
    make(tmp_path, "secret")
    links = {
        "inside": "a",
        "deep/up": "../a",
        "dangling": "nothing",
        "absolute": str(folder / "a"),
        "out": "../secret",
        "deep/er/jump": "../..",  # the folder itself
        "deep/er/far": "jump/../secret",  # harmless as text, outside once `jump` has been followed
    }
    for name, leads_to in links.items():
        (folder / name).symlink_to(leads_to)
    found = copied(folder, tmp_path / "to")
    kept = ("dangling", "deep/er/jump", "deep/up", "inside")
    assert found.links == kept
    assert content(tmp_path / "to") == {
        "a": "a",
        "deep/er/b": "deep/er/b",
        **{name: links[name] for name in kept},
    }
    assert found.skipped == tuple(
        f"{name}: a link that leads out of the folder" for name in ("absolute", "deep/er/far", "out")
    )


def test_a_folder_that_a_link_leads_to_is_not_entered(tmp_path: Path) -> None:
    make(tmp_path / "outside", "secret")
    folder = make(tmp_path / "from", "a")
    (folder / "tracked").symlink_to(tmp_path / "outside")
    copied(folder, tmp_path / "to", frozenset({"a", "tracked/secret"}))
    assert content(tmp_path / "to") == {"a": "a"}


def test_huge_and_special_files_are_skipped_and_named(tmp_path: Path) -> None:
    folder = make(tmp_path / "from", "a")
    with (folder / "huge").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    os.mkfifo(folder / "pipe")
    found = copied(folder, tmp_path / "to")
    assert sorted(found.skipped) == ["huge: larger than 4 MB", "pipe: no ordinary file"]
    assert content(tmp_path / "to") == {"a": "a"}


def test_a_file_that_went_away_meanwhile_is_skipped(tmp_path: Path) -> None:
    folder, target = make(tmp_path / "from", "a", "b"), tmp_path / "to"
    inventory = take_inventory(folder)
    (folder / "a").unlink()
    target.mkdir()
    assert copy(inventory, target) == Inventory(folder, ("b",), (), ("a: No such file or directory",))


def test_a_folder_that_is_too_large_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = make(tmp_path / "large", "a")
    for number in range(17):
        with (folder / str(number)).open("wb") as file:
            file.truncate(MAX_FILE_BYTES)
    with pytest.raises(DemoError, match="holds more than 64 MB to copy; give a smaller folder"):
        take_inventory(folder)


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        os.symlink("nowhere", tmp_path / str(number))
    with pytest.raises(DemoError, match="holds more than 10,000 files to copy; give a smaller folder"):
        take_inventory(tmp_path)


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="gone cannot be read: No such file or directory"):
        take_inventory(tmp_path / "gone")
