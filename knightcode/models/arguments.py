"""Tool-call arguments: JSON text as models really write it, cut short or slightly broken.

Pure. Nothing here raises: text that cannot be saved gives fewer members, in the end none.

Source: agent loop, "Streaming a reply"; models and providers, "Common".
"""

import math
import re
from typing import Any, Final

import msgspec

from knightcode.text import clean_json

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_MAX_DEPTH: Final = 200  # far beyond any tool's schema, well below the interpreter's recursion limit

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PLAIN: Final = re.compile(r'[^"\\]*')
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")
_HEX_PREFIX: Final = re.compile(r"[0-9a-fA-F]{0,3}\Z")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments that `text` holds, as far as they can be made out.

    Strict JSON first. Otherwise raw control characters inside strings are kept, a backslash that
    begins no escape stands for itself, strings, lists and objects that never end are ended, and
    whatever follows the first place that makes no sense is left out. Anything that does not begin
    as an object gives `{}`. Lone surrogates become U+FFFD; every result can be written as JSON.
    """
    if not text:
        return {}
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    value = clean_json(_Reader(text).read())
    return value if isinstance(value, dict) else {}


def arguments_are_whole(text: str) -> bool:
    """Whether `text` is a whole object, so that nothing in it was guessed, cut or left out.

    Raw control characters in strings, and a backslash that begins no escape, do no harm: what they
    stand for is plain. A call with anything else must not be run.
    """
    if not text.strip():
        return True
    reader = _Reader(text)
    return isinstance(reader.read(), dict) and reader.whole


class _StopError(Exception):
    """No further value can be made out; containers that are open keep what they have."""


class _Reader:
    """Reads one value from the start of a text, as much of it as there is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._stopped = False
        self._lossy = False

    def read(self) -> object:
        try:
            return self._value(0)
        except _StopError:
            return None

    @property
    def whole(self) -> bool:
        """After reading: every character was understood, and none was missing."""
        return not self._stopped and not self._lossy and not self._peek()

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> object:
        first = self._peek()
        if depth > _MAX_DEPTH:
            raise _StopError
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        if first == '"':
            return self._string()
        return self._scalar()

    def _object(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        self._at += 1
        try:
            while self._peek() == '"':
                key = self._string()
                if self._stopped or self._peek() != ":":
                    break
                self._at += 1
                found[key] = self._value(depth + 1)
                if self._stopped or self._peek() != ",":
                    break
                self._at += 1
            self._close("}")
        except _StopError:
            self._stopped = True
        return found

    def _list(self, depth: int) -> list[object]:
        found: list[object] = []
        self._at += 1
        try:
            while self._peek() not in ("]", ""):
                found.append(self._value(depth + 1))
                if self._stopped or self._peek() != ",":
                    break
                self._at += 1
            self._close("]")
        except _StopError:
            self._stopped = True
        return found

    def _close(self, bracket: str) -> None:
        if self._stopped or self._peek() != bracket:
            raise _StopError
        self._at += 1

    def _string(self) -> str:
        pieces: list[str] = []
        self._at += 1
        while True:
            plain = _PLAIN.match(self._text, self._at)
            if plain:
                pieces.append(plain.group())
                self._at = plain.end()
            mark = self._text[self._at : self._at + 1]
            if mark == "\\":
                pieces.append(self._escape())
                continue
            self._at += 1
            self._stopped = self._stopped or not mark
            return "".join(pieces)

    def _escape(self) -> str:
        code = self._text[self._at + 1 : self._at + 2]
        if code in _ESCAPES:
            self._at += 2
            return _ESCAPES[code]
        if code == "u" and (unit := self._unit(self._at + 2)) is not None:
            self._at += 6
            return self._joined(unit)
        if not code or (code == "u" and _HEX_PREFIX.match(self._text, self._at + 2)):
            self._at = len(self._text)  # the text was cut inside the escape
            return ""
        self._at += 1
        return "\\"

    def _joined(self, unit: int) -> str:
        """A character; two escapes that are halves of one are one."""
        if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._unit(self._at + 2)
            if low is not None and 0xDC00 <= low < 0xE000:
                self._at += 6
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        return chr(unit)

    def _unit(self, at: int) -> int | None:
        digits = _HEX4.match(self._text, at)
        return int(digits.group(), 16) if digits else None

    def _scalar(self) -> object:
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            raise _StopError
        self._at = number.end()
        read = _number(number.group())
        self._lossy = self._lossy or read is None
        return read


def _number(text: str) -> int | float | None:
    """A number that JSON can carry again; None for one that is too large."""
    try:
        value = float(text) if any(mark in text for mark in ".eE") else int(text)
    except ValueError:  # more digits than the interpreter converts
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None
