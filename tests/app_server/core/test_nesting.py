"""Source: app server notes, "Framing"."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.app_server.core.nesting import is_too_deep

Json = st.recursive(
    st.none() | st.text('[]{}"\\a', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("[{\\", max_size=2), inner, max_size=3)
    ),
    max_leaves=30,
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(value=Json, limit=st.integers(0, 5))
def test_the_depth_is_that_of_the_decoded_value(value: Any, limit: int) -> None:
    assert is_too_deep(json.dumps(value).encode(), limit) == (depth_of(value) > limit)


@given(line=st.lists(st.sampled_from([b"[", b"]", b"{", b"}", b'"', b"\\", b"a"]), max_size=60))
def test_a_line_that_is_no_json_has_an_answer_as_well(line: list[bytes]) -> None:
    assert is_too_deep(b"".join(line), 3) in (True, False)


@pytest.mark.parametrize(
    ("line", "too_deep"),
    [
        (b"[" * 128 + b"]" * 128, False),
        (b"[" * 129 + b"]" * 129, True),
        (b'{"a":' * 129, True),
        (b'[{"a":1},' * 65, False),
        (b'[{"a":1},' * 200, True),
        (b"[" * 1_000_000, True),
        (b"[[]," * 100_000, True),
        (b"[" + b"[]," * 100_000 + b"[]]", False),
        (b'"' + b"[" * 1000 + b'"', False),
        (b'"' + b"[" * 1000, False),
        (b'"\\"' + b"[" * 1000 + b'"', False),
        (b'"\\\\"' + b"[" * 1000, True),
        (b'"' + b'\\"' * 100_000 + b"[" * 200, False),
    ],
)
def test_brackets_count_outside_of_strings_only(line: bytes, too_deep: bool) -> None:
    assert is_too_deep(line) is too_deep
