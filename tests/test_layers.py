"""Imports point down only, as docs/architecture.md draws it, and every package stays as small as it says.

The table below is the drawing. The longest row that names a module is its row: it may import itself,
what stands in the row, and nothing else. A new import between layers is a change of this table.

Source: architecture, "Packages", "Dependencies".
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import pytest

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = (ROOT / "knightcode", ROOT / "protocol" / "knightcode_protocol")
OURS: Final = ("knightcode", "knightcode_protocol")

VOCABULARY: Final = (
    "knightcode.clock",
    "knightcode.events",
    "knightcode.failures",
    "knightcode.messages",
    "knightcode.regular_file",
    "knightcode.text",
)
"""Words that every layer speaks: values and pure functions."""


@attrs.frozen
class Row:
    """What one package may import, beside the standard library and itself.

    Attributes:
        always: modules, or packages with all in them, anywhere in its files.
        lazily: inside a function, or for the type checker alone.
    """

    always: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()


_DOMAIN: Final = ("attrs", "trio", *VOCABULARY)
_HANDLED: Final = ("knightcode.threads", "knightcode.models.model", "knightcode_protocol")

TABLE: Final[Mapping[str, Row]] = {
    # the contract, and the words of the product
    "knightcode_protocol": Row(always=("msgspec",)),
    "knightcode.clock": Row(),
    "knightcode.failures": Row(),
    "knightcode.text": Row(),
    "knightcode.regular_file": Row(),
    "knightcode.messages": Row(always=("msgspec",)),
    "knightcode.events": Row(always=("msgspec", "knightcode.messages")),
    # the bottom: processes, files, settings, providers
    "knightcode.processes": Row(always=("attrs", "trio")),
    "knightcode.config": Row(always=("attrs", "msgspec", *VOCABULARY)),
    "knightcode.sessions": Row(always=("attrs", "msgspec", "knightcode.config.paths", *VOCABULARY)),
    "knightcode.models": Row(always=("msgspec", "knightcode.processes", *_DOMAIN)),
    "knightcode.models.http": Row(
        always=("httpcore2", "knightcode.models", "knightcode.processes", *_DOMAIN)
    ),
    # the run of one turn, and who may say no to a call
    "knightcode.agent": Row(
        always=("msgspec", "knightcode.models", "knightcode.processes", "knightcode.sessions", *_DOMAIN)
    ),
    "knightcode.gates": Row(always=("attrs", "knightcode.agent.tools.base", *VOCABULARY)),
    # conversations
    "knightcode.threads": Row(
        always=(
            "msgspec",  # cursors, which are opaque to everybody else
            "knightcode.agent",
            "knightcode.config",
            "knightcode.gates",
            "knightcode.models",
            "knightcode.processes",
            "knightcode.sessions",
            *_DOMAIN,
        )
    ),
    # the app server; its parts from the bytes upwards
    "knightcode.app_server": Row(),
    "knightcode.app_server.core": Row(always=("msgspec", "knightcode_protocol")),
    "knightcode.app_server.transport": Row(always=("trio", "knightcode.app_server.core.outbox")),
    "knightcode.app_server.transport.descriptors": Row(),
    "knightcode.app_server.wire": Row(
        always=("msgspec", "knightcode.agent.tools.changes", *_HANDLED, *VOCABULARY)
    ),
    "knightcode.app_server.connection": Row(
        always=("msgspec", "knightcode.app_server.core", "knightcode.app_server.wire", *_HANDLED, *_DOMAIN)
    ),
    "knightcode.app_server.handlers": Row(
        always=(
            "msgspec",
            "knightcode.app_server.connection",
            "knightcode.app_server.core.pending",
            "knightcode.app_server.wire",
            *_HANDLED,
            *VOCABULARY,
        )
    ),
    "knightcode.app_server.shutdown": Row(always=("attrs", "trio")),
    "knightcode.app_server.parent": Row(always=("trio", "knightcode.processes.exits")),
    "knightcode.app_server.logs": Row(always=("msgspec", "knightcode.app_server.core.surrogates")),
    # the two that know all parts: what is shared by connections, and what is one process
    "knightcode.app_server.host": Row(
        always=(
            "knightcode.agent.compaction",
            "knightcode.agent.retry",
            "knightcode.agent.tools.builtin",
            "knightcode.app_server",
            "knightcode.config",
            "knightcode.models",
            "knightcode.threads",
            *_DOMAIN,
        )
    ),
    "knightcode.app_server.serve": Row(
        always=("knightcode.processes.children", "knightcode.app_server", *_DOMAIN)
    ),
    "knightcode.app_server.main": Row(
        always=("knightcode.app_server.core", "knightcode.app_server.transport.descriptors"),
        lazily=("trio", "knightcode.app_server"),
    ),
    # who talks to a server
    "knightcode.client": Row(
        always=("attrs", "msgspec", "trio", "knightcode.failures", "knightcode_protocol"),
        lazily=("knightcode.app_server",),
    ),
    "knightcode.client.subprocess": Row(
        always=("attrs", "trio", "knightcode.client", "knightcode.app_server.core.framing")
    ),
    "knightcode.demo": Row(
        always=("attrs", "trio", "knightcode.client", "knightcode_protocol", *VOCABULARY),
    ),
    "knightcode.cli": Row(lazily=("knightcode.app_server.main", "knightcode.demo.main")),
    "knightcode.__main__": Row(always=("knightcode.cli",)),
    "knightcode": Row(),
}

LAYERS: Final = (
    {"cli"},
    {"demo"},
    {"client"},
    {"app_server"},
    {"threads"},
    {"gates"},
    {"agent"},
    {"models", "sessions"},
    {"config", "processes"},
    {"events", "failures", "clock", "text", "regular_file"},
    {"messages"},
)
"""The packages from top to bottom; those that share a place do not know each other."""


@attrs.frozen
class Import:
    """One import statement's target, and where it stands."""

    module: str
    where: str
    lazy: bool


