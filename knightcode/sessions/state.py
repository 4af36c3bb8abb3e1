"""The entries of a session in memory: index, leaf, and the facts that later entries change. No I/O.

Source: Session files, "Tree and leaf"; App server, "Workspaces".
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import attrs

from knightcode.sessions.branch import Branch
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import Entry, SessionHeader, SessionInfoEntry
from knightcode.sessions.errors import EntryNotFoundError
from knightcode.sessions.facts import (
    MessageCounts,
    count_messages,
    effective_cwd,
    first_user_text,
    name_of,
    shorten,
    workspace_of,
)
from knightcode.sessions.tree import branch


@attrs.define(eq=False)
class SessionState:
    """All entries in order, and the position among them.

    The branch to the leaf is kept and grows with it, and so does all that is told of it and of the
    session: a long session costs no more per entry than a short one.
    """

    header: SessionHeader
    leaf_id: str | None = attrs.field(default=None, init=False)
    name: str | None = attrs.field(default=None, init=False)
    cwd: str = attrs.field(init=False)
    message_counts: MessageCounts = attrs.field(default=MessageCounts(0, 0), init=False)
    _entries: list[Entry] = attrs.field(factory=list, init=False)
    _index: dict[str, Entry] = attrs.field(factory=dict, init=False)
    _branch: Branch | None = attrs.field(default=None, init=False)  # None: to be walked when wanted
    _first_said: str = attrs.field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.cwd = self.header.cwd

    @property
    def entries(self) -> tuple[Entry, ...]:
        """In file order; a copy, which takes its time in a long session."""
        return tuple(self._entries)

    @property
    def entry_count(self) -> int:
        """How many entries there are, on whatever branch."""
        return len(self._entries)

    def newest_first(self) -> Iterator[Entry]:
        """The entries from the end of the file on."""
        return reversed(self._entries)

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

    @property
    def title(self) -> str:
        """The name, else the beginning of what the user said first; see `title_of`."""
        return shorten(self.name or self._first_said)

    @property
    def branch(self) -> Branch:
        """The branch to the leaf, until the leaf moves to another one."""
        if self._branch is None:
            self._branch = Branch(branch(self._index, self.leaf_id))
        return self._branch

    def load(self, entries: Iterable[Entry]) -> None:
        """Take in the entries of a file. The leaf is the last of them.

        What is long about it is done here, branch and context included: nothing that is asked
        for later has to go through the whole file again.
        """
        for entry in entries:
            self._take(entry)
        self._branch = None
        self._count(self._entries)
        self.branch.context()

    def add(self, entry: Entry) -> None:
        """Take in a new child of the leaf; it becomes the leaf."""
        at_leaf = self.branch
        self._take(entry)
        self._count((entry,))
        at_leaf.append(entry)

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

    def _count(self, entries: Iterable[Entry]) -> None:
        """Account for entries that are new."""
        if not self._first_said:
            self._first_said = first_user_text(entries)
        stored, by_user = count_messages(entries)
        self.message_counts = MessageCounts(
            self.message_counts.stored + stored, self.message_counts.by_user + by_user
        )
