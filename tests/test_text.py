"""Text and JSON from outside: mended where only characters are wrong, refused where it is not JSON."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.text import clean, clean_json, loads_clean

TEXTS: st.SearchStrategy[str] = st.text(
    st.sampled_from(["a", "\ud83d", "\ude00", "é", "😀", '"', "\\"]), max_size=8
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(text=TEXTS)
@settings(max_examples=50)
def test_cleaned_text_can_be_encoded_and_differs_in_its_lone_surrogates_only(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert cleaned == "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in text)


@given(value=VALUES)
@settings(max_examples=50)
def test_json_is_read_as_it_was_written_with_its_lone_surrogates_replaced(value: Any) -> None:
    # Written out, two halves that stand side by side are a pair.
    assert loads_clean(json.dumps(value)) == clean_json(json.loads(json.dumps(value)))
    json.dumps(loads_clean(json.dumps(value)), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[NaN]", "NaN is not a JSON value"),
        ('{"a": -Infinity}', "-Infinity is not a JSON value"),
        ("1e999", "the number 1e999 is out of range"),
        ("-" + "9" * 400 + ".0", "the number -" + "9" * 39 + " is out of range"),
        ("[" * 100_000, "nested too deeply"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_not_json_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 -- the whole text is compared
        loads_clean(text)
    assert str(refused.value) == problem
