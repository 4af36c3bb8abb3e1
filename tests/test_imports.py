"""What a start may load, and when: each look is taken in an interpreter of its own.

Source: architecture, "Performance budget", "Dependencies".
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

LOOK: Final = """
import sys
before = set(sys.modules)
{program}
print(*sorted(set(sys.modules) - before), sep="\\n")
"""

BEFORE_THE_FIRST_ANSWER: Final = frozenset(
    {
        "msgspec",
        "typing_extensions",  # msgspec takes it where it is installed
    }
)
"""Third-party packages. The list is short because a client waits for each of them at every start."""

SLOW_AND_NEEDLESS: Final = frozenset(
    {
        "argparse",
        "asyncio",
        "concurrent",
        "dataclasses",
        "email",
        "hashlib",
        "http",
        "importlib.metadata",
        "json",
        "logging",
        "multiprocessing",
        "pathlib",
        "random",
        "shutil",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "urllib",
    }
)
"""Parts of the standard library that the handshake does not need and that cost a millisecond or more."""

NEVER_AT_START: Final = frozenset(
    {
        "PIL",
        "anyio",
        "asyncio",
        "cattrs",
        "dulwich",
        "h11",
        "httpcore2",
        "httpx2",
        "jinja2",
        "mcp",
        "pygments",
    }
)
"""What waits for its first use, even after trio is there."""


def loaded_by(program: str) -> frozenset[str]:
    """The modules that a fresh interpreter loads for a few lines of Python."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'protocol'}"}
    for name in ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"):
        environment.pop(name, None)  # measuring loads much more than what is measured
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(program=program)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return frozenset(done.stdout.split())


def third_party(modules: frozenset[str]) -> frozenset[str]:
    """The packages among them that are neither ours nor the standard library's."""
    top = {module.split(".")[0] for module in modules}
    return frozenset(top - set(sys.stdlib_module_names) - {"knightcode", "knightcode_protocol"})


def test_the_command_line_loads_nothing_before_it_knows_the_subcommand() -> None:
    loaded = loaded_by("import knightcode.cli")
    assert loaded == {"knightcode", "knightcode.cli"}


def test_the_app_server_loads_msgspec_alone_before_its_first_answer() -> None:
    loaded = loaded_by("import knightcode.app_server.main")
    assert third_party(loaded) <= BEFORE_THE_FIRST_ANSWER
    assert loaded & SLOW_AND_NEEDLESS == frozenset()


def test_no_domain_module_is_loaded_before_the_first_answer() -> None:
    ours = {name for name in loaded_by("import knightcode.app_server.main") if name.startswith("knightcode.")}
    allowed = ("knightcode.app_server.main", "knightcode.app_server.core", "knightcode.app_server.transport")
    assert {name for name in ours if not name.startswith(allowed)} == {"knightcode.app_server"}


def test_the_whole_server_leaves_the_http_library_and_all_optional_parts_for_their_first_use() -> None:
    loaded = loaded_by("import knightcode.app_server.serve")
    assert "trio" in loaded
    assert loaded & NEVER_AT_START == frozenset()


def test_a_client_does_not_load_the_server_that_it_talks_to() -> None:
    loaded = loaded_by("import knightcode.client")
    ours = {name.split(".")[1] for name in loaded if name.startswith("knightcode.")}
    assert ours == {"client", "app_server", "failures"}
    assert not any(name.startswith(("knightcode.app_server.host", "knightcode.threads")) for name in loaded)


def test_the_protocol_can_be_used_without_the_product() -> None:
    loaded = loaded_by("import knightcode_protocol.methods, knightcode_protocol.notifications")
    assert not any(name == "knightcode" or name.startswith("knightcode.") for name in loaded)
    assert third_party(loaded) <= BEFORE_THE_FIRST_ANSWER
