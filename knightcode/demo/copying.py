"""Copying a folder so that the copy can be changed and the original cannot be reached from it.

Ordinary files are copied; links are made anew where they lead to something inside, and followed
nowhere; git's own folders are left out, for they can lead back to the original. The size is bounded
before anything is written.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from knightcode.demo.failures import DemoError

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_FILES = 10_000
MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""What copies and commits within a second or two; a demo need not wait longer."""


def _nothing() -> None:
    return None


@attrs.frozen
class Inventory:
    """What of a folder will be copied. Paths are relative to it, in the order of their names.

    Attributes:
        skipped: what is left behind, each with the reason.
    """

    folder: Path
    files: tuple[str, ...]
    links: tuple[str, ...]
    skipped: tuple[str, ...]


def take_inventory(
    folder: Path, listed: frozenset[str] | None = None, *, check: Callable[[], None] = _nothing
) -> Inventory:
    """See what is to be copied.

    Args:
        listed: the only paths wanted, None for all.
        check: called again and again; what it raises ends the work.
    Raises:
        DemoError: the folder cannot be read, or is too large.
    """
    files: list[str] = []
    links: list[str] = []
    skipped: list[str] = []
    total = 0
    for entry, path in _walk(folder, "", _folders_of(listed), skipped):
        check()
        if listed is not None and path not in listed:
            continue
        about = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(about.st_mode):
            links.append(path)
        elif not stat.S_ISREG(about.st_mode):
            skipped.append(f"{path}: no ordinary file")
        elif about.st_size > MAX_FILE_BYTES:
            skipped.append(f"{path}: larger than {_megabytes(MAX_FILE_BYTES)}")
        else:
            files.append(path)
            total += about.st_size
        if len(files) + len(links) > MAX_FILES:
            raise DemoError(f"{folder} holds more than {MAX_FILES:,} files to copy; give a smaller folder")
        if total > MAX_TOTAL_BYTES:
            raise DemoError(
                f"{folder} holds more than {_megabytes(MAX_TOTAL_BYTES)} to copy; give a smaller folder"
            )
    return Inventory(folder, tuple(sorted(files)), tuple(sorted(links)), tuple(skipped))


def copy(inventory: Inventory, target: Path, *, check: Callable[[], None] = _nothing) -> Inventory:
    """Copy into `target`, which is there and empty; returns what has really been copied.

    A file that has gone or cannot be read is skipped like the others.
    """
    files: list[str] = []
    skipped = list(inventory.skipped)
    for path in inventory.files:
        check()
        goal = target / path
        goal.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(inventory.folder / path, goal, follow_symlinks=False)
            shutil.copymode(inventory.folder / path, goal, follow_symlinks=False)
        except OSError as error:
            skipped.append(f"{path}: {error.strerror or error}")
        else:
            goal.chmod(goal.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
            files.append(path)
    links = _make_links(inventory, target)
    skipped += [
        f"{path}: a link that leads out of the folder" for path in inventory.links if path not in links
    ]
    return Inventory(inventory.folder, tuple(files), links, tuple(skipped))


def _walk(
    folder: Path, prefix: str, wanted: frozenset[str] | None, skipped: list[str]
) -> Iterator[tuple["os.DirEntry[str]", str]]:
    """Every entry that is no folder, with its path; links are entries. Git's folders are not entered."""
    try:
        with os.scandir(folder / prefix) as entries:
            inside = list(entries)
    except OSError as error:
        if not prefix:
            raise DemoError(f"{folder} cannot be read: {error.strerror}") from error
        skipped.append(f"{prefix}: {error.strerror}")
        return
    for entry in inside:
        path = f"{prefix}/{entry.name}" if prefix else entry.name
        if entry.name.lower() == ".git":
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield entry, path
        elif wanted is None or path in wanted:
            yield from _walk(folder, path, wanted, skipped)


def _folders_of(listed: frozenset[str] | None) -> frozenset[str] | None:
    """Every folder on the way to a listed path."""
    if listed is None:
        return None
    folders: set[str] = set()
    for path in listed:
        parent = os.path.dirname(path)
        while parent and parent not in folders:
            folders.add(parent)
            parent = os.path.dirname(parent)
    return frozenset(folders)


def _make_links(inventory: Inventory, target: Path) -> tuple[str, ...]:
    """Make the links anew; those that lead out are not there afterwards. Returns the others.

    Where a link leads depends on other links, so all are made before any is judged.
    """
    made = []
    for path in inventory.links:
        leads_to = os.readlink(inventory.folder / path)
        if not os.path.isabs(leads_to):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(leads_to, target / path)
            made.append(path)
    root = os.path.realpath(target)
    outside = {path for path in made if not _is_inside(os.path.realpath(target / path), root)}
    for path in outside:
        (target / path).unlink()
    return tuple(path for path in made if path not in outside)


def _is_inside(path: str, root: str) -> bool:
    return os.path.commonpath([path, root]) == root


def _megabytes(count: int) -> str:
    return f"{count // (1024 * 1024)} MB"
