"""Source: agent loop, "Tool calls"."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.tools.base import ToolError
from knightcode.agent.tools.builtin import builtin_tools
from knightcode.agent.tools.validate import validate

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def one(schema: dict[str, Any], value: object, *, required: bool = True) -> dict[str, Any]:
    """The arguments `{"x": value}` against a schema of one property."""
    return validate(
        {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}, {"x": value}
    )


def problems(schema: dict[str, Any], arguments: object) -> list[str]:
    with pytest.raises(ToolError) as caught:
        validate(schema, arguments)
    return [line for line in str(caught.value).split("\n\nReceived")[0].splitlines() if line.startswith("- ")]


@pytest.mark.parametrize(
    ("kind", "given_value", "meant"),
    [
        ("number", "5", 5),
        ("number", " -1.5e2 ", -150.0),
        ("integer", "7", 7),
        ("integer", 7.0, 7),
        ("integer", "7.0", 7),
        ("string", 5, "5"),
        ("string", 1.5, "1.5"),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", 1, True),
        ("boolean", 0, False),
        ("string", None, ""),
        ("number", None, 0),
        ("integer", None, 0),
        ("boolean", None, False),
        ("array", None, []),
        ("object", None, {}),
    ],
)
def test_a_value_that_can_be_meant_is_taken(kind: str, given_value: object, meant: object) -> None:
    value = one({"type": kind}, given_value)["x"]
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("number", "five", "- x: must be a number, got string"),
        ("number", "", "- x: must be a number, got string"),
        ("number", "nan", "- x: must be a number, got string"),
        ("number", "1e999", "- x: must be a number, got string"),
        ("number", True, "- x: must be a number, got boolean"),
        ("integer", 1.5, "- x: must be an integer, got number"),
        ("string", True, "- x: must be a string, got boolean"),
        ("string", [], "- x: must be a string, got array"),
        ("boolean", 2, "- x: must be a boolean, got integer"),
        ("boolean", "yes", "- x: must be a boolean, got string"),
        ("array", "a", "- x: must be an array, got string"),
        ("object", [], "- x: must be an object, got array"),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: str, value: object, problem: str) -> None:
    schema = {"type": "object", "properties": {"x": {"type": kind}}}
    assert problems(schema, {"x": value}) == [problem]


def test_a_null_of_an_optional_property_is_dropped_unless_it_is_allowed() -> None:
    assert one({"type": "string"}, None, required=False) == {}
    assert one({"type": ["string", "null"]}, None, required=False) == {"x": None}
    assert one({"anyOf": [{"type": "string"}, {"type": "null"}]}, None) == {"x": None}
    assert one({}, None) == {"x": None}


def test_every_problem_is_told_with_its_path_and_the_received_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {"oldText": {"type": "string"}},
                    "required": ["oldText"],
                },
            },
        },
        "required": ["path", "edits"],
    }
    received = {"edits": [{"oldText": "a"}, {"newText": "ü"}, 5]}
    with pytest.raises(ToolError) as caught:
        validate(schema, received, tool="edit")
    assert str(caught.value) == (
        "The arguments do not fit the schema of edit:\n"
        "- edits[1].oldText: is required but missing\n"
        "- edits[2]: must be an object, got integer\n"
        "- path: is required but missing\n"
        "\n"
        "Received arguments:\n" + json.dumps(received, ensure_ascii=False, indent=2)
    )
    assert problems(schema, {"path": "a", "edits": []}) == ["- edits: must hold at least 1 items"]


@pytest.mark.parametrize("arguments", [None, [], "x", 5])
def test_arguments_that_are_no_object_are_refused(arguments: object) -> None:
    assert (
        len(problems({"type": "object", "properties": {}}, arguments) if arguments is not None else [""]) == 1
    )
    assert problems({}, arguments) == ["- arguments: must be an object"]


def test_enumerated_values_are_compared_after_coercion_and_by_type() -> None:
    assert one({"type": "string", "enum": ["1", "2"]}, 1) == {"x": "1"}
    schema = {"type": "object", "properties": {"x": {"enum": ["a", 1]}}}
    assert problems(schema, {"x": True}) == ['- x: must be one of ["a", 1]']
    assert problems({"properties": {"x": {"const": "a"}}}, {"x": "b"}) == ['- x: must be "a"']


def test_of_several_forms_the_one_that_fits_as_it_is_wins() -> None:
    forms = {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert one(forms, "5") == {"x": "5"}
    assert one({"oneOf": [{"type": "boolean"}, {"type": "number"}]}, "5") == {"x": 5}
    assert one({"type": ["integer", "string"]}, "5") == {"x": "5"}
    schema = {"type": "object", "properties": {"x": forms}}
    assert problems(schema, {"x": []}) == ["- x: fits none of the allowed forms (number, string)"]


def test_unknown_properties_pass_unless_the_schema_forbids_them() -> None:
    assert validate({"type": "object", "properties": {}}, {"y": None}) == {"y": None}
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert problems(closed, {"y": 1}) == ["- y: is not allowed"]
    typed = {"type": "object", "additionalProperties": {"type": "number"}}
    assert validate(typed, {"y": "1"}) == {"y": 1}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "maxItems": 1}, [1, 2]),
        ({"type": "string", "minLength": 2}, "a"),
        ({"type": "string", "maxLength": 1}, "ab"),
        ({"type": "number", "minimum": 1}, 0),
        ({"type": "number", "maximum": 1}, 2),
        ({"type": "number", "exclusiveMinimum": 1}, 1),
        ({"type": "number", "exclusiveMaximum": 1}, 1),
    ],
)
def test_bounds_are_checked(schema: dict[str, Any], value: object) -> None:
    assert len(problems({"type": "object", "properties": {"x": schema}}, {"x": value})) == 1


def test_huge_arguments_are_cut_in_the_message() -> None:
    with pytest.raises(ToolError) as caught:
        validate({"required": ["y"]}, {"x": "\n".join(["line"] * 100_000), "z": ["long"] * 100_000})
    assert len(str(caught.value)) < 60_000


def test_arguments_that_cannot_be_written_as_json_are_refused_all_the_same() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ToolError, match="nested too deeply to be shown"):
        validate({"required": ["y"]}, {"x": deep})
    with pytest.raises(ToolError, match="\ufffd"):
        validate({"required": ["y"]}, {"x": "\ud83d"})


def test_the_arguments_given_are_left_as_they_are() -> None:
    arguments = {"x": "5", "y": [None]}
    schema = {"properties": {"x": {"type": "number"}, "y": {"items": {"type": "string"}}}}
    assert validate(schema, arguments) == {"x": 5, "y": [""]}
    assert arguments == {"x": "5", "y": [None]}


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"properties": []}, {"required": 5}, {"anyOf": []}])
def test_a_schema_that_is_not_understood_allows_everything(schema: dict[str, Any]) -> None:
    assert validate(schema, {"x": 1}) == {"x": 1}


@given(arguments=JSON, tool=st.sampled_from(builtin_tools()))
def test_any_arguments_either_fit_or_are_refused_as_a_tools_error(arguments: object, tool: Any) -> None:
    try:
        once = validate(tool.parameters, arguments)
    except ToolError:
        return
    assert validate(tool.parameters, once) == once
