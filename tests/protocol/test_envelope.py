"""Source: app server notes, "Framing", "Error object"."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from knightcode_protocol.envelope import (
    Notification,
    Request,
    Response,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from knightcode_protocol.results import TurnStartResult

Json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_each_kind_of_line_has_its_shape() -> None:
    assert encode_request("s1", "a/b", {"x": 1}) == b'{"id":"s1","method":"a/b","params":{"x":1}}\n'
    assert encode_request(7, "a/b", Raw(b"{ }")) == b'{"id":7,"method":"a/b","params":{ }}\n'
    assert encode_notification("a/b", {}) == b'{"method":"a/b","params":{}}\n'
    assert encode_result(b"1.50", {}) == b'{"id":1.50,"result":{}}\n'
    assert encode_result(Raw(b'"x"'), {}) == b'{"id":"x","result":{}}\n'
    assert encode_error(b"1", "internal", "m") == b'{"id":1,"error":{"code":"internal","message":"m"}}\n'
    assert encode_error(b"1", "internal", "m", [1]) == (
        b'{"id":1,"error":{"code":"internal","message":"m","data":[1]}}\n'
    )


def test_what_is_written_is_read_back_by_the_structs() -> None:
    assert msgspec.json.decode(encode_request(7, "a/b", {"x": 1}), type=Request) == Request(
        id=Raw(b"7"), method="a/b", params=Raw(b'{"x":1}')
    )
    assert msgspec.json.decode(encode_notification("a/b", {}), type=Notification) == Notification(
        method="a/b"
    )
    assert msgspec.json.decode(encode_result(b"7", {}), type=Response) == Response(
        id=Raw(b"7"), result=Raw(b"{}")
    )


@given(value=Json)
def test_a_line_is_one_line_of_utf8_whatever_it_carries(value: Any) -> None:
    line = encode_notification("m", value)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line.decode()) == {"method": "m", "params": value}


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("a\ud83d", '"a\ufffd"'),
        ({"\ude00": ["\ud83d", ("x",), 1, None]}, '{"\ufffd":["\ufffd",["x"],1,null]}'),
        (TurnStartResult(status="started", thread_id="\ud83d"), '{"status":"started","threadId":"\ufffd"}'),
        ([Raw(b'{"a":"\\u00e4"}'), "\udcff"], '[{"a":"ä"},"\ufffd"]'),
        ("\ud83d\ude00", '"\ufffd\ufffd"'),
        ("\U0001f600", '"\U0001f600"'),
    ],
)
def test_lone_surrogates_never_stop_a_line(value: object, encoded: str) -> None:
    assert encode(value) == encoded.encode()


@pytest.mark.parametrize("value", [object(), ["\ud83d", object()], {"\ud83d": {1j}}])
def test_a_value_without_a_json_form_is_the_callers_mistake(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_a_message_that_quotes_too_much_is_cut() -> None:
    whole, cut = (
        json.loads(encode_error(b"1", "internal", "ä" * length))["error"]["message"]
        for length in (2000, 2001)
    )
    assert (whole, cut) == ("ä" * 2000, "ä" * 1999 + "…")
