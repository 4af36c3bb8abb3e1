"""Characters that a provider cut in halves: how they are found, joined, and kept out of JSON. Pure.

JSON written by servers that count in UTF-16 may end one text inside a surrogate pair and begin the
next with the other half. Python holds such halves as code points of their own, which no UTF-8 can carry.

Source: models and providers, "Common"; agent loop, "Streaming a reply".
"""

import msgspec

from knightcode.text import clean_json


def ends_in_half(text: str) -> bool:
    """Whether the last code point is the first half of a pair, whose second half may still come."""
    return "\ud800" <= text[-1:] <= "\udbff"


def begins_with_half(text: str) -> bool:
    """Whether the first code point is the second half of a pair."""
    return "\udc00" <= text[:1] <= "\udfff"


def join_pairs(text: str) -> str:
    """`text` with two halves that stand side by side as the one character they are; lone ones stay."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encode_clean(value: object) -> bytes:
    """The JSON of a value. Lone halves, which no JSON may hold, become U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(clean_json(value))
