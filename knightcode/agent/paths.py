"""Paths as models write them.

Nothing here confines a path to the project: what a tool may touch is the gates' business.

Source: agent loop, "Built-in tools", "read".
"""

import os
import re
import unicodedata

_UNICODE_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_MERIDIEM = re.compile(r" (?=[AaPp][Mm]\b)")


def resolve_path(path: str, cwd: str | os.PathLike[str]) -> str:
    """The absolute path that a tool's path argument means.

    A leading `@` is dropped, Unicode spaces become plain ones, `~` is the home directory, relative
    paths start at `cwd`, and `.` and `..` are folded away. No file is looked at.
    """
    plain = _UNICODE_SPACES.sub(" ", path).removeprefix("@")
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(plain)))


def existing_spelling(path: str) -> str:
    """`path`, or the spelling of it under which macOS has stored the file; looks at the disk.

    Screenshots are named with a narrow no-break space before AM and PM and with curly apostrophes,
    and names may be stored decomposed. Models write none of these. `path` itself comes back when no
    spelling exists.
    """
    if os.path.lexists(path):
        return path
    spaced = _MERIDIEM.sub("\u202f", path)
    decomposed = unicodedata.normalize("NFD", path)
    for spelling in (
        spaced,
        decomposed,
        path.replace("'", "\u2019"),
        decomposed.replace("'", "\u2019"),
        unicodedata.normalize("NFD", spaced).replace("'", "\u2019"),
    ):
        if spelling != path and os.path.lexists(spelling):
            return spelling
    return path


def shown_path(path: str, cwd: str | os.PathLike[str]) -> str:
    """An absolute path as it reads best: relative to `cwd` when below it, with `/` between its parts."""
    try:
        relative = os.path.relpath(path, cwd)
    except ValueError:  # another drive
        relative = path
    outside = relative == os.pardir or relative.startswith(os.pardir + os.sep)
    return (path if outside else relative).replace(os.sep, "/")
