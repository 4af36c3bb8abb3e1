"""Source: app server, "Method reference", "Limits and client reference"."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from knightcode_protocol.envelope import (
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from knightcode_protocol.errors import ERROR_CODES, MEANINGS
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import CLIENT_NOTIFICATIONS, NOTIFICATION_OF, NOTIFICATIONS
from knightcode_protocol.schema import STORED, build_schema, main, render_schema
from knightcode_protocol.server_requests import SERVER_REQUESTS
from knightcode_protocol.wire import Wire
from tests.protocol import examples

SCHEMA = build_schema()
LINE = Draft202012Validator(SCHEMA)


def validator(part: dict[str, Any], *, closed: bool = False) -> Any:
    """A validator for one part of the schema; `closed` allows no member that is not listed."""
    whole = {"$defs": SCHEMA["$defs"], **part}
    return Draft202012Validator(close(whole) if closed else whole)


def close(value: Any) -> Any:
    if isinstance(value, list):
        return [close(item) for item in value]
    if isinstance(value, dict):
        closed = {key: close(item) for key, item in value.items()}
        return closed | {"additionalProperties": False} if "properties" in value else closed
    return value


def as_json(value: Wire) -> Any:
    return json.loads(msgspec.json.encode(value))


def parts() -> list[tuple[dict[str, Any], Wire]]:
    """Every example with the definition that the tables name for it."""
    found: list[tuple[dict[str, Any], Wire]] = []
    for name, method in SCHEMA["methods"].items():
        found += [(method["params"], value) for value in examples.PARAMS[name]]
        found += [(method["result"], value) for value in examples.RESULTS[name]]
    for value in examples.NOTIFICATIONS:
        found.append((SCHEMA["notifications"][NOTIFICATION_OF[type(value)].name]["params"], value))
    for name, request in SCHEMA["serverRequests"].items():
        found += [(request["params"], value) for value in examples.SERVER_REQUESTS[name]]
        found += [(request["result"], value) for value in examples.ANSWERS[name]]
    return found


@pytest.mark.proves("SCHEMA-003")
def test_the_stored_schema_is_what_the_structs_say() -> None:
    assert STORED.read_text(encoding="utf-8") == render_schema()
    assert main(["--check"]) == 0


def test_checking_fails_on_a_different_or_missing_file_and_writing_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "the schema.json"
    mend = f"write it anew: python -m knightcode_protocol.schema '{path}'\n"
    assert main(["--check", str(path)]) == 1
    assert capsys.readouterr().err == f"{path} does not exist; {mend}"
    path.write_text("{}")
    assert main(["--check", str(path)]) == 1
    assert capsys.readouterr().err == f"{path} is not what the structs say; {mend}"
    assert main([str(path)]) == 0
    assert main(["--check", str(path)]) == 0
    assert path.read_bytes() == STORED.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "wrong"), [(["--check"], "cannot be read: Is a directory"), ([], "cannot be written: Is a")]
)
def test_a_path_that_cannot_be_used_is_an_error_with_its_reason(
    arguments: list[str], wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path} {wrong}")


def test_an_installed_package_writes_the_schema_where_it_is_told_to_and_nowhere_else(tmp_path: Path) -> None:
    site, made = tmp_path / "site-packages", tmp_path / "schema.json"
    shutil.copytree(
        STORED.parent / "knightcode_protocol",
        site / "knightcode_protocol",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-B", "-m", "knightcode_protocol.schema", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    for without in (run(), run("--check")):
        assert without.returncode == 2
        assert "give the path of the schema's file" in without.stderr
    done = run("schema.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert made.read_bytes() == STORED.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["schema.json", "site-packages"]
    assert [path.name for path in site.iterdir()] == ["knightcode_protocol"]


def test_the_schema_is_valid_and_every_reference_leads_to_a_definition() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    references = {
        line.split('"')[3].removeprefix("#/$defs/")
        for line in render_schema().splitlines()
        if '"$ref"' in line
    }
    assert references == set(SCHEMA["$defs"])


def test_the_overview_names_every_row_of_the_tables() -> None:
    assert list(SCHEMA["methods"]) == list(METHODS)
    assert list(SCHEMA["notifications"]) == list(NOTIFICATIONS)
    assert list(SCHEMA["clientNotifications"]) == list(CLIENT_NOTIFICATIONS)
    assert list(SCHEMA["serverRequests"]) == list(SERVER_REQUESTS)
    assert SCHEMA["errors"] == MEANINGS
    assert set(SCHEMA["$defs"]["ErrorObject"]["properties"]["code"]["enum"]) == ERROR_CODES


def test_there_is_an_example_of_every_message() -> None:
    assert set(examples.PARAMS) == set(examples.RESULTS) == set(METHODS)
    assert {type(value) for value in examples.NOTIFICATIONS} == set(NOTIFICATION_OF)
    assert set(examples.SERVER_REQUESTS) == set(examples.ANSWERS) == set(SERVER_REQUESTS)


@pytest.mark.parametrize(("part", "value"), parts(), ids=lambda part: type(part).__name__)
def test_every_message_is_valid_has_no_unlisted_member_and_reads_back(
    part: dict[str, Any], value: Wire
) -> None:
    validator(part, closed=True).validate(as_json(value))
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


def test_every_line_of_either_side_is_one_of_the_schema() -> None:
    lines = [
        encode_error(b"7", "turnInProgress", "busy", {"turnId": "t"}),
        encode_error(b'"x"', "internal", "m"),
    ]
    lines += [encode_request(1, name, value) for name in METHODS for value in examples.PARAMS[name]]
    lines += [encode_result(b"1", value) for name in METHODS for value in examples.RESULTS[name]]
    lines += [NOTIFICATION_OF[type(value)].line(value) for value in examples.NOTIFICATIONS]
    lines += [encode_notification("initialized", {})]
    lines += [
        encode_request("s1", name, value)
        for name in SERVER_REQUESTS
        for value in examples.SERVER_REQUESTS[name]
    ]
    lines += [encode_result(b'"s1"', value) for name in SERVER_REQUESTS for value in examples.ANSWERS[name]]
    lines += [b'{"id":1,"method":"model/list"}\n', b'{"method":"initialized"}\n']
    for line in lines:
        LINE.validate(json.loads(line))


@pytest.mark.parametrize(
    "line",
    [
        {},
        [],
        {"id": None, "method": "model/list"},
        {"id": True, "method": "model/list"},
        {"id": 1, "method": "no/such", "params": {}},
        {"id": 1, "method": "thread/start"},
        {"id": 1, "method": "thread/list", "params": {"limit": 0}},
        {"id": 1, "method": "turn/start", "params": {"threadId": "T", "text": "x", "requestId": ""}},
        {"id": 1, "method": "turn/start", "params": {"threadId": "T", "text": "x", "images": [{}]}},
        {"id": 1, "result": {}, "error": {"code": "internal", "message": "m"}},
        {"id": 1, "error": {"code": "noSuchCode", "message": "m"}},
        {"id": 1, "error": {"message": "m"}},
        {"id": 1, "result": None},
        {"method": "item/removed", "params": {"threadId": "T", "turnId": "t"}},
        {"method": "thread/status/changed", "params": {"threadId": "T", "status": {"type": "busy"}}},
        {"id": 1, "method": "thread/started", "params": {"thread": {}}},
    ],
)
def test_what_is_no_message_is_refused(line: Any) -> None:
    assert not LINE.is_valid(line)


def test_results_and_notifications_never_allow_null_where_a_member_may_be_absent() -> None:
    with_null = {
        name
        for name, definition in SCHEMA["$defs"].items()
        if '"null"' in json.dumps(definition) and not name.endswith("Params")
    }
    assert with_null == {"Capabilities", "ClientInfo", "InputImage", "ToolCallRequestApprovalResult"}
