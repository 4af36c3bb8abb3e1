"""Tool-call arguments: strict JSON, and what models write instead."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.models.arguments import parse_arguments

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)


@given(objects)
def test_strict_json_means_what_it_says(value: dict[str, Any]) -> None:
    assert parse_arguments(msgspec.json.encode(value).decode()) == value


@given(objects, st.integers(0, 200))
def test_any_prefix_of_arguments_gives_an_object_with_their_first_members(
    value: dict[str, Any], cut: int
) -> None:
    text = msgspec.json.encode(value).decode()
    found = parse_arguments(text[:cut])
    assert list(found) == list(value)[: len(found)]


@given(st.text(alphabet='{}[]":,\\untrfalse0123456789.-eE \n', max_size=60))
def test_no_text_raises_and_every_result_can_be_written_again(text: str) -> None:
    msgspec.json.encode(parse_arguments(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("[1]", {}),
        ("null", {}),
        ("sorry, no", {}),
        ('{"a":1} and more', {"a": 1}),
        ('{"a":1, b:2}', {"a": 1}),
        ('{"a":1,}', {"a": 1}),
        ('{"a":[1,2,],"b":1}', {"a": [1, 2], "b": 1}),
        ('{"a', {}),
        ('{"a":', {}),
        ('{"a":tru', {}),
        ('{"a":"text', {"a": "text"}),
        ('{"a":"cut \\', {"a": "cut "}),
        ('{"a":"cut \\u00', {"a": "cut "}),
        ('{"a":{"b":[1,{"c":"d', {"a": {"b": [1, {"c": "d"}]}}),
        ('{"a":"one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"path":"C:\\Users\\q"}', {"path": "C:\\Users\\q"}),
        ('{"path":"C:\\users"}', {"path": "C:\\users"}),
        ('{"a":"\\ud83d\\ude00 \\q"}', {"a": "😀 \\q"}),
        ('{"a":1e999}', {"a": None}),
        ('{"a":' + "9" * 5000 + "}", {"a": None}),
    ],
)
def test_broken_arguments_keep_what_can_be_made_out(text: str, expected: dict[str, Any]) -> None:
    """Agent loop, "Streaming a reply"."""
    assert parse_arguments(text) == expected


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert parse_arguments('{"a":"\\ud83d","\\udc00":1}') == {"a": "\ufffd", "\ufffd": 1}


def test_arguments_nested_beyond_any_schema_end_where_the_limit_is() -> None:
    found = parse_arguments('{"a":' + "[" * 100_000)
    assert list(found) == ["a"]
