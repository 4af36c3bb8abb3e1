"""One line to one message: a request, a notification, a response, or something malformed.

Source: app server notes, "Framing".
"""

import codecs
import math
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, ValidationError

from knightcode.app_server.core.nesting import is_too_deep
from knightcode.app_server.core.recovery import leading_members
from knightcode.app_server.core.surrogates import may_hold_surrogates, replace_lone_surrogates
from knightcode_protocol.envelope import NO_PARAMS, Notification, Request, Response
from knightcode_protocol.limits import MAX_NESTING

UNREADABLE: Final = (ValueError, RecursionError)
"""What decoding a peer's bytes can raise; every DecodeError is a ValueError. A payload is raw until
somebody reads it: that its line could be read says nothing of the numbers and texts in it."""

_UTF8_SLICE: Final = 1024 * 1024
_ABSENT: Final = Raw()
_NULL: Final = Raw(b"null")


class Malformed(Struct, frozen=True):
    """A line that is no message. `id` is there when the sender waits for an answer under it."""

    id: Raw | None
    text: str


Incoming = Request | Notification | Response | Malformed


class _Line(Struct, frozen=True):
    id: Raw = _ABSENT
    method: str | UnsetType = UNSET
    params: Raw = _ABSENT
    result: Raw = _ABSENT
    error: Raw = _ABSENT


class _Loose(Struct, frozen=True):
    """A line as far as any JSON object can be read."""

    id: Raw = _ABSENT
    method: Raw = _ABSENT
    result: Raw = _ABSENT
    error: Raw = _ABSENT


_LINE: Final = msgspec.json.Decoder(_Line)
_LOOSE: Final = msgspec.json.Decoder(_Loose)
_TEXT: Final = msgspec.json.Decoder(str)
_NUMBER_STARTS: Final = frozenset(bytes([byte]) for byte in b"-0123456789")


def parse_line(line: bytes) -> Incoming:
    """What a line is. Never raises, whatever the line holds.

    Ids are copied and keep the text they came with (`1.50` stays `1.50`); params, results and errors
    are views into the line.
    """
    line = line.removeprefix(codecs.BOM_UTF8)
    if not _is_utf8(line):
        return _malformed(line, "the line is not UTF-8")
    if is_too_deep(line):
        return _malformed(line, f"arrays and objects are nested deeper than {MAX_NESTING} levels")
    try:
        seen = _LINE.decode(line)
    except UNREADABLE as error:
        if not may_hold_surrogates(line):
            return _malformed(line, _reason(error))
        try:
            seen = _LINE.decode(replace_lone_surrogates(line))
        except UNREADABLE as second_error:
            return _malformed(line, _reason(second_error))
        as_sent = leading_members(line).get("id")
        if as_sent is not None:
            seen = msgspec.structs.replace(seen, id=Raw(as_sent))
    return _classify(seen)


def parse_id(raw: Raw) -> Raw | None:
    """A copy of an id if it is a string or a finite number, else None.

    A number that no double can hold counts as infinite, since it is that to most peers.
    """
    text = bytes(raw)
    if text[:1] == b'"':
        try:
            _TEXT.decode(replace_lone_surrogates(text) if may_hold_surrogates(text) else text)
        except UNREADABLE:
            return None
        return Raw(text)
    if text[:1] not in _NUMBER_STARTS:
        return None
    try:
        finite = math.isfinite(float(text))
    except ValueError:
        return None
    return Raw(text) if finite else None


def _classify(seen: _Line) -> Incoming:
    request_id = None if seen.id is _ABSENT else parse_id(seen.id)
    if request_id is None and seen.id is not _ABSENT:
        return Malformed(None, "`id` must be a string or a finite number")
    if isinstance(seen.method, UnsetType):
        return _classify_response(request_id, seen)
    params = NO_PARAMS if seen.params is _ABSENT or seen.params == _NULL else seen.params
    if request_id is None:
        return Notification(method=seen.method, params=params)
    return Request(id=request_id, method=seen.method, params=params)


def _classify_response(request_id: Raw | None, seen: _Line) -> Response | Malformed:
    has_result, has_error = seen.result is not _ABSENT, seen.error is not _ABSENT
    if has_result and has_error:
        return Malformed(None, "a response has `result` or `error`, not both")
    if request_id is None:
        return Malformed(None, "a message needs `method`, or `id` with `result` or `error`")
    if not (has_result or has_error):
        return Malformed(request_id, "a request needs `method`")
    return Response(
        id=request_id,
        result=seen.result if has_result else UNSET,
        error=seen.error if has_error else UNSET,
    )


def _malformed(line: bytes, text: str) -> Malformed:
    """A malformed line with its id, unless it is a response: nobody waits for an answer to one."""
    try:
        seen = _LOOSE.decode(line)
    except UNREADABLE:
        seen = _Loose(**{name: Raw(value) for name, value in leading_members(line).items()})
    if seen.method is _ABSENT and (seen.result is not _ABSENT or seen.error is not _ABSENT):
        return Malformed(None, text)
    return Malformed(None if seen.id is _ABSENT else parse_id(seen.id), text)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error)
    return f"the line is not JSON: {error}"


def _is_utf8(line: bytes) -> bool:
    """JSON decoders do not look into the strings that they skip, so this is checked apart."""
    if line.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(line), _UTF8_SLICE):  # a whole line could take four times its size
            decoder.decode(line[start : start + _UTF8_SLICE])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
