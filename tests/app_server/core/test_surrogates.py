"""Source: app server notes, "Framing"."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.app_server.core.surrogates import may_hold_surrogates, replace_lone_surrogates


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (rb'"\ud83d"', rb'"\ufffd"'),
        (rb'"\uDE00x"', rb'"\ufffdx"'),
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\ud83d\ude00\ude00"', rb'"\ud83d\ude00\ufffd"'),
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\\ud83d\ude00"', rb'"\\ud83d\ufffd"'),
        (rb'"\n\ud83d\u0041"', rb'"\n\ufffd\u0041"'),
        (rb'"\ud7ff\ue000"', rb'"\ud7ff\ue000"'),
    ],
)
def test_only_escapes_of_lone_surrogates_are_replaced(before: bytes, after: bytes) -> None:
    assert replace_lone_surrogates(before) == after


@given(text=st.lists(st.sampled_from(["\\", "\ud83d", "\ude00", "\n", '"', "u", "d", "8", "ä"]), max_size=20))
def test_what_javascript_writes_can_be_decoded_afterwards(text: list[str]) -> None:
    written = json.dumps("".join(text)).encode()
    mended = replace_lone_surrogates(written) if may_hold_surrogates(written) else written
    whole: str = json.loads(written)
    assert msgspec.json.decode(mended) == re.sub("[\ud800-\udfff]", "\ufffd", whole)
