"""The value syntax of keys and headers: literals, `$NAME`, `!command`.

Source: models and providers, "Value syntax".
"""

import re
from collections.abc import Mapping
from typing import Final

COMMAND_SECONDS: Final = 10.0
_OUTPUT_LIMIT_BYTES: Final = 64 * 1024  # no key or header is this long
_PART: Final = re.compile(
    r"\$(?:(?P<literal>[$!])|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})", re.ASCII
)


class UnresolvedValueError(Exception):
    """A value cannot be had now; the text says why, without what a command printed."""


def is_command(value: str) -> bool:
    """Whether the value is what a shell command prints."""
    return value.startswith("!")


def is_configured(value: str, environ: Mapping[str, str]) -> bool:
    """Whether the value counts as set: all its variables are. Commands are not run, they count."""
    return bool(value) and (is_command(value) or not missing_variables(value, environ))


def missing_variables(value: str, environ: Mapping[str, str]) -> list[str]:
    """The variables that a value names and that are unset or empty, in order."""
    names = (part["bare"] or part["braced"] for part in _PART.finditer(value))
    return [name for name in names if name and not environ.get(name)]


async def resolve_value(value: str, environ: Mapping[str, str]) -> str:
    """What the value stands for.

    A command runs in a shell with `environ`, without input, its error output dropped, for 10 seconds
    at most; what it prints is the value, without blanks at its ends.

    Raises:
        UnresolvedValueError: a variable is missing; a command failed, printed nothing or took too long.
    """
    if is_command(value):
        return await _run(value[1:].strip(), environ)
    missing = missing_variables(value, environ)
    if missing:
        raise UnresolvedValueError(f"{' and '.join(f'${name}' for name in missing)} is not set")
    return _PART.sub(lambda part: part["literal"] or environ[part["bare"] or part["braced"]], value)


async def _run(command: str, environ: Mapping[str, str]) -> str:
    from knightcode.models.shell_value import ShellFailedError, run_for_output

    try:
        output = await run_for_output(
            command, environ, seconds=COMMAND_SECONDS, limit_bytes=_OUTPUT_LIMIT_BYTES
        )
    except ShellFailedError as error:
        raise UnresolvedValueError(f"the command `{command}` {error}") from error
    text = output.decode("utf-8", "replace").strip()
    if not text:
        raise UnresolvedValueError(f"the command `{command}` printed nothing")
    return text
