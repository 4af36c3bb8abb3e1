"""Who follows a thread, and in which order they are asked.

Source: App Server notes, "Subscriptions and replacement", "Routing".
"""

from collections.abc import Collection

import attrs

from knightcode.threads.notices import ConnectionId


@attrs.define
class _Place:
    subscribed: int
    started: int = 0


@attrs.define(eq=False)
class Subscribers:
    """The connections that follow one thread. Subscribing twice is once."""

    _places: dict[ConnectionId, _Place] = attrs.field(factory=dict, init=False)
    _initiator: ConnectionId | None = attrs.field(default=None, init=False)
    _steps: int = attrs.field(default=0, init=False)

    def __contains__(self, connection: ConnectionId) -> bool:
        return connection in self._places

    def add(self, connection: ConnectionId) -> None:
        """Subscribe."""
        if connection not in self._places:
            self._places[connection] = _Place(subscribed=self._step())

    def remove(self, connection: ConnectionId) -> bool:
        """Unsubscribe; whether it was subscribed."""
        return self._places.pop(connection, None) is not None

    def clear(self) -> None:
        """Nobody follows any more."""
        self._places.clear()

    def initiated(self, connection: ConnectionId) -> None:
        """The connection's start was accepted: it is asked first from now on, while it is subscribed."""
        self._initiator = connection
        if connection in self._places:
            self._places[connection].started = self._step()

    def all(self) -> Collection[ConnectionId]:
        """Every subscriber, in no particular order."""
        return self._places.keys()

    def in_order(self) -> list[ConnectionId]:
        """The initiator, then those who started most recently, then those who subscribed most recently."""
        return sorted(
            self._places,
            key=lambda one: (one == self._initiator, self._places[one].started, self._places[one].subscribed),
            reverse=True,
        )

    def _step(self) -> int:
        self._steps += 1
        return self._steps
