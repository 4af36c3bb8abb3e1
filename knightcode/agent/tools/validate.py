"""Arguments against a tool's schema, forgiving what models commonly get wrong.

Understood: `type` (one or several), `properties`, `required`, `additionalProperties`, `items`,
`enum`, `const`, `anyOf`, `oneOf`, and the bounds of numbers, lengths and counts. Other keywords
allow everything, so a richer schema is checked in part rather than refused.

Source: agent loop, "Tool calls".
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from knightcode.agent.tools.base import ToolError
from knightcode.agent.truncation import format_size, truncate_head, utf8_size
from knightcode.text import clean

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_EMPTY: dict[str, Callable[[], Any]] = {
    "string": str,
    "number": int,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_ARTICLES = {"array": "an array", "integer": "an integer", "object": "an object"}
_DROP = object()


def validate(schema: Mapping[str, Any], arguments: object, *, tool: str = "the tool") -> dict[str, Any]:
    """The arguments as the schema wants them; `arguments` itself is left as it is.

    Numeric text and numbers, `"true"` and `"false"`, 0 and 1 are turned into each other's types where
    the schema asks for it. A null that is not allowed becomes the empty value of its type when the
    property is required and is dropped when it is not.

    Raises:
        ToolError: names each path with its problem, then the arguments as received.
    """
    check = _Check()
    value = check.value(schema, arguments, "")
    if not check.problems and not isinstance(value, dict):
        check.report("", "must be an object")
    if check.problems:
        problems = "\n".join(f"- {path or 'arguments'}: {problem}" for path, problem in check.problems)
        raise ToolError(
            f"The arguments do not fit the schema of {tool}:\n{problems}\n\n"
            f"Received arguments:\n{_received(arguments)}"
        )
    result: dict[str, Any] = value
    return result


def _received(arguments: object) -> str:
    try:
        text = clean(json.dumps(arguments, ensure_ascii=False, indent=2, default=repr))
    except RecursionError:
        return "[nested too deeply to be shown]"
    cut = truncate_head(text)
    if not cut.truncated:
        return text
    return f"{cut.content}\n[cut: {format_size(utf8_size(text))} in all]"


@attrs.define(eq=False)
class _Check:
    """One pass over a value: returns it coerced and collects what does not fit."""

    problems: list[tuple[str, str]] = attrs.field(factory=list)
    coerce: bool = True

    def report(self, path: str, problem: str) -> None:
        self.problems.append((path, problem))

    def value(self, schema: object, value: Any, path: str) -> Any:
        if schema is False:
            self.report(path, "is not allowed")
        if not isinstance(schema, Mapping):
            return value
        for keyword in ("anyOf", "oneOf"):
            variants = schema.get(keyword)
            if isinstance(variants, list) and variants:
                value = self._first_fit(variants, value, path)
        types = schema.get("type")
        if isinstance(types, list) and types:
            return self._first_fit([{**schema, "type": name} for name in types], value, path)
        if isinstance(types, str):
            fits, value = self._typed(types, value)
            if not fits:
                self.report(path, f"must be {_ARTICLES.get(types, 'a ' + types)}, got {_kind(value)}")
                return value
        self._bounds(schema, value, path)
        if isinstance(value, dict):
            value = self._object(schema, value, path)
        elif isinstance(value, list):
            items = schema.get("items")
            value = [self.value(items, item, f"{path}[{index}]") for index, item in enumerate(value)]
        return value

    def _first_fit(self, variants: list[Any], value: Any, path: str) -> Any:
        """The value under the first variant that takes it as it is, else the first that takes it coerced."""
        first: _Check | None = None
        for coerce in (False, True) if self.coerce else (False,):
            for variant in variants:
                trial = _Check(coerce=coerce)
                result = trial.value(variant, value, path)
                if not trial.problems:
                    return result
                first = first or trial
        if first is not None and len(variants) == 1:
            self.problems += first.problems
        else:
            names = sorted(
                {str(variant.get("type", "?")) for variant in variants if isinstance(variant, Mapping)}
            )
            self.report(path, f"fits none of the allowed forms ({', '.join(names)})")
        return value

    def _typed(self, name: str, value: Any) -> tuple[bool, Any]:
        if _is(name, value):
            return True, int(value) if name == "integer" else value
        if not self.coerce or name not in _EMPTY:
            return False, value
        return _coerced(name, value)

    def _object(self, schema: Mapping[str, Any], value: dict[str, Any], path: str) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        result: dict[str, Any] = {}
        for name, item in value.items():
            where = f"{path}.{name}" if path else name
            if name not in properties:
                rest = schema.get("additionalProperties", True)
                result[name] = self.value(rest, item, where)
                continue
            if item is None and self.coerce:
                item = self._null(properties[name], name in required)  # noqa: PLW2901
            if item is not _DROP:
                result[name] = self.value(properties[name], item, where)
        for name in required:
            if name not in value:
                self.report(f"{path}.{name}" if path else name, "is required but missing")
        return result

    def _null(self, schema: object, required: bool) -> Any:
        """What a null stands for: itself where the schema allows it."""
        trial = _Check(coerce=False)
        trial.value(schema, None, "")
        if not trial.problems:
            return None
        if not required:
            return _DROP
        name = schema.get("type") if isinstance(schema, Mapping) else None
        return _EMPTY[name]() if isinstance(name, str) and name in _EMPTY else None

    def _bounds(self, schema: Mapping[str, Any], value: Any, path: str) -> None:
        choices = schema.get("enum")
        if isinstance(choices, list) and not any(_same(value, choice) for choice in choices):
            self.report(path, f"must be one of {json.dumps(choices, ensure_ascii=False)}")
        if "const" in schema and not _same(value, schema["const"]):
            self.report(path, f"must be {json.dumps(schema['const'], ensure_ascii=False)}")
        for keyword, measured, fits, words in _BOUNDS:
            bound, size = schema.get(keyword), measured(value)
            if size is not None and isinstance(bound, int | float) and not fits(size, bound):
                self.report(path, words.format(bound))


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _is(name: str, value: object) -> bool:
    return name not in _KINDS or _KINDS[name](value)


def _coerced(name: str, value: Any) -> tuple[bool, Any]:
    """Whether `value` can be meant as a `name`, and as which value."""
    if value is None:
        return True, _EMPTY[name]()
    if name in ("number", "integer") and isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = _parsed_number(value.strip())
        if _is(name, number):
            return True, int(number) if name == "integer" else number
    if name == "string" and _is_number(value):
        return True, json.dumps(value)
    if name == "boolean":
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return True, value.strip().lower() == "true"
        if _is_number(value) and value in (0, 1):
            return True, bool(value)
    return False, value


def _parsed_number(text: str) -> float:
    try:
        return int(text)
    except ValueError:  # a fraction, an exponent, or more digits than Python converts
        return float(text)


def _same(value: object, choice: object) -> bool:
    """JSON equality: `True` is not 1."""
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _kind(value: object) -> str:
    return next((name for name, fits in _KINDS.items() if fits(value)), type(value).__name__)


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return len(value) if isinstance(value, list) else None


def _amount(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


_BOUNDS: tuple[tuple[str, Callable[[object], float | None], Callable[[float, float], bool], str], ...] = (
    ("minItems", _count, lambda size, bound: size >= bound, "must hold at least {} items"),
    ("maxItems", _count, lambda size, bound: size <= bound, "must hold at most {} items"),
    ("minLength", _length, lambda size, bound: size >= bound, "must be at least {} characters long"),
    ("maxLength", _length, lambda size, bound: size <= bound, "must be at most {} characters long"),
    ("minimum", _amount, lambda size, bound: size >= bound, "must be at least {}"),
    ("maximum", _amount, lambda size, bound: size <= bound, "must be at most {}"),
    ("exclusiveMinimum", _amount, lambda size, bound: size > bound, "must be more than {}"),
    ("exclusiveMaximum", _amount, lambda size, bound: size < bound, "must be less than {}"),
)
