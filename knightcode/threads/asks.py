"""What a thread is asking a person right now, and the one router that decides who is asked.

An ask is put to one subscriber at a time. It ends once: by an answer, by being withdrawn, or because
nobody is left. All changes are synchronous; the caller that waits is woken afterwards.

Source: App Server, "Approvals"; App Server notes, "Routing", "Approvals and dialogs".
"""

from collections.abc import Callable
from typing import Protocol

import attrs
import trio

from knightcode.gates.approvals import Question, Verdict, verdict_of
from knightcode.threads.notices import ConnectionId, WaitingOn
from knightcode.threads.subscribers import Subscribers


@attrs.frozen
class ApprovalAsk:
    """An approval as a client is asked for it."""

    thread_id: str
    turn_id: str
    item_id: str
    question: Question
    parent_item_id: str | None = None


class Asker(Protocol):
    """Puts an ask to a connection. Both calls return at once."""

    def ask(self, connection: ConnectionId, ask: ApprovalAsk, answered: Callable[[object], None]) -> str:
        """Send it; `answered` gets the result, None for an error response. Returns the request's id."""

    def reaches(self, connection: ConnectionId) -> bool:
        """Whether the connection is still there."""

    def withdraw(self, connection: ConnectionId, thread_id: str, request_id: str) -> None:
        """Tell the connection that the request needs no answer any more; a later answer is ignored."""


@attrs.define(eq=False)
class _Open:
    ask: ApprovalAsk
    ended: trio.Event = attrs.field(factory=trio.Event)
    verdict: Verdict | None = None
    connection: ConnectionId | None = None
    request_id: str = ""
    attempt: int = 0


@attrs.define(eq=False)
class AskTable:
    """All open asks of one thread.

    Attributes:
        changed: called after the first ask of a kind opened and the last one ended.
    """

    subscribers: Subscribers
    asker: Asker
    changed: Callable[[], None]
    _open: list[_Open] = attrs.field(factory=list, init=False)
    _announced: tuple[WaitingOn, ...] = attrs.field(default=(), init=False)

    def waiting_on(self) -> tuple[WaitingOn, ...]:
        """The kinds that are open, approvals first."""
        return ("approval",) if self._open else ()

    async def approval(self, ask: ApprovalAsk) -> Verdict:
        """Ask, and wait for the verdict; `cancel` when nobody can be asked."""
        if not self.subscribers.all():
            await trio.lowlevel.checkpoint()
            return Verdict("cancel")
        entry = _Open(ask)
        self._open.append(entry)
        self._announce()
        self._put(entry)
        try:
            await entry.ended.wait()
        finally:
            self._end(entry, Verdict("cancel"))  # changes nothing when it has ended
        assert entry.verdict is not None
        return entry.verdict

    def withdraw_all(self) -> None:
        """End every ask as `cancel`: the turn is interrupted, or the thread ends."""
        for entry in tuple(self._open):
            self._end(entry, Verdict("cancel"))

    def connection_left(self, connection: ConnectionId) -> None:
        """The connection unsubscribed or is gone: what it was asked goes to the next subscriber."""
        for entry in tuple(self._open):
            if entry.connection == connection:
                self.asker.withdraw(connection, entry.ask.thread_id, entry.request_id)
                self._put(entry)

    def _put(self, entry: _Open) -> None:
        entry.attempt += 1
        attempt = entry.attempt
        candidates = self.subscribers.in_order()
        if not candidates:
            entry.connection = None
            self._end(entry, Verdict("cancel"))
            return
        entry.connection = candidates[0]

        def answered(result: object) -> None:
            if entry.attempt == attempt:
                entry.connection = None
                self._end(entry, verdict_of(entry.ask.question, result))

        entry.request_id = self.asker.ask(entry.connection, entry.ask, answered)

    def _end(self, entry: _Open, verdict: Verdict) -> None:
        if entry.verdict is not None:
            return
        entry.verdict = verdict
        if entry.connection is not None:
            self.asker.withdraw(entry.connection, entry.ask.thread_id, entry.request_id)
            entry.connection = None
        self._open.remove(entry)
        self._announce()
        entry.ended.set()

    def _announce(self) -> None:
        if self.waiting_on() != self._announced:
            self._announced = self.waiting_on()
            self.changed()
