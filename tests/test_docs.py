"""What the pages say is true: commands are those that run, lines are the protocol's, numbers the code's.

Source: architecture, "Top level".
"""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_python(source: str, folder: Path) -> str:
    """What a program prints when it runs in `folder`, with that as its home directory."""
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protocol"))),
    }
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_first_two_shell_blocks_are_one_line_each() -> None:
    demo, tests = blocks("sh")[:2]
    assert [demo.count("\n"), tests.count("\n")] == [1, 1]
    assert demo.endswith("knightcode demo\n")
    assert tests.endswith("nox\n")


def test_ci_runs_the_test_command_of_readme() -> None:
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert steps.endswith("\n" + blocks("sh")[1])


def test_the_python_examples_print_what_is_said_of_them(tmp_path: Path) -> None:
    hello, client = blocks("python")
    assert run_python(hello, tmp_path) == "Hello from a script. completed"
    assert run_python(client, tmp_path) == "Hello from a script. 0"
    assert "`Hello from a script. completed`" in README
    assert "`Hello from a script. 0`" in README


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_line_of_the_tour_is_one_that_the_schema_allows() -> None:
    page = (ROOT / "docs" / "protocol-tour.md").read_text(encoding="utf-8")
    schema = json.loads((ROOT / "protocol" / "app-server.schema.json").read_text(encoding="utf-8"))
    lines = [json.loads(line[2:]) for line in page.splitlines() if line[:2] in ("→ ", "← ")]
    check = Draft202012Validator(schema)
    assert len(lines) > 40
    assert [line for line in lines if not check.is_valid(line)] == []


def test_every_bound_of_the_cancellation_page_is_the_one_in_the_code() -> None:
    page = (ROOT / "docs" / "cancellation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \| `([a-z_.]+)` \|", page, re.MULTILINE)
    assert len(rows) > 10
    stated = {(module, name): float(seconds) for name, seconds, module in rows}
    assert stated == {place: getattr(importlib.import_module(place[0]), place[1]) for place in stated}


def test_every_note_for_the_changelog_has_a_topic_and_a_kind() -> None:
    notes = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    wrong = [
        name for name in notes if not re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|breaking)\.md", name)
    ]
    assert wrong == []
