"""A branch with what its entries add up to, both growing entry by entry. No I/O.

Source: Session files, "Tree and leaf", "Rebuilding context".
"""

from collections.abc import Sequence

import attrs

from knightcode.sessions.context import GrowingContext, SessionContext
from knightcode.sessions.entries import CustomEntry, Entry


@attrs.define(eq=False)
class Branch:
    """The entries from the root to a leaf; an append costs the same on a long branch as on a short one."""

    _entries: list[Entry]
    _custom: dict[str, CustomEntry] = attrs.field(init=False)
    _context: GrowingContext | None = attrs.field(default=None, init=False)  # None: to be made when wanted

    def __attrs_post_init__(self) -> None:
        self._custom = {entry.custom_type: entry for entry in self._entries if type(entry) is CustomEntry}

    @property
    def entries(self) -> Sequence[Entry]:
        """Root first. This is no copy: the next append adds to it."""
        return self._entries

    def append(self, entry: Entry) -> None:
        """Continue the branch."""
        self._entries.append(entry)
        if isinstance(entry, CustomEntry):
            self._custom[entry.custom_type] = entry
        if self._context is not None and not self._context.add(entry):
            self._context = None

    def context(self) -> SessionContext:
        """What a model is told at the leaf. Long only the first time, and after a compaction or an edit."""
        if self._context is None:
            self._context = GrowingContext.of(self._entries)
        return self._context.context()

    def last_custom(self, custom_type: str) -> CustomEntry | None:
        """The latest data that a program left on the branch."""
        return self._custom.get(custom_type)
