"""The git program, for the demo's copy: its own identity, and nothing of the user's configuration.

Variables that say where a repository is are taken away: with one of them set, as inside a git hook,
git would change the user's own repository in place of the copy.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from knightcode.demo.failures import DemoError

BEFORE = "refs/knightcode/before"
"""The commit that `Git.begin` makes. HEAD need not stay there: a turn may commit."""

GIT_SECONDS = 30.0
"""For one command; all of them take milliseconds unless the disk hangs."""

_ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull}
_OPTIONS = (
    "user.name=KnightCode demo",
    "user.email=demo@knightcode.invalid",
    "commit.gpgSign=false",
    f"core.hooksPath={os.devnull}",
    "core.autocrlf=false",
    "init.defaultBranch=main",
    "gc.auto=0",
)


def without_git(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without git's own variables."""
    return {name: value for name, value in environ.items() if not name.startswith("GIT_")}


@attrs.frozen
class Git:
    """Runs git. `environ` holds none of git's variables."""

    program: str
    environ: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> "Git":
        """The git on PATH.

        Raises:
            DemoError: there is none.
        """
        program = shutil.which("git", path=environ.get("PATH"))
        if program is None:
            raise DemoError(
                "git is not installed, or not on PATH, and the demo shows its diff with it; "
                "install the package git of your system, or get it from https://git-scm.com/downloads"
            )
        return cls(program, without_git(environ) | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"})

    async def listed(self, folder: Path) -> frozenset[str] | None:
        """The files of a project that git does not ignore, relative to it; None when git cannot tell.

        Reads only. The user's configuration counts here, for it also says what to ignore.
        """
        arguments = (
            "-c",
            "core.fsmonitor=false",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        )
        done = await self._run(arguments, folder, self.environ)
        if done.returncode:
            return None
        # Nothing at all means a folder that is itself ignored: then everything in it counts.
        return frozenset(os.fsdecode(name) for name in done.stdout.split(b"\0") if name) or None

    async def begin(self, folder: Path) -> None:
        """Make `folder` a repository with one commit that holds everything in it."""
        await self.run(folder, "init", "--quiet", "--template=")
        info = folder / ".git" / "info"
        info.mkdir(exist_ok=True)
        (info / "exclude").write_text("__pycache__/\n", encoding="utf-8")
        await self.run(folder, "add", "--all", "--force")
        await self.run(folder, "commit", "--quiet", "--allow-empty", "--message", "As it was before the turn")
        await self.run(folder, "update-ref", BEFORE, "HEAD")

    async def diff(self, folder: Path) -> str:
        """Everything that changed since `begin`, new files included; the index is as before afterwards."""
        await self.run(folder, "add", "--all", "--intent-to-add")
        text = await self.run(folder, "diff", "--no-color", "--no-ext-diff", "--no-textconv", BEFORE)
        await self.run(folder, "reset", "--quiet")
        return text

    async def run(self, folder: Path, *arguments: str) -> str:
        """Run a command in `folder`; returns what it printed.

        Raises:
            DemoError: it failed, or took longer than `GIT_SECONDS`.
        """
        options = [part for option in _OPTIONS for part in ("-c", option)]
        done = await self._run((*options, *arguments), folder, {**self.environ, **_ISOLATED})
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise DemoError(f"git {arguments[0]} failed in {folder} with code {done.returncode}: {said}")
        return done.stdout.decode(errors="replace")

    async def _run(
        self, arguments: tuple[str, ...], folder: Path, environ: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        with trio.move_on_after(GIT_SECONDS):
            return await trio.run_process(
                [self.program, *arguments],
                cwd=folder,
                env=dict(environ),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        raise DemoError(f"git did not finish in {folder} within {GIT_SECONDS:.0f} seconds")
