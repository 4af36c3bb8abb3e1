"""What is logged can be logged: no field of a call has a name that log records use themselves."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parent.parent / "knightcode"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def fields_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of each field that is written out in the `extra` of a logging call."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            for keyword in node.keywords:
                if keyword.arg == "extra":
                    yield from _keys(keyword.value)


def _keys(extra: ast.expr) -> Iterator[tuple[int, str]]:
    for node in ast.walk(extra):
        if isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.lineno, key.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            yield from ((node.lineno, keyword.arg) for keyword in node.keywords if keyword.arg)


def test_no_log_field_takes_a_name_of_the_log_record() -> None:
    """Such a call raises KeyError when it is made, which is when something has gone wrong already."""
    fields = [
        (f"{path.relative_to(PRODUCT.parent)}:{line}", name)
        for path in sorted(PRODUCT.rglob("*.py"))
        for line, name in fields_of(path.read_text(encoding="utf-8"))
    ]
    assert [(where, name) for where, name in fields if name in TAKEN] == []
    assert fields, "no call was found, so this test looks at nothing"


@pytest.mark.parametrize("name", ["message", "name", "args", "thread", "process", "module", "asctime"])
def test_a_record_refuses_each_name_that_is_looked_for(name: str) -> None:
    assert name in TAKEN
    with pytest.raises(KeyError, match="overwrite"):
        logging.getLogger("tests").makeRecord("n", 20, "f", 1, "event", (), None, extra={name: 1})


@pytest.mark.parametrize(
    "call",
    [
        "log.info('e', extra={'thread': 1})",
        "logging.getLogger().error('e', exc_info=e, extra={**more, 'thread': 1})",
        "self.log.exception('e', extra=dict(thread=1))",
        "log.log(20, 'e', extra={'ok': 1} | {'thread': 2})",
    ],
)
def test_a_taken_name_is_found_however_the_call_is_written(call: str) -> None:
    assert (1, "thread") in list(fields_of(call))
