"""Instruction files for the model: the user's own, then those of the folders down to the cwd.

These files need no project trust: they are text for the model, nothing in them is run.

Source: agent loop, "Context files", "System prompt".
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs

from knightcode.agent.tools.files import FILE_THREADS

NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
MAX_FILE_BYTES = 256 * 1024
"""More than this of one file would crowd out the conversation; the rest is left out with a warning."""
_MAX_POINTER_BYTES = 16 * 1024


@attrs.frozen
class ContextFile:
    """One instruction file; `text` has no byte order mark."""

    path: str
    text: str


@attrs.frozen
class ContextFiles:
    """The files found, outermost first, and what went wrong on the way, for the user."""

    files: tuple[ContextFile, ...] = ()
    warnings: tuple[str, ...] = ()


@attrs.frozen
class PromptFiles:
    """The user's own texts for the system prompt: `SYSTEM.md` and `APPEND_SYSTEM.md`."""

    system: str | None = None
    append: str | None = None
    warnings: tuple[str, ...] = ()


async def load_context_files(agent_dir: str | os.PathLike[str], cwd: str | os.PathLike[str]) -> ContextFiles:
    """`read_context_files`, in a worker thread."""
    return await FILE_THREADS.run(read_context_files, agent_dir, cwd, abandon_on_cancel=True)


async def load_prompt_files(
    agent_dir: str | os.PathLike[str], trusted_project_dir: str | os.PathLike[str] | None = None
) -> PromptFiles:
    """`read_prompt_files`, in a worker thread."""
    return await FILE_THREADS.run(read_prompt_files, agent_dir, trusted_project_dir, abandon_on_cancel=True)


def read_context_files(agent_dir: str | os.PathLike[str], cwd: str | os.PathLike[str]) -> ContextFiles:
    """The context files for `cwd`. Reads the disk: call it in a worker thread.

    Each folder gives the first of `NAMES` that is a regular file. A file reached twice counts once. A
    linked worktree that lies inside its main repository holds copies of the repository's files: those
    of the repository are left out.
    """
    cwd = os.path.abspath(cwd)
    folders = [os.path.abspath(agent_dir), *map(str, reversed(Path(cwd).parents)), cwd]
    found = [path for folder in folders if (path := _first_file(folder, NAMES)) is not None]
    doubled = _copies_in_main_repository(cwd, set(found))
    files: list[ContextFile] = []
    warnings: list[str] = []
    seen: set[str] = set()
    for path in found:
        real = os.path.realpath(path)
        if path in doubled or real in seen:
            continue
        seen.add(real)
        text = _read(path, warnings)
        if text is not None:
            files.append(ContextFile(path, text))
    return ContextFiles(tuple(files), tuple(warnings))


def read_prompt_files(
    agent_dir: str | os.PathLike[str], trusted_project_dir: str | os.PathLike[str] | None = None
) -> PromptFiles:
    """`SYSTEM.md` and `APPEND_SYSTEM.md`, each from the trusted project's folder, else the agent's.

    Reads the disk: call it in a worker thread. `trusted_project_dir` is None for an untrusted project:
    nothing of it may be opened.
    """
    folders = [folder for folder in (trusted_project_dir, agent_dir) if folder is not None]
    warnings: list[str] = []

    def first(name: str) -> str | None:
        paths = (_first_file(os.path.abspath(folder), (name,)) for folder in folders)
        path = next((path for path in paths if path is not None), None)
        return None if path is None else _read(path, warnings)

    system, append = first("SYSTEM.md"), first("APPEND_SYSTEM.md")
    return PromptFiles(system, append, tuple(warnings))


def _first_file(folder: str, names: tuple[str, ...]) -> str | None:
    for name in names:
        path = os.path.join(folder, name)
        try:
            if stat.S_ISREG(os.stat(path).st_mode):
                return path
        except (OSError, ValueError):
            continue
    return None


def _read(path: str, warnings: list[str]) -> str | None:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        warnings.append(f"{path} could not be read: {error.strerror or error}")
        return None
    if len(data) <= MAX_FILE_BYTES:
        text = data.decode(errors="replace")
    else:
        # A character that the cut has split is dropped, not replaced.
        end = MAX_FILE_BYTES
        while end > MAX_FILE_BYTES - 3 and data[end] & 0xC0 == 0x80:
            end -= 1
        text = data[:end].decode(errors="replace")
        warnings.append(f"{path} is larger than {MAX_FILE_BYTES // 1024} KiB: the rest of it is left out")
    return text.removeprefix("\ufeff")


def _copies_in_main_repository(cwd: str, found: set[str]) -> set[str]:
    """Those of `found` that a linked worktree around `cwd` holds as well, if it lies in its repository."""
    worktree, main = _linked_worktree(cwd)
    if worktree is None or main is None or not _is_below(worktree, main):
        return set()
    inside = (path for path in found if _is_below(path, worktree))
    return {os.path.join(main, os.path.relpath(path, worktree)) for path in inside}


def _linked_worktree(cwd: str) -> tuple[str | None, str | None]:
    """The linked worktree that holds `cwd` and its main checkout; None where there is no such thing.

    A linked worktree's `.git` is a file that names a folder in the main repository, and that folder's
    `commondir` leads to the repository. A submodule has the file, but no `commondir`.
    """
    for folder in _upwards(cwd):
        pointer = os.path.join(folder, ".git")
        if not os.path.lexists(pointer):
            continue
        line = _pointer(pointer)
        if line is None or not line.startswith("gitdir:"):
            return None, None
        git_dir = os.path.join(folder, line.removeprefix("gitdir:").strip())
        common = _pointer(os.path.join(git_dir, "commondir"))
        if common is None:
            return None, None
        repository = os.path.realpath(os.path.join(git_dir, common))
        is_checkout = os.path.basename(repository) == ".git"
        return folder, _spelled_like(os.path.dirname(repository), folder) if is_checkout else None
    return None, None


def _spelled_like(real: str, path: str) -> str:
    """`real`, or the ancestor of `path` that is the same folder under another name."""
    return next((folder for folder in _upwards(path) if os.path.realpath(folder) == real), real)


def _pointer(path: str) -> str | None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            data = file.read(_MAX_POINTER_BYTES)
    except OSError:
        return None
    text = os.fsdecode(data).strip()
    return text if text and "\0" not in text else None


def _upwards(path: str) -> Iterator[str]:
    yield path
    yield from map(str, Path(path).parents)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)
