"""What the turn is about: a copy of the user's folder, or the sample; what is asked; what the script says."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import attrs
import trio

from knightcode.demo.copying import Inventory, copy, take_inventory
from knightcode.demo.failures import DemoError
from knightcode.demo.git import Git

SAMPLE_ASK: Final = (
    "The tests of this project fail. Find out why, fix the code and not the tests, "
    "run them with `{python} -m unittest`, and say what was wrong."
)
FOLDER_ASK: Final = (
    "Read a file that says what this project is about, write what you found into {note}, "
    "run `git status --short`, and say what you changed."
)
CHECK_SECONDS: Final = 30.0
"""For the sample's tests, which take a fraction of one."""

_DATA_SUFFIX: Final = ".txt"
"""The sample's files end in it, so that no tool takes them for the product's own code and tests."""

# One copying at a time, and it must not wait for others' threads.
_COPYING: Final = trio.CapacityLimiter(1)


@attrs.frozen
class Project:
    """A copy that is ready: a git repository with one commit.

    Attributes:
        title: what it is, for a person.
        ask: the text of the turn.
        script: the file of a scripted model that can do it, as text.
        is_sample: its tests tell whether the turn did what was asked.
        skipped: what of the user's folder is not in the copy, and why.
    """

    root: Path
    title: str
    ask: str
    script: str
    is_sample: bool = False
    skipped: tuple[str, ...] = ()

    async def tests_pass(self, environ: Mapping[str, str]) -> bool:
        """Run the sample's tests."""
        with trio.move_on_after(CHECK_SECONDS):
            done = await trio.run_process(
                [sys.executable, "-m", "unittest"],
                cwd=self.root,
                env=dict(environ),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            return done.returncode == 0
        return False


async def prepare_sample(root: Path, git: Git) -> Project:
    """The project that ships with the demo: a small package whose test fails."""
    _unpack(files("knightcode.demo") / "sample", root)
    await git.begin(root)
    python = shlex.quote(sys.executable)
    return Project(
        root=root,
        title="the sample project, whose test fails",
        ask=SAMPLE_ASK.format(python=python),
        script=_script("sample.json", PYTHON=python),
        is_sample=True,
    )


async def prepare_copy(folder: Path, root: Path, git: Git) -> Project:
    """A copy of the user's folder, which is only read.

    Raises:
        DemoError: no folder, too large, nothing to read in it.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise DemoError(f"{folder} {what}; give the folder of a project, or none for the sample")
    listed = await git.listed(folder)
    found = await trio.to_thread.run_sync(_copied, folder, root, listed, limiter=_COPYING)
    names = [path for path in found.files if _is_speakable(path)]
    if not names:
        raise DemoError(f"{folder} has no file that could be copied; give the folder of a project")
    await git.begin(root)
    note = _free_name(root)
    return Project(
        root=root,
        title=f"a copy of {folder}",
        ask=FOLDER_ASK.format(note=note),
        script=_script("folder.json", FILE=_worth_reading(names), NOTE=note),
        skipped=found.skipped,
    )


def _copied(folder: Path, root: Path, listed: frozenset[str] | None) -> Inventory:
    check = trio.from_thread.check_cancelled
    return copy(take_inventory(folder, listed, check=check), root, check=check)


def _unpack(source: Traversable, target: Path) -> None:
    for entry in source.iterdir():
        if entry.is_dir():
            (target / entry.name).mkdir()
            _unpack(entry, target / entry.name)
        elif entry.name.endswith(_DATA_SUFFIX):
            (target / entry.name.removesuffix(_DATA_SUFFIX)).write_bytes(entry.read_bytes())


def _script(name: str, **values: str) -> str:
    """A script of the package, its `@NAME@` parts replaced; they stand inside JSON strings."""
    text = (files("knightcode.demo") / "scripts" / name).read_text(encoding="utf-8")
    for part, value in values.items():
        text = text.replace(f"@{part}@", json.dumps(value)[1:-1])
    return text


def _is_speakable(path: str) -> bool:
    """Whether a path can stand in JSON: names that are no UTF-8 cannot."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _worth_reading(paths: list[str]) -> str:
    """The file that says most about a project: a README, rather one near the root; else the first."""
    readmes = [path for path in paths if os.path.basename(path).lower().startswith("readme")]
    return min(readmes or paths, key=lambda path: (path.count("/"), path))


def _free_name(root: Path) -> str:
    """A name for the note that nothing in the project has."""
    number = 1
    while os.path.lexists(root / (name := f"KNIGHTCODE_DEMO{'' if number == 1 else f'_{number}'}.md")):
        number += 1
    return name
