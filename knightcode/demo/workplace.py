"""The folder of one demo, below the system's temporary one: copy, script, sessions, log.

It is kept once there is something to look at, and removed when the demo ended before that.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs


@attrs.define(eq=False)
class Workplace:
    """Paths of one demo. `kept` is set once a turn has begun; until then the folder is nobody's."""

    folder: Path
    kept: bool = attrs.field(default=False, init=False)

    @property
    def project(self) -> Path:
        """The copy that the turn works on."""
        return self.folder / "project"

    @property
    def agent(self) -> Path:
        """The agent directory of a scripted run, in place of the user's."""
        return self.folder / "agent"

    @property
    def sessions(self) -> Path:
        """Where the session file comes."""
        return self.folder / "sessions"

    @property
    def script(self) -> Path:
        """What a scripted model says."""
        return self.folder / "script.json"

    @property
    def lines(self) -> Path:
        """The protocol lines that repeat the turn."""
        return self.folder / "turn.jsonl"

    @property
    def log(self) -> Path:
        """What the server wrote to stderr."""
        return self.folder / "server.log"


@contextmanager
def open_workplace() -> Iterator[Workplace]:
    """A new folder, for the user alone; on exit it is removed unless it is kept."""
    # Resolved, because sessions are found by their directory's one name (macOS links its /tmp).
    place = Workplace(Path(os.path.realpath(tempfile.mkdtemp(prefix="knightcode-demo-"))))
    try:
        place.project.mkdir()
        yield place
    finally:
        if not place.kept:
            shutil.rmtree(place.folder, ignore_errors=True)
