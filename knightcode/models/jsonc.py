"""JSON with comments, as people write it in files of settings. Pure.

Source: models and providers, "models.json".
"""

import json
import re
from typing import Any, Final

from knightcode.text import loads_clean

_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOT_NEWLINE: Final = re.compile(r"[^\n]")


class BadJsonError(ValueError):
    """The text is not JSON; the message says where (`line 3, column 7: ...`) and what was expected."""


def parse_jsonc(data: bytes) -> Any:
    """The value in UTF-8 JSON text; a byte order mark, `//` and `/* */` comments are ignored.

    Raises:
        BadJsonError: not UTF-8, or not JSON once the comments are gone.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadJsonError(f"byte {error.start}: not UTF-8 text") from error
    try:
        return loads_clean(_TOKEN.sub(_blank, text))
    except json.JSONDecodeError as error:
        raise BadJsonError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except ValueError as error:
        raise BadJsonError(str(error)) from error


def _blank(token: re.Match[str]) -> str:
    """A comment becomes spaces of the same shape, so that positions in errors stay true."""
    found = token.group()
    return found if found.startswith('"') else _NOT_NEWLINE.sub(" ", found)
