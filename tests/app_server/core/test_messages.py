"""Source: app server notes, "Framing"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from knightcode.app_server.core.messages import Incoming, Malformed, parse_line
from knightcode_protocol.envelope import Notification, Request, Response

DEEP = b"[" * 200 + b"]" * 200
FAR_TOO_DEEP = b"[" * 100_000 + b"]" * 100_000
NOT_BOTH = "a response has `result` or `error`, not both"
BAD_ID = "`id` must be a string or a finite number"
NO_METHOD = "a request needs `method`"
NOTHING = "a message needs `method`, or `id` with `result` or `error`"
NOT_UTF8 = "the line is not UTF-8"
TOO_DEEP = "arrays and objects are nested deeper than 128 levels"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"id":7,"method":"m","params":{"a":1}}',
            Request(id=Raw(b"7"), method="m", params=Raw(b'{"a":1}')),
        ),
        (b'{"params":[1],"method":"m","id":"x"}', Request(id=Raw(b'"x"'), method="m", params=Raw(b"[1]"))),
        (b' {"id" : 7 , "method" : "m"} ', Request(id=Raw(b"7"), method="m")),
        (b'{"id":7,"method":"m","params":null}', Request(id=Raw(b"7"), method="m", params=Raw(b"{}"))),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","later":[]}', Request(id=Raw(b"7"), method="m")),
        (b'{"id":1,"id":2,"method":"a","method":"b"}', Request(id=Raw(b"2"), method="b")),
        (b'{"id":7,"method":"m","result":1}', Request(id=Raw(b"7"), method="m")),
        (b'{"\\u0069d":7,"method":"m"}', Request(id=Raw(b"7"), method="m")),
        (b'{"method":"m","params":{}}', Notification(method="m", params=Raw(b"{}"))),
        (b'{"method":"m"}', Notification(method="m")),
        (b'{"id":"s1","result":{}}', Response(id=Raw(b'"s1"'), result=Raw(b"{}"))),
        (b'{"id":"s1","result":null}', Response(id=Raw(b'"s1"'), result=Raw(b"null"))),
        (b'{"id":"s1","error":{"code":1}}', Response(id=Raw(b'"s1"'), error=Raw(b'{"code":1}'))),
        (
            b'{"id":"a\\ud83d","method":"m\\ude00","params":"\\ud83d\\ude00"}',
            Request(id=Raw(b'"a\\ud83d"'), method="m\ufffd", params=Raw(b'"\\ud83d\\ude00"')),
        ),
        (b'{"method":"m","params":"\xe2\x80\xa8"}', Notification(method="m", params=Raw(b'"\xe2\x80\xa8"'))),
    ],
)
def test_a_message_is_what_its_members_say(line: bytes, message: Incoming) -> None:
    assert parse_line(line) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"ls", Malformed(None, "the line is not JSON: JSON is malformed: invalid character (byte 0)")),
        (b"null", Malformed(None, "Expected `object`, got `null`")),
        (b"[]", Malformed(None, "Expected `object`, got `array`")),
        (b'[{"id":1,"method":"m"}]', Malformed(None, "Expected `object`, got `array`")),
        (b'"id"', Malformed(None, "Expected `object`, got `str`")),
        (b"{}", Malformed(None, NOTHING)),
        (b'{"result":1}', Malformed(None, NOTHING)),
        (b'{"id":8}', Malformed(Raw(b"8"), NO_METHOD)),
        (b'{"id":"8","params":{}}', Malformed(Raw(b'"8"'), NO_METHOD)),
        (b'{"id":7,"method":5}', Malformed(Raw(b"7"), "Expected `str`, got `int` - at `$.method`")),
        (b'{"method":null,"id":7}', Malformed(Raw(b"7"), "Expected `str`, got `null` - at `$.method`")),
        (b'{"method":5}', Malformed(None, "Expected `str`, got `int` - at `$.method`")),
        (b'{"id":7,"result":1,"error":{}}', Malformed(None, NOT_BOTH)),
        (b'{"result":1,"error":{}}', Malformed(None, NOT_BOTH)),
        (b'{"id":null,"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":true,"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":[1],"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":{},"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":false,"result":1}', Malformed(None, BAD_ID)),
        (b'{"id":1e999,"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":' + b"1" * 10_000 + b',"method":"m"}', Malformed(None, BAD_ID)),
        (b'{"id":7,"method":"\xff"}', Malformed(Raw(b"7"), NOT_UTF8)),
        (b'{"id":7,"method":"m","params":"\xed\xa0\xbd"}', Malformed(Raw(b"7"), NOT_UTF8)),
        (b'{"id":"\xff","method":"m"}', Malformed(None, NOT_UTF8)),
        (b'{"id":"s1","result":"\xff"}', Malformed(None, NOT_UTF8)),
        (b'{"id":7,"method":"m","params":' + DEEP + b"}", Malformed(Raw(b"7"), TOO_DEEP)),
        (b'{"params":' + DEEP + b',"id":7}', Malformed(Raw(b"7"), TOO_DEEP)),
        (b'{"params":' + FAR_TOO_DEEP + b',"method":"m","id":7}', Malformed(Raw(b"7"), TOO_DEEP)),
        (b'{"result":' + FAR_TOO_DEEP + b',"id":7}', Malformed(None, TOO_DEEP)),
        (DEEP, Malformed(None, TOO_DEEP)),
    ],
)
def test_a_malformed_line_keeps_its_id_when_somebody_waits_for_an_answer(
    line: bytes, message: Incoming
) -> None:
    assert parse_line(line) == message


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"id":7,"method":"m","params":{oops}}', b"7"),
        (b'{"method":"m","id":"a b","params":', b'"a b"'),
        (b'{"id":7,"method":"m"', b"7"),
        (b'{"id":7,"id":8,"params":NaN}', b"8"),
        (b'{"id":7,"method":"m","params":{}} trailing', b"7"),
        (b'{"params":{"id":9},"id":7,oops', b"7"),
        (b'{"id":12', None),
        (b'{"id":7', None),
        (b'{"id":NaN,"method":"m"}', None),
        (b'{"id":Infinity,"method":"m"}', None),
        (b'{"id":01,"method":"m"}', None),
        (b"{'id':7}", None),
        (b'{"params":{oops},"id":7}', b"7"),
        (b'{"params":oops,"id":7}', None),
        (b'{"id":7,"result":oops}', b"7"),
        (b'{"id":7,"result":1,oops', None),
        (b'{"id":"s1","error":{"code":oops}}', None),
    ],
)
def test_of_a_line_that_is_no_json_the_id_before_the_fault_is_read(
    line: bytes, request_id: bytes | None
) -> None:
    message = parse_line(line)
    assert isinstance(message, Malformed)
    assert message.id == (None if request_id is None else Raw(request_id))


@pytest.mark.parametrize(
    "request_id",
    [
        b"7", b"-0", b"1.0", b"1.50", b"1e3", b"1E+3", b"9007199254740993", b"123456789012345678901234567890",
        b'""', b'"7"', b'"\\u00e4\\n"', '"ä\u2028"'.encode(), b'"\\ud83d\\ude00"', b"0." + b"1" * 10_000,
    ],
)  # fmt: skip
def test_an_id_keeps_the_text_it_came_with(request_id: bytes) -> None:
    assert parse_line(b'{"id":%b,"method":"m"}' % request_id) == Request(id=Raw(request_id), method="m")


@given(line=st.binary(max_size=60) | st.text('{}[]":,\\ud83idmethodresult0.e-', max_size=60).map(str.encode))
def test_no_line_raises(line: bytes) -> None:
    assert isinstance(parse_line(line), Incoming)


@pytest.mark.parametrize("text", [r'"\ud800q"', r'"a\udc00"', r'"\ud83d\ude00"'])
def test_an_id_comes_back_as_it_was_sent_lone_halves_of_pairs_included(text: str) -> None:
    """App server notes: Framing; ids are echoed unchanged."""
    message = parse_line(f'{{"method":"x","params":{{"a":"\\ud83d"}},"id":{text}}}'.encode())
    assert isinstance(message, Request)
    assert bytes(message.id) == text.encode()


def test_a_byte_order_mark_before_a_line_is_not_part_of_it() -> None:
    """Users' reports: a BOM must not make a client wait for ever."""
    message = parse_line(b'\xef\xbb\xbf{"id":1,"method":"x"}')
    assert isinstance(message, Request)
    assert (bytes(message.id), message.method) == (b"1", "x")
