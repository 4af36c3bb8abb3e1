"""The global settings file, as far as anything reads it yet.

The file is not checked against a schema: unknown keys are ignored, and a value of the wrong kind
means its default. A file that is not JSON counts as empty and gives one warning.

Source: settings, "Settings keys", "Tolerance of bad values", "Malformed file".
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import attrs
import msgspec

from knightcode.messages import ThinkingLevel
from knightcode.regular_file import read_regular

T = TypeVar("T")

DEFAULT_HTTP_IDLE_MS = 300_000
_LEVELS = get_args(ThinkingLevel)


@attrs.frozen
class Settings:
    """What the global settings say. None means unset."""

    session_dir: str | None = None
    default_provider: str | None = None
    default_model: str | None = None
    default_thinking_level: ThinkingLevel | None = None
    shell_path: str | None = None
    shell_command_prefix: str | None = None
    http_idle_timeout_ms: int = DEFAULT_HTTP_IDLE_MS
    """0 for no limit."""
    default_tools: tuple[str, ...] | None = None
    """Names, or `+name` and `-name`; see `select_tools`."""
    warnings: tuple[str, ...] = ()


def load_settings(path: Path) -> Settings:
    """Read a settings file; a missing one has no settings, a broken one has a warning."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        return Settings(warnings=(f"{path} cannot be read ({error.strerror}); its settings are not used",))
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Settings(warnings=(f"{path} is not valid JSON ({error}); its settings are not used",))
    if not isinstance(found, dict):
        return Settings(warnings=(f"{path} does not hold a JSON object; its settings are not used",))
    idle_ms, warnings = _milliseconds(found.get("httpIdleTimeoutMs"), path)
    return Settings(
        session_dir=_value(found, "sessionDir", _text),
        default_provider=_value(found, "defaultProvider", _text),
        default_model=_value(found, "defaultModel", _text),
        default_thinking_level=_value(found, "defaultThinkingLevel", _level),
        shell_path=_value(found, "shellPath", _text),
        shell_command_prefix=_value(found, "shellCommandPrefix", _text),
        http_idle_timeout_ms=idle_ms,
        default_tools=_names(found["defaultTools"]) if found.get("defaultTools") is not None else None,
        warnings=warnings,
    )


def select_tools(listed: tuple[str, ...] | None, built_in: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the tools that a thread has.

    Args:
        listed: the setting `defaultTools`: plain names replace the built-in choice, and so does an
            empty list; `+name` and `-name` add to it and take from it, in order.
    Source: settings, "Merge and resolution".
    """
    if listed is None:
        return built_in
    plain = [name for name in listed if name[:1] not in ("+", "-")]
    chosen = dict.fromkeys(plain if plain or not listed else built_in)
    for name in listed:
        if name.startswith("+"):
            chosen.setdefault(name[1:])
        elif name.startswith("-"):
            chosen.pop(name[1:], None)
    return tuple(chosen)


def _value(found: dict[str, Any], key: str, check: Callable[[object], T | None]) -> T | None:
    return check(found.get(key))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _level(value: object) -> ThinkingLevel | None:
    return value if value in _LEVELS else None  # type: ignore[return-value]


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _milliseconds(value: object, path: Path) -> tuple[int, tuple[str, ...]]:
    if value == "disabled":
        return 0, ()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
        return int(value), ()
    if value is None:
        return DEFAULT_HTTP_IDLE_MS, ()
    return DEFAULT_HTTP_IDLE_MS, (
        f'{path}: httpIdleTimeoutMs is {value!r}, neither a number of milliseconds nor "disabled"; '
        f"{DEFAULT_HTTP_IDLE_MS} is used",
    )
