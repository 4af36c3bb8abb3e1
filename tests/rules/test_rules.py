"""Every rule of ending things is proved by a test or says why not, and the check itself can be trusted."""

import pytest

from tests.promises.manifest import Proof, Stray, claims_of
from tests.rules.report import report
from tests.rules.rules import MARKER, Rule, RuleBook, parse_rules, read_book, with_tests

WHERE = "tests/test_x.py:1"
ONE = "tests/test_x.py::test_one"
TWO = "tests/test_y.py::test_two"

PAGE = f"""
# Rules

| Rule | What holds | Proved by |
|---|---|---|
| S1 | It ends \\| at once. | `{ONE}` |
| S2 | So does this. | open: a part |
| S3 | And that. | |
"""


def proof(rule_id: str, test: str = ONE) -> Proof:
    return Proof(rule_id, WHERE, test)


def book(
    *rules: Rule, claims: tuple[Proof | Stray, ...] = (), numbers: tuple[str, ...] = ("S1",)
) -> RuleBook:
    return RuleBook(rules, claims, numbers)


def test_every_rule_names_the_tests_that_prove_it_or_what_it_waits_for() -> None:
    faults = read_book().faults()
    assert not faults, "python -m tests.rules.report writes the tests' names:\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        pytest.param(
            book(Rule("S1", "x", "")),
            "S1 names no test and does not say why it is open",
            id="forgotten",
        ),
        pytest.param(
            book(Rule("S1", "x", "open:")),
            "S1 names no test and does not say why it is open",
            id="no reason",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), claims=(proof("S1"),)),
            f"S1 is open, but {ONE} proves it",
            id="open with a test",
        ),
        pytest.param(
            book(Rule("S1", "x", f"`{ONE}`")),
            f"S1 names {ONE}, which has no marker of it",
            id="test without a marker, or no such test",
        ),
        pytest.param(
            book(Rule("S1", "x", f"`{ONE}`"), claims=(proof("S1"), proof("S1", TWO))),
            f"S1 does not name {TWO}, which proves it",
            id="test that is missing",
        ),
        pytest.param(
            book(Rule("S1", "x", f"`{ONE}`"), claims=(Proof("S1", WHERE, ONE, excused=True),)),
            f"S1 names {ONE}, which has no marker of it",
            id="only a skipped test",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), claims=(proof("S9"),)),
            f"{WHERE} names S9, but there is no such rule",
            id="marker with an unknown number",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), Rule("S9", "x", "open: a part")),
            "S9 has a row, but there is no such rule",
            id="row with an unknown number",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), Rule("S1", "y", "open: a part")),
            "S1 has two rows",
            id="two rows",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), numbers=("S1", "S2")),
            "S2 has no row",
            id="no row",
        ),
        pytest.param(
            book(Rule("S1", "x", "open: a part"), claims=(Stray(WHERE, "the marker is not on a test"),)),
            f"{WHERE}: the marker is not on a test",
            id="stray marker",
        ),
    ],
)
def test_each_kind_of_fault_is_found(found: RuleBook, fault: str) -> None:
    assert found.faults() == [fault]


def test_a_proved_and_an_open_rule_are_no_fault() -> None:
    rules = (Rule("S1", "x", f"`{ONE}`<br>`{TWO}`"), Rule("S2", "y", "open: a part"))
    both = (proof("S1", TWO), proof("S1"))
    assert book(*rules, claims=both, numbers=("S1", "S2")).faults() == []


def test_rows_are_read_with_their_tests_and_their_reasons() -> None:
    rules = parse_rules(PAGE)
    assert rules == [
        Rule("S1", "It ends \\| at once.", f"`{ONE}`"),
        Rule("S2", "So does this.", "open: a part"),
        Rule("S3", "And that.", ""),
    ]
    assert [(rule.tests, rule.is_open) for rule in rules] == [((ONE,), False), ((), True), ((), False)]


def test_the_page_is_written_from_the_markers_and_keeps_everything_else() -> None:
    written = with_tests(PAGE, {"S1": (ONE, TWO), "S2": (TWO,)})
    assert written == PAGE.replace(f"`{ONE}`", f"`{ONE}`<br>`{TWO}`").replace(
        "open: a part", f"`{TWO}`"
    ).replace("| |\n", "|  |\n")
    assert with_tests(written, {"S1": (ONE, TWO), "S2": (TWO,)}) == written


def test_a_rule_that_loses_its_tests_does_not_become_open_by_itself() -> None:
    rules = parse_rules(with_tests(PAGE, {}))
    assert [(rule.cell, rule.is_open) for rule in rules] == [("", False), ("open: a part", True), ("", False)]


def test_one_test_may_prove_several_rules_beside_a_promise() -> None:
    source = "@pytest.mark.proves('A-001')\n@pytest.mark.rule('S1', 'S2')\nasync def test_x() -> None: ..."
    assert claims_of(source, "f.py", MARKER) == [
        Proof("S1", "f.py:2", "f.py::test_x"),
        Proof("S2", "f.py:2", "f.py::test_x"),
    ]


def test_the_report_counts_and_names_the_faults() -> None:
    found = book(
        Rule("S1", "x", f"`{ONE}`"), Rule("S2", "y", ""), claims=(proof("S1"),), numbers=("S1", "S2")
    )
    assert report(found) == ("1 of 2 rules are proved\nS2 names no test and does not say why it is open")
