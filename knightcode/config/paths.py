"""Where things live: the agent directory, session folders and the names in them.

Pure, but for `make_private_folder`. The environment is an argument, so nothing here reads it.

Source: Session files, "Where files live"; settings, "Directories and files".
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

AGENT_DIR_VARIABLE = "KNIGHTCODE_CODING_AGENT_DIR"
SESSION_DIR_VARIABLE = "KNIGHTCODE_CODING_AGENT_SESSION_DIR"
SESSION_SUFFIX = ".jsonl"

FOLDER_MODE = 0o700
FILE_MODE = 0o600

_NAME_LIMIT_BYTES = 255  # of one path component, on every file system in use
_SESSION_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def agent_dir(environ: Mapping[str, str]) -> Path:
    """The directory of everything that is the user's and no project's, absolute."""
    return _absolute(environ.get(AGENT_DIR_VARIABLE) or "~/.knightcode/agent", environ)


def project_config_dir(cwd: str | Path) -> Path:
    """A project's own configuration; only the directory itself counts, never a parent."""
    return Path(cwd) / ".knightcode"


def session_root(agent: Path) -> Path:
    """The parent of all project folders."""
    return agent / "sessions"


def encode_cwd(cwd: str) -> str:
    """The folder name that stands for an absolute working directory.

    Different directories can share a name; the header of a session tells which one it is, so names
    are never decoded. A name too long for the file system is cut and ends in a digest.
    """
    inner = cwd[1:] if cwd[:1] in ("/", "\\") else cwd
    name = "--" + re.sub(r"[/\\:]", "-", inner) + "--"
    raw = os.fsencode(name)
    if len(raw) <= _NAME_LIMIT_BYTES:
        return name
    digest = hashlib.sha256(os.fsencode(cwd)).hexdigest()[:16]
    kept = raw[: _NAME_LIMIT_BYTES - len(digest) - 3].decode("utf-8", "ignore")
    return f"{kept}-{digest}--"


def project_folder(agent: Path, cwd: str | Path) -> Path:
    """The default session folder of a working directory, which is made absolute without resolving links."""
    return session_root(agent) / encode_cwd(os.path.abspath(cwd))


def session_dir_override(
    environ: Mapping[str, str], *, cwd: str | Path, flag: str | None = None, setting: str | None = None
) -> Path | None:
    """The folder that replaces the project folders, absolute; None when nothing asks for one.

    Args:
        cwd: what relative values are resolved against.
        flag: value of `--session-dir`; wins over the environment.
        setting: value of `sessionDir`; the environment wins over it.
    """
    chosen = flag or environ.get(SESSION_DIR_VARIABLE) or setting
    return _absolute(chosen, environ, Path(cwd)) if chosen else None


def session_file_name(timestamp: str, session_id: str) -> str:
    """The name of a new session's file, from the two header values."""
    return f"{re.sub('[:.]', '-', timestamp)}_{session_id}{SESSION_SUFFIX}"


def is_session_id(text: str) -> bool:
    """Whether a caller may choose `text` as a session id: it becomes part of a file name."""
    return _SESSION_ID.fullmatch(text) is not None


def make_private_folder(folder: Path) -> None:
    """Create `folder` and its missing parents for the user alone; existing ones keep their mode.

    Raises:
        OSError: it cannot be created, or something else has its name.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except FileNotFoundError:
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def _absolute(text: str, environ: Mapping[str, str], base: Path | None = None) -> Path:
    if text == "~" or text.startswith(("~/", "~\\")):
        home = environ.get("HOME") or str(Path.home())
        text = home + text[1:]
    return Path(os.path.abspath(text if base is None else base / text))