def imports_of(source: str, name: str, known: frozenset[str]) -> list[Import]:
    """Every import in one file's source, each target of a statement once.

    Args:
        name: the file's name in the result.
        known: all modules of ours, to tell `from package import module` from `from module import name`.
    """
    return list(dict.fromkeys(_walk(ast.parse(source, name), name, known, lazy=False)))


def _walk(node: ast.AST, name: str, known: frozenset[str], *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, f"{name}:{child.lineno}", lazy)
        elif isinstance(child, ast.ImportFrom):
            base = "." * child.level + (child.module or "")
            for alias in child.names:
                target = f"{base}.{alias.name}"
                yield Import(target if target in known else base, f"{name}:{child.lineno}", lazy)
        else:
            inner = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and _is_type_checking(child.test):
                inner = True
            yield from _walk(child, name, known, lazy=inner)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def row_of(module: str) -> tuple[str, Row]:
    """The longest row that names the module or a package around it."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in TABLE and (name != "knightcode" or module == name):
            return name, TABLE[name]
    raise LookupError(f"{module} has no row; say in tests/test_layers.py what it may import")


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def fault_of(importer: str, imported: Import) -> str | None:
    """What is wrong with an import, None if it is as drawn."""
    if imported.module.split(".")[0] in sys.stdlib_module_names or imported.module == "knightcode":
        return None
    if imported.module.startswith("."):
        return f"{imported.where}: relative import; write the whole name"
    name, row = row_of(importer)
    allowed = (name, *row.always, *row.lazily) if imported.lazy else (name, *row.always)
    if is_within(imported.module, allowed):
        return None
    kind = "must not import" if not is_within(imported.module, row.lazily) else "may only lazily import"
    return f"{imported.where}: {name} {kind} {imported.module}"


def read_imports() -> dict[str, list[Import]]:
    """The imports of every module of the product and the protocol."""
    files = {
        ".".join(path.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for source in SOURCES
        for path in sorted(source.rglob("*.py"))
    }
    known = frozenset(files)
    return {
        module: imports_of(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)), known)
        for module, path in files.items()
    }


def test_every_import_between_layers_is_drawn() -> None:
    faults = [
        fault
        for module, imports in read_imports().items()
        for imported in imports
        if (fault := fault_of(module, imported)) is not None
    ]
    assert not faults, "\n".join(faults)


def test_imports_between_packages_point_down() -> None:
    height = {name: -place for place, layer in enumerate(LAYERS) for name in layer}
    faults = [
        f"{imported.where}: {module} imports {imported.module}"
        for module, imports in read_imports().items()
        for imported in imports
        if module.startswith("knightcode.") and imported.module.startswith("knightcode.")
        for own, other in [(module.split(".")[1], imported.module.split(".")[1])]
        if own not in (other, "__main__") and height[own] <= height[other]
    ]
    assert not faults, "\n".join(faults)


def test_only_one_module_knows_the_http_library() -> None:
    knows = {
        module
        for module, imports in read_imports().items()
        for imported in imports
        if imported.module.split(".")[0] in ("httpx2", "httpcore2", "httpx", "httpcore", "h11", "anyio")
    }
    assert knows == {"knightcode.models.http"}


def test_every_row_of_the_table_names_something_that_exists() -> None:
    modules = set(read_imports())
    named = {*TABLE, *(name for row in TABLE.values() for name in (*row.always, *row.lazily))}
    missing = {name for name in named if name.split(".")[0] in OURS and name not in modules}
    assert missing == set()


@pytest.mark.parametrize(
    ("importer", "source", "fault"),
    [
        pytest.param(
            "knightcode.models.wire",
            "from knightcode.threads.thread import Thread",
            "f.py:1: knightcode.models must not import knightcode.threads.thread",
            id="upwards",
        ),
        pytest.param(
            "knightcode.app_server.core.pending",
            "import trio",
            "f.py:1: knightcode.app_server.core must not import trio",
            id="a library in a pure package",
        ),
        pytest.param(
            "knightcode.cli",
            "from knightcode.demo.main import main",
            "f.py:1: knightcode.cli may only lazily import knightcode.demo.main",
            id="too early",
        ),
        pytest.param(
            "knightcode.agent.loop",
            "def f():\n    import knightcode.gates.approvals",
            "f.py:2: knightcode.agent must not import knightcode.gates.approvals",
            id="hidden in a function",
        ),
        pytest.param(
            "knightcode.agent.loop",
            "from knightcode.threads import thread",
            "f.py:1: knightcode.agent must not import knightcode.threads",
            id="a module from its package",
        ),
        pytest.param(
            "knightcode.agent.loop",
            "from .tools import base",
            "f.py:1: relative import; write the whole name",
            id="relative",
        ),
    ],
)
def test_a_wrong_import_is_found(importer: str, source: str, fault: str) -> None:
    (imported,) = imports_of(source, "f.py", frozenset())
    assert fault_of(importer, imported) == fault


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("knightcode.cli", "def run():\n    from knightcode.demo.main import main"),
        (
            "knightcode.client.in_process",
            "if TYPE_CHECKING:\n    from knightcode.app_server.host import Host",
        ),
        ("knightcode.threads.thread", "from knightcode.agent.hooks import Hooks"),
        ("knightcode.app_server.core.pending", "from collections import deque"),
        ("knightcode.models.http", "import httpcore2"),
    ],
)
def test_a_drawn_import_is_no_fault(importer: str, source: str) -> None:
    (imported,) = imports_of(source, "f.py", frozenset())
    assert fault_of(importer, imported) is None


def test_a_package_without_a_row_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"knightcode\.new has no row"):
        row_of("knightcode.new")
