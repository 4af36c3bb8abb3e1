"""The one switch that stops a turn.

A turn is not cancelled as a whole: the loop has to store what arrived, complete every item and end
the turn in the file. So the switch cancels only the scope that the loop is waiting in at the moment
(a model's stream, the wait for tools), and every later wait ends at once.

Source: agent loop, "Abort"; App Server, "Threads and turns".
"""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio


@attrs.define(eq=False)
class Interrupt:
    """Thrown at most once; throwing again changes nothing. Returns at once, waits for nothing."""

    _why: str | None = attrs.field(default=None, init=False)
    _scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False, repr=False)

    @property
    def thrown(self) -> bool:
        """Whether the turn is to stop."""
        return self._why is not None

    def throw(self, why: str) -> None:
        """Stop the turn; `why` goes into the Cancelled of whatever is waiting."""
        if self._why is None:
            self._why = why
            for scope in tuple(self._scopes):
                scope.cancel(reason=why)

    @contextmanager
    def stops(self) -> Iterator[trio.CancelScope]:
        """A scope that the interrupt cancels; cancelled from the start if it was thrown before."""
        with trio.CancelScope() as scope:
            if self._why is not None:
                scope.cancel(reason=self._why)
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)
