"""Every promise is either proved by a test or listed as open, and the check itself can be trusted."""

import pytest

from tests.promises.manifest import Manifest, Promise, Proof, Stray, claims_of, read_manifest, read_promises
from tests.promises.report import report

WHERE = "tests/test_x.py:1"


def promise(promise_id: str) -> Promise:
    return Promise(id=promise_id, section="s", says="It does.", kind="behaviour", see="look")


def test_every_promise_is_proved_or_open_and_never_both() -> None:
    faults = read_manifest().faults()
    assert not faults, "\n".join(faults)


def test_every_promise_says_something_and_has_an_id_with_a_number() -> None:
    faulty = [
        each.id
        for each in read_promises()
        if not (
            each.says and each.see and each.section and each.area and each.id.rpartition("-")[2].isdigit()
        )
    ]
    assert faulty == []


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        pytest.param(
            Manifest([promise("A-001")], [], []),
            "A-001 is neither proved by a test that runs nor listed in open.toml",
            id="forgotten",
        ),
        pytest.param(
            Manifest([promise("A-001")], ["A-001"], [Proof("A-001", WHERE)]),
            "A-001 is proved; take it out of open.toml",
            id="both",
        ),
        pytest.param(
            Manifest([promise("A-001")], ["A-001"], [Proof("A-002", WHERE)]),
            "tests/test_x.py:1 proves A-002, which no file defines",
            id="unknown marker",
        ),
        pytest.param(
            Manifest([promise("A-001")], ["A-001", "B-001"], []),
            "open.toml lists B-001, which no file defines",
            id="unknown open id",
        ),
        pytest.param(
            Manifest([promise("A-001"), promise("A-001")], ["A-001"], []),
            "A-001 is defined twice",
            id="duplicate definition",
        ),
        pytest.param(
            Manifest([promise("A-001")], ["A-001", "A-001"], []),
            "A-001 is listed twice in open.toml",
            id="duplicate open id",
        ),
        pytest.param(
            Manifest([promise("A-001")], [], [Proof("A-001", WHERE, excused=True)]),
            "A-001 is neither proved by a test that runs nor listed in open.toml",
            id="only a skipped test",
        ),
        pytest.param(
            Manifest([promise("A-001")], ["A-001"], [Stray(WHERE, "the marker is not on a test")]),
            "tests/test_x.py:1: the marker is not on a test",
            id="stray marker",
        ),
    ],
)
def test_each_kind_of_fault_is_found(manifest: Manifest, fault: str) -> None:
    assert manifest.faults() == [fault]


def test_a_proved_and_an_open_promise_are_no_fault() -> None:
    manifest = Manifest([promise("A-001"), promise("A-002")], ["A-002"], [Proof("A-001", WHERE)])
    assert manifest.faults() == []


def test_markers_on_functions_classes_and_modules_count() -> None:
    source = """
import pytest
pytestmark = [pytest.mark.proves("A-001")]
@pytest.mark.proves("A-002", "A-003")
async def test_one() -> None: ...
class TestMore:
    @pytest.mark.proves("A-004")
    def test_two(self) -> None: ...
"""
    assert claims_of(source, "f.py") == [
        Proof("A-001", "f.py:3", "f.py::test_one"),
        Proof("A-002", "f.py:4", "f.py::test_one"),
        Proof("A-003", "f.py:4", "f.py::test_one"),
        Proof("A-001", "f.py:3", "f.py::TestMore::test_two"),
        Proof("A-004", "f.py:7", "f.py::TestMore::test_two"),
    ]


@pytest.mark.parametrize(
    "test",
    [
        "@pytest.mark.skip\n@pytest.mark.proves('A-001')\ndef test_x() -> None: ...",
        "@pytest.mark.proves('A-001')\n@pytest.mark.skipif(True, reason='r')\ndef test_x() -> None: ...",
        "@pytest.mark.xfail(reason='r')\n@pytest.mark.proves('A-001')\ndef test_x() -> None: ...",
        "@pytest.mark.proves('A-001')\ndef test_x() -> None:\n    pytest.skip('not today')",
        "pytestmark = pytest.mark.skip\n@pytest.mark.proves('A-001')\ndef test_x() -> None: ...",
    ],
)
def test_a_marker_on_a_test_that_may_not_run_proves_nothing(test: str) -> None:
    (claim,) = claims_of(test, "f.py")
    assert isinstance(claim, Proof)
    assert claim.excused


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("@pytest.mark.proves('A-001')\ndef helper() -> None: ...", "the marker is not on a test"),
        ("@pytest.mark.proves()\ndef test_x() -> None: ...", "the marker names nothing"),
        ("@pytest.mark.proves\ndef test_x() -> None: ...", "the marker names nothing"),
        ("@pytest.mark.proves(ID)\ndef test_x() -> None: ...", "ids must be written out as strings"),
    ],
)
def test_a_marker_that_cannot_be_read_is_reported(source: str, why: str) -> None:
    assert claims_of(source, "f.py") == [Stray("f.py:1", why)]


def test_the_report_counts_per_area_and_in_all() -> None:
    manifest = Manifest(
        [promise("A-001"), promise("A-002"), promise("LONG-001")], ["A-002"], [Proof("A-001", WHERE)]
    )
    assert report(manifest) == "A        1 / 2\nLONG     0 / 1\nall      1 / 3"
