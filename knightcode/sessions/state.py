"""The entries of a session in memory: index, leaf, and the facts that later entries change. No I/O.

Source: Session files, "Tree and leaf"; App server, "Workspaces".
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs

from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import Entry, SessionHeader, SessionInfoEntry
from knightcode.sessions.errors import EntryNotFoundError
from knightcode.sessions.facts import effective_cwd, name_of, workspace_of
from knightcode.sessions.tree import branch


@attrs.define(eq=False)
class SessionState:
    """All entries in order, and the position among them.

    The branch to the leaf is kept and grows with it, so a long session costs no more per entry than
    a short one.
    """

    header: SessionHeader
    leaf_id: str | None = attrs.field(default=None, init=False)
    name: str | None = attrs.field(default=None, init=False)
    cwd: str = attrs.field(init=False)
    _entries: list[Entry] = attrs.field(factory=list, init=False)
    _index: dict[str, Entry] = attrs.field(factory=dict, init=False)
    _branch: list[Entry] | None = attrs.field(factory=list, init=False)  # None: to be walked again

    def __attrs_post_init__(self) -> None:
        self.cwd = self.header.cwd

    @property
    def entries(self) -> tuple[Entry, ...]:
        """In file order."""
        return tuple(self._entries)

    @property
    def index(self) -> Mapping[str, Entry]:
        """Entries under their ids, read-only."""
        return MappingProxyType(self._index)

    @property
    def updated_at_ms(self) -> int:
        """The time of the latest entry that has one, else the header's, else 0."""
        for entry in reversed(self._entries):
            if (time := parse_iso(entry.timestamp)) is not None:
                return time
        return parse_iso(self.header.timestamp) or 0

    def branch(self) -> list[Entry]:
        """The entries from the root to the leaf; the caller's to keep."""
        if self._branch is None:
            self._branch = branch(self._index, self.leaf_id)
        return self._branch.copy()

    def load(self, entries: Iterable[Entry]) -> None:
        """Take in the entries of a file. The leaf is the last of them."""
        for entry in entries:
            self._take(entry)
        self._branch = None

    def add(self, entry: Entry) -> None:
        """Take in a new child of the leaf; it becomes the leaf."""
        self._take(entry)
        if self._branch is not None:
            self._branch.append(entry)

    def move_leaf(self, entry_id: str | None) -> None:
        """Go to an entry, or before all of them.

        Raises:
            EntryNotFoundError: there is no such entry.
        """
        if entry_id is not None and entry_id not in self._index:
            raise EntryNotFoundError(entry_id)
        if entry_id != self.leaf_id:
            self.leaf_id = entry_id
            self._branch = None

    def _take(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._index[entry.id] = entry
        self.leaf_id = entry.id
        if isinstance(entry, SessionInfoEntry):
            self.name = name_of(entry)
        elif (workspace := workspace_of(entry)) is not None:
            self.cwd = effective_cwd(self.header, workspace)
