"""Every check, and everything else that is run by name. `nox` alone runs what CI runs.

Sessions run in the environment that nox itself runs in, which holds the project with its `dev` extra:
nothing is installed twice and nothing is downloaded. `nox -db venv` makes an environment instead, one
for each session, kept for the next time.
"""

import sys
from pathlib import Path

import nox
from nox.virtualenv import PassthroughEnv

ROOT = Path(__file__).parent
SCHEMA = ROOT / "protocol" / "app-server.schema.json"
COVERAGE_FLOOR = 90
"""Percent of lines and branches; a floor against slipping, not a goal."""

PYTHON_FILES = ("knightcode", "protocol/knightcode_protocol", "tests", "benchmarks", "noxfile.py")
ASYNC_RULES = "ASYNC1,ASYNC900,ASYNC913"
STARTABLE = "_supervise,_watch_signals,run"
"""Functions for `nursery.start`, which the async checker wants to know by name."""
PASSED_ON = "ASYNC128"
"""Sees no `started()` where `task_status` is passed on; trio itself reports a start that never started."""

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "types", "schema", "promises", "tests"]
nox.options.default_venv_backend = "none"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True


def python_of(session: nox.Session) -> str:
    """The interpreter to run things with, in an environment that has the project."""
    if isinstance(session.virtualenv, PassthroughEnv):
        return sys.executable
    session.install("-q", "-e", ".[dev]")
    return "python"


@nox.session
def lint(session: nox.Session) -> None:
    """Style, likely mistakes, formatting, and the rules for async code."""
    python = python_of(session)
    session.run(python, "-m", "ruff", "check", *PYTHON_FILES)
    session.run(python, "-m", "ruff", "format", "--check", *PYTHON_FILES)
    session.run(
        python,
        "-m",
        "flake8_async",
        f"--enable={ASYNC_RULES}",
        f"--disable={PASSED_ON}",
        f"--startable-in-context-manager={STARTABLE}",
        *_async_sources(),
    )


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, over everything that is Python."""
    session.run(python_of(session), "-m", "mypy")


@nox.session
def schema(session: nox.Session) -> None:
    """Generate the protocol's schema anew; fails when the stored one was not up to date."""
    before = SCHEMA.read_bytes() if SCHEMA.exists() else b""
    session.run(python_of(session), "-m", "knightcode_protocol.schema")
    if SCHEMA.read_bytes() != before:
        session.error(f"{SCHEMA.relative_to(ROOT)} was out of date; it is new now, look at what changed")


@nox.session
def promises(session: nox.Session) -> None:
    """Print how much of the protocol is proved by tests; fails when the manifest does not add up."""
    python = python_of(session)
    session.run(python, "-m", "tests.promises.report")
    session.run(python, "-m", "pytest", "-q", "tests/promises")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests but the long ones, with branch coverage; arguments go to pytest and skip the floor."""
    python = python_of(session)
    session.run(python, "-m", "coverage", "erase")
    session.run(python, "-m", "coverage", "run", "-m", "pytest", *session.posargs)
    session.run(python, "-m", "coverage", "combine", "--quiet")
    floor = 0 if session.posargs else COVERAGE_FLOOR
    session.run(python, "-m", "coverage", "report", "--skip-covered", "--sort=cover", f"--fail-under={floor}")


@nox.session
def torture(session: nox.Session) -> None:
    """The long runs: every checkpoint, every crash point, shuffled schedules."""
    session.run(python_of(session), "-m", "pytest", "-m", "torture", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """One turn on a sample project, without a key and without a network; arguments are the demo's instead."""
    session.run(python_of(session), "-m", "knightcode", "demo", *(session.posargs or ["--scripted"]))


@nox.session
def bench(session: nox.Session) -> None:
    """What is measured, beside a bare process that does only this."""
    session.run(python_of(session), "-m", "benchmarks", *session.posargs)


def _async_sources() -> list[str]:
    """The files with async code, by name: the checker takes no folders, and is slow."""
    files: list[Path] = []
    for name in PYTHON_FILES:
        path = ROOT / name
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [str(path.relative_to(ROOT)) for path in files if "async " in path.read_text(encoding="utf-8")]
