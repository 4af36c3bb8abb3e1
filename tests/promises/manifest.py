"""The promises, which of them are open, and which are proved by a test's marker.

Markers are read from the source, not from a test run: the answer is the same when only a part of the
suite is run. The readers take the marker's name: tests/rules uses them for another list.
"""

import ast
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parent.parent.parent
PROMISES: Final = ROOT / "protocol" / "promises"
TESTS: Final = ROOT / "tests"

_EXCUSES: Final = frozenset({"skip", "skipif", "xfail"})


@attrs.frozen
class Promise:
    """One observable behaviour."""

    id: str
    section: str
    says: str
    kind: str
    see: str

    @property
    def area(self) -> str:
        """The part of the id before its number."""
        return self.id.rpartition("-")[0]


@attrs.frozen
class Proof:
    """A test that claims to prove something; an excused one proves nothing.

    Attributes:
        id: of the promise, or whatever else the marker counts.
        where: file and line of the marker.
        test: the test, as pytest writes it: `tests/test_x.py::TestMore::test_two`.
        excused: the test is skipped, may skip itself, or is expected to fail.
    """

    id: str
    where: str
    test: str = ""
    excused: bool = False


@attrs.frozen
class Stray:
    """A marker that cannot be read as a test's claim."""

    where: str
    why: str


def read_promises(folder: Path = PROMISES) -> list[Promise]:
    """Every promise, in file order."""
    promises = []
    for path in sorted(folder.glob("promises-*.toml")):
        promises += [Promise(**table) for table in tomllib.loads(path.read_text(encoding="utf-8"))["promise"]]
    return promises


def read_open(folder: Path = PROMISES) -> list[str]:
    """The ids that are listed as not proved yet, in file order."""
    areas = tomllib.loads((folder / "open.toml").read_text(encoding="utf-8"))["open"]
    return [promise_id for ids in areas.values() for promise_id in ids]


def read_proofs(folder: Path = TESTS, marker: str = "proves") -> list[Proof | Stray]:
    """Every marker of one name on the tests under a folder."""
    claims: list[Proof | Stray] = []
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if marker in source:
            claims += claims_of(source, str(path.relative_to(folder.parent)), marker)
    return claims


def claims_of(source: str, name: str, marker: str = "proves") -> list[Proof | Stray]:
    """The markers in one file's source: on test functions, on test classes, in `pytestmark`."""
    tree = ast.parse(source, name)
    tests = list(_tests_in(tree.body, name, _pytestmark(tree.body)))
    claims = [claim for test in tests for claim in _claims(test, name, marker)]
    used = {id(one) for test in tests for one in test.markers}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _marker_name(node) == marker and id(node) not in used:
            claims.append(Stray(f"{name}:{node.lineno}", "the marker is not on a test"))
    return claims


@attrs.frozen
class _Test:
    """A test function with all markers that apply to it."""

    id: str
    node: ast.AST
    markers: list[ast.expr]


def _tests_in(body: Sequence[ast.stmt], place: str, outer: list[ast.expr]) -> Iterator[_Test]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield _Test(f"{place}::{node.name}", node, [*outer, *node.decorator_list])
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            markers = [*outer, *node.decorator_list, *_pytestmark(node.body)]
            yield from _tests_in(node.body, f"{place}::{node.name}", markers)


def _pytestmark(body: Sequence[ast.stmt]) -> list[ast.expr]:
    for node in body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            return list(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return []


def _claims(test: _Test, name: str, marker: str) -> Iterator[Proof | Stray]:
    excused = any(_marker_name(one) in _EXCUSES for one in test.markers) or _excuses_itself(test.node)
    for one in test.markers:
        if _marker_name(one) != marker:
            continue
        where = f"{name}:{one.lineno}"
        arguments = one.args if isinstance(one, ast.Call) else []
        if not arguments:
            yield Stray(where, "the marker names nothing")
        for argument in arguments:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Proof(argument.value, where, test.id, excused)
            else:
                yield Stray(where, "ids must be written out as strings")


def _excuses_itself(test: ast.AST) -> bool:
    """Whether the test's body can give up: `pytest.skip(...)`, `pytest.xfail(...)`."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"skip", "xfail", "importorskip"}
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "pytest"
        for node in ast.walk(test)
    )


def _marker_name(node: ast.expr) -> str | None:
    """`name` of `pytest.mark.name` or `pytest.mark.name(...)`."""
    target = node.func if isinstance(node, ast.Call) else node
    if (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "mark"
    ):
        return target.attr
    return None


@attrs.frozen
class Manifest:
    """All of it together."""

    promises: Sequence[Promise]
    open_ids: Sequence[str]
    claims: Sequence[Proof | Stray]

    @property
    def proved(self) -> frozenset[str]:
        """Ids with at least one test that runs."""
        return frozenset(claim.id for claim in self.claims if isinstance(claim, Proof) and not claim.excused)

    def faults(self) -> list[str]:
        """What is wrong, one sentence each; empty when everything fits together."""
        ids = [promise.id for promise in self.promises]
        known, still_open, proved = frozenset(ids), frozenset(self.open_ids), self.proved
        return [
            *(f"{name} is defined twice" for name in _repeated(ids)),
            *(f"{name} is listed twice in open.toml" for name in _repeated(self.open_ids)),
            *(f"open.toml lists {name}, which no file defines" for name in sorted(still_open - known)),
            *(
                f"{claim.where} proves {claim.id}, which no file defines"
                for claim in self.claims
                if isinstance(claim, Proof) and claim.id not in known
            ),
            *(f"{claim.where}: {claim.why}" for claim in self.claims if isinstance(claim, Stray)),
            *(f"{name} is proved; take it out of open.toml" for name in sorted(still_open & proved)),
            *(
                f"{name} is neither proved by a test that runs nor listed in open.toml"
                for name in sorted(known - proved - still_open)
            ),
        ]


def read_manifest() -> Manifest:
    """The project's own."""
    return Manifest(read_promises(), read_open(), read_proofs())


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})
