"""What the pages say is true: commands are those that run, lines are the protocol's, numbers the code's.

Source: architecture, "Top level".
"""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from knightcode.models.adapters.anthropic_body import AnthropicCompat
from knightcode.models.adapters.openai_compat import ChatCompat
from knightcode.models.catalog import load_catalog
from knightcode.models.custom import ModelDef, Override, ProviderDef
from knightcode.models.registry import ADAPTER_APIS, ModelRegistry

ROOT: Final = Path(__file__).parent.parent
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_python(source: str, folder: Path, *, code: int = 0) -> str:
    """What a program prints when it runs in `folder`, its home directory too, and ends with `code`."""
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
    assert done.returncode == code, done.stderr
    return done.stdout.strip()


def test_the_first_two_shell_blocks_are_one_line_each() -> None:
    demo, tests = blocks("sh")[:2]
    assert [demo.count("\n"), tests.count("\n")] == [1, 1]
    assert demo.endswith("knightcode demo --scripted\n")
    assert tests.endswith("nox\n")


def test_ci_runs_the_test_command_of_readme() -> None:
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert steps.endswith("\n" + blocks("sh")[1])


def test_the_python_examples_print_what_is_said_of_them(tmp_path: Path) -> None:
    hello, client, in_process = blocks("python")
    assert run_python(hello, tmp_path) == "Hello from a script. completed"
    assert run_python(client, tmp_path) == "Hello from a script. 0"
    assert run_python(in_process, tmp_path) == "Hello from a script. ask"
    assert "`Hello from a script. completed`" in README
    assert "`Hello from a script. 0`" in README
    assert "`Hello from a script. ask`" in README


def test_the_first_example_ends_also_when_the_model_wants_a_tool_or_fails(tmp_path: Path) -> None:
    call = '{"toolCall": {"name": "bash", "arguments": {"command": "touch ran"}}}'
    said = '{"text": "Hello from a script.", "chunk": 5}'
    hello = blocks("python")[0]
    assert said in hello
    declined = run_python(hello.replace(said, f'{call}]}}, {{"steps": [{{"text": "So be it."}}'), tmp_path)
    assert declined == "So be it. completed"
    assert not (tmp_path / "ran").exists()
    failed = run_python(hello.replace(said, '{"error": "no luck today"}'), tmp_path, code=1)
    assert failed == "failed"


MODELS_PAGE: Final = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_models_json_on_the_pages_gives_the_models_it_lists(tmp_path: Path) -> None:
    examples = re.findall(r"^```json\n(.*?)^```$", README + MODELS_PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 4
    for text in examples:
        (tmp_path / "models.json").write_text(text, encoding="utf-8")
        registry = ModelRegistry.load(tmp_path, {"WORK_MODELS_KEY": "k"})
        assert registry.warnings == ()
        for provider, entry in json.loads(text)["providers"].items():
            for listed in entry.get("models", ()):
                model = registry.find(provider, listed["id"])
                assert model is not None
                assert model.api in ADAPTER_APIS
                assert registry.available(model) is (provider not in ("mistral", "openai"))


def test_the_page_of_models_names_every_variable_member_and_habit_that_counts() -> None:
    named = set(re.findall(r"`([\w/.-]+)`", MODELS_PAGE))
    structs = (ProviderDef, ModelDef, Override, AnthropicCompat, ChatCompat)
    members = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
    variables = {name for provider in load_catalog() for name in (*provider.bearer_keys, *provider.keys)}
    assert (members | variables | {provider.id for provider in load_catalog()}) - named == {"oauth"}


def test_commands_on_the_pages_run_from_the_folder_of_the_project() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "protocol" / "README.md"]
    fenced = "".join(
        block
        for page in pages
        for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    )
    lines = fenced.splitlines()
    assert len(lines) > 8
    assert [line for line in lines if not line.startswith((".venv/bin/", "python3 -m venv "))] == []


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


Place = tuple[str, str]
"""A module and the name of a constant in it."""

IN_SECONDS: Final = re.compile(r"_?[A-Z_]*(_SECONDS|_GRACE)|ABANDON_AFTER|ANSWER_BY|EXIT_BY")


def constants_in_seconds(source: str) -> Iterator[str]:
    """The names of a module's own constants that are in seconds, as names say it here."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from (
            target.id
            for target in targets
            if isinstance(target, ast.Name) and IN_SECONDS.fullmatch(target.id)
        )


def seconds_in_the_code() -> dict[Place, float]:
    """Every constant in seconds of the product, with its value."""
    return {
        (module, name): getattr(importlib.import_module(module), name)
        for path in sorted((ROOT / "knightcode").rglob("*.py"))
        for module in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        for name in constants_in_seconds(path.read_text(encoding="utf-8"))
    }


def test_the_cancellation_page_has_every_bound_of_the_code_with_its_value_and_no_other() -> None:
    page = (ROOT / "docs" / "cancellation.md").read_text(encoding="utf-8")
    bounds = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| `([a-z_.]+)` \|", page, re.MULTILINE)
    others = re.findall(r"^\| `(\w+)` \| `([a-z_.]+)` \| \w", page, re.MULTILINE)
    code = seconds_in_the_code()
    no_bounds = {(module, name): code.get((module, name)) for name, module in others}
    stated = {(module, name): float(seconds) for name, seconds, module in bounds}
    assert len(stated) == len(bounds) and len(no_bounds) == len(others)
    assert stated | no_bounds == code
    assert stated.keys() & no_bounds.keys() == set()


def test_constants_in_seconds_are_found_by_their_names_however_they_are_written() -> None:
    source = (
        "A_SECONDS = 1\n_B_SECONDS: Final = 2.0\nC_GRACE = EXIT_BY = A + 1\nSECONDS_D = 3\ne_seconds = 4\n"
    )
    inner = "def f():\n    G_SECONDS = 5\nx.H_SECONDS = 6\nfrom m import I_SECONDS\n"
    assert list(constants_in_seconds(source + inner)) == ["A_SECONDS", "_B_SECONDS", "C_GRACE", "EXIT_BY"]


def test_every_note_for_the_changelog_has_a_topic_and_a_kind() -> None:
    notes = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    wrong = [
        name for name in notes if not re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|breaking)\.md", name)
    ]
    assert wrong == []
