"""Text that comes from outside: what no JSON line may carry is replaced here, on entry."""

import json
import math
import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it can always be encoded.

    A Python string holds a surrogate only when it is lone: pairs are joined by every JSON decoder
    in use here. JavaScript peers write lone ones when they cut a string between two halves.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def clean_json(value: object) -> object:
    """A JSON value with `clean` applied to every string in it, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_json(key): clean_json(item) for key, item in value.items()}
    return value


def loads_clean(text: str) -> object:
    """The value of a JSON text that a stricter decoder refused, with `clean_json` applied to it.

    Lenient about characters only: NaN and the infinities are refused, written as such or as a number
    too large to be held, because no JSON text can carry them on.

    Raises:
        json.JSONDecodeError: not JSON; it knows the line and the column.
        ValueError: a number as above, or nested too deeply.
    """
    try:
        return clean_json(json.loads(text, parse_constant=_refuse, parse_float=_finite))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits:.40} is out of range")
    return number
