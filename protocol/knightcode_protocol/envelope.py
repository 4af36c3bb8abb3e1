"""What every line has around its payload, and how lines are written.

A line is one JSON object and a line feed. The shapes are those of JSON-RPC 2.0 without a `jsonrpc`
member. Ids and payloads stay raw JSON here: an id goes back byte for byte as it came, and a payload
is decoded once, by whoever knows its type.

Source: app server, the introduction; app server notes, "Framing", "Error object".
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from knightcode_protocol.errors import ErrorCode
from knightcode_protocol.limits import MAX_ERROR_MESSAGE
from knightcode_protocol.wire import Wire

NO_PARAMS = Raw(b"{}")

_SURROGATE = re.compile("[\ud800-\udfff]")
_ENCODER = msgspec.json.Encoder()


class Request(Wire, frozen=True, kw_only=True):
    """`{id, method, params}`; `id` is the JSON text of a string or a finite number."""

    id: Raw
    method: str
    params: Raw = NO_PARAMS


class Notification(Wire, frozen=True, kw_only=True):
    """`{method, params}`; never answered."""

    method: str
    params: Raw = NO_PARAMS


class Response(Wire, frozen=True, kw_only=True):
    """`{id, result}` or `{id, error}`, never both."""

    id: Raw
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class ErrorObject(Wire, frozen=True, kw_only=True):
    """Why a request failed: a code of the closed list, words for people, data for programs."""

    code: ErrorCode
    message: str
    data: Any = UNSET


def encode_result(request_id: bytes | Raw, result: object) -> bytes:
    """The line that answers a request; `request_id` is the id's JSON text as it was received."""
    return b'{"id":%b,"result":%b}\n' % (request_id, encode(result))


def encode_error(request_id: bytes | Raw, code: ErrorCode, message: str, data: object = UNSET) -> bytes:
    """The line that refuses a request; `request_id` is the id's JSON text as it was received.

    The message is cut to `MAX_ERROR_MESSAGE` code points: it may quote what the client sent.
    """
    if len(message) > MAX_ERROR_MESSAGE:
        message = message[: MAX_ERROR_MESSAGE - 1] + "…"
    error = ErrorObject(code=code, message=message, data=data)
    return b'{"id":%b,"error":%b}\n' % (request_id, encode(error))


def encode_notification(method: str, params: object) -> bytes:
    """The line of a notification, the same for every connection that gets it."""
    return b'{"method":%b,"params":%b}\n' % (encode(method), encode(params))


def encode_request(request_id: str | float, method: str, params: object) -> bytes:
    """The line of a request, from either side."""
    return b'{"id":%b,"method":%b,"params":%b}\n' % (encode(request_id), encode(method), encode(params))


def encode(value: object) -> bytes:
    """A value as compact JSON, valid UTF-8 whatever strings it holds: lone surrogates become U+FFFD.

    Raises:
        TypeError: the value, or something in it, has no JSON form; a mistake of the caller.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:  # rare: file names that are no UTF-8, text cut by a JavaScript program
        return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(value, enc_hook=_parse_raw)))


def _parse_raw(value: object) -> object:
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
