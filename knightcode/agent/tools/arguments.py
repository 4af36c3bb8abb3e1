"""Typed access to a call's arguments.

Arguments are validated before hooks see them, but a hook may change them afterwards, so a tool does
not rely on their shape.
"""

import math
from collections.abc import Mapping
from typing import Any

from knightcode.agent.tools.base import ToolError


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """A required string. Raises ToolError when it is missing or something else."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolError(f"{name} must be a string")
    return value


def path_argument(arguments: Mapping[str, Any], name: str = "path") -> str:
    """A required path that the system can take. Raises ToolError."""
    value = text_argument(arguments, name)
    if not value:
        raise ToolError(f"{name} must not be empty")
    if "\0" in value:
        raise ToolError(f"{name} must not hold a NUL character")
    return value


def number_argument(arguments: Mapping[str, Any], name: str) -> float | None:
    """An optional finite number; None when absent. Raises ToolError."""
    value = arguments.get(name)
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not (isinstance(value, float) and math.isfinite(value)):
        raise ToolError(f"{name} must be a finite number")
    number: float = value
    return number


def line_argument(arguments: Mapping[str, Any], name: str) -> int | None:
    """An optional number that counts lines; fractions are dropped. Raises ToolError."""
    value = number_argument(arguments, name)
    return None if value is None else int(value)
