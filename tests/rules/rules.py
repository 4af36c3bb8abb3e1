"""The rules of ending things, as their page tells them, and the tests that claim them by a marker.

A rule's row ends in the tests that prove it, or in `open: ` and what it waits for. The page is written
by people but for the tests' names, which come from the markers.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.promises.manifest import ROOT, Proof, Stray, read_proofs

PAGE: Final = ROOT / "docs" / "cancellation-rules.md"
MARKER: Final = "rule"
NUMBERS: Final = tuple(f"S{number}" for number in range(1, 87))
"""The rules that there are."""

_ROW: Final = re.compile(r"^\| (S\w*) \| (.*?) \| ?(.*?) \|$", re.MULTILINE)
_OPEN: Final = re.compile(r"open: \S")
_TEST: Final = re.compile(r"`([^`]+)`")
_SEPARATOR: Final = "<br>"


@attrs.frozen
class Rule:
    """One row of the page.

    Attributes:
        says: what holds.
        cell: the last column as it stands.
    """

    id: str
    says: str
    cell: str

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that the row names, in its order; empty for an open rule."""
        return () if self.is_open else tuple(_TEST.findall(self.cell))

    @property
    def is_open(self) -> bool:
        """Whether the row gives a reason why no test proves the rule."""
        return _OPEN.match(self.cell) is not None


@attrs.frozen
class RuleBook:
    """The page and the markers together."""

    rules: Sequence[Rule]
    claims: Sequence[Proof | Stray]
    numbers: Sequence[str] = NUMBERS

    @property
    def proofs(self) -> Mapping[str, tuple[str, ...]]:
        """The tests that prove a rule, sorted, under its number; tests that may not run are left out."""
        found: dict[str, set[str]] = {}
        for claim in self.claims:
            if isinstance(claim, Proof) and not claim.excused:
                found.setdefault(claim.id, set()).add(claim.test)
        return {rule_id: tuple(sorted(tests)) for rule_id, tests in found.items()}

    def faults(self) -> list[str]:
        """What is wrong, one sentence each; empty when page and markers agree."""
        on_page = [rule.id for rule in self.rules]
        known = frozenset(self.numbers)
        return [
            *(f"{name} has two rows" for name in sorted({one for one in on_page if on_page.count(one) > 1})),
            *(f"{name} has no row" for name in self.numbers if name not in on_page),
            *(f"{name} has a row, but there is no such rule" for name in on_page if name not in known),
            *(f"{claim.where}: {claim.why}" for claim in self.claims if isinstance(claim, Stray)),
            *(
                f"{claim.where} names {claim.id}, but there is no such rule"
                for claim in self.claims
                if isinstance(claim, Proof) and claim.id not in known
            ),
            *(fault for rule in self.rules for fault in self._faults_of(rule)),
        ]

    def _faults_of(self, rule: Rule) -> list[str]:
        proofs = self.proofs.get(rule.id, ())
        if rule.is_open:
            return [f"{rule.id} is open, but {test} proves it" for test in proofs]
        if not rule.tests:
            return [f"{rule.id} names no test and does not say why it is open"]
        return [
            *(
                f"{rule.id} names {test}, which has no marker of it"
                for test in rule.tests
                if test not in proofs
            ),
            *(
                f"{rule.id} does not name {test}, which proves it"
                for test in proofs
                if test not in rule.tests
            ),
        ]


def parse_rules(page: str) -> list[Rule]:
    """The rows of the page's tables, in their order."""
    return [Rule(*row) for row in _ROW.findall(page)]


def with_tests(page: str, proofs: Mapping[str, Sequence[str]]) -> str:
    """The page with the tests of each rule in its last column.

    A rule without tests keeps its reason for being open. If it named tests until now the cell becomes
    empty, which is a fault: somebody has to say why.
    """

    def row(match: re.Match[str]) -> str:
        rule = Rule(*match.groups())
        tests = _SEPARATOR.join(f"`{test}`" for test in proofs.get(rule.id, ()))
        return f"| {rule.id} | {rule.says} | {tests or (rule.cell if rule.is_open else '')} |"

    return _ROW.sub(row, page)


def read_book(page: Path = PAGE) -> RuleBook:
    """The project's own."""
    return RuleBook(parse_rules(page.read_text(encoding="utf-8")), read_proofs(marker=MARKER))
