"""Text that comes from outside: what no JSON line may carry is replaced here, on entry."""

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
