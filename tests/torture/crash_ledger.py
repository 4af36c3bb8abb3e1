"""What a client was told before a server died, held against the file and against the next server.

Promised is: what was announced is in the file, so the next server tells the same. What was not
announced may be there or not, but only as something that the dead server did last.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.app_server.pipe import Message


def same_bytes(some: object, others: object) -> bool:
    """Whether two decoded values have one text: the same members with the same values in the same order."""
    return json.dumps(some) == json.dumps(others)


@attrs.define(eq=False)
class ToldTurn:
    """One turn as its notifications tell it; `completed` is the turn of `turn/completed`."""

    completed: Message | None = None
    items: dict[str, Message] = attrs.field(factory=dict)  # those that are complete, by id

    def hear(self, method: str, params: Message) -> None:
        """Take in a notification of this turn."""
        match method:
            case "item/completed":
                self.items[params["item"]["id"]] = params["item"]
            case "item/removed":
                self.items.pop(params["itemId"], None)
            case "turn/completed":
                self.completed = params["turn"]

    @property
    def in_order(self) -> list[Message]:
        """The complete items as a history shows them."""
        return sorted(self.items.values(), key=lambda item: item["index"])


@attrs.define(eq=False)
class SessionFile:
    """What a session file says, read with nothing but `json`."""

    ends: dict[str, Message] = attrs.field(factory=dict)  # end markers, under their turns' ids
    answered: set[str] = attrs.field(factory=set)  # ids of the calls that have a result

    @classmethod
    def check(cls, data: bytes, before: bytes) -> "SessionFile":
        """Read a file that one server has gone on with since it held `before`.

        It may have appended whole lines and, if it died, the beginning of one more; nothing else.
        """
        assert data.startswith(before), "the file is no continuation of what it was"
        *whole, _ = data[len(before) :].split(b"\n")
        assert [line for line in whole if line and _parse(line) is None] == []
        file = cls()
        for line in data.split(b"\n"):
            entry = _parse(line) or {}
            if entry.get("type") == "turn_end":
                file.ends.setdefault(entry["turnId"], entry)
            elif entry.get("type") == "message" and entry["message"]["role"] == "toolResult":
                file.answered.add(entry["message"]["toolCallId"])
        return file


@attrs.define(eq=False)
class Ledger:
    """All that clients were told of one thread, over the lives of several servers.

    Attributes:
        settled: the turns that a server which had just begun read from the file; they never change.
        told: the turns that were announced since, in their order.
    """

    thread_id: str
    settled: list[Message] = attrs.field(factory=list)
    told: dict[str, ToldTurn] = attrs.field(factory=dict)
    bytes_before: bytes = b""

    def hear(self, messages: Sequence[Message]) -> None:
        """Take in what one server wrote."""
        for message in messages:
            method, params = message.get("method", ""), message.get("params", {})
            if params.get("threadId") != self.thread_id or "id" in message:
                continue
            if method == "turn/started":
                self.told[params["turn"]["id"]] = ToldTurn()
            elif method == "turn/completed":
                self.told[params["turn"]["id"]].hear(method, params)
            elif method.startswith("item/"):
                self.told[params["turnId"]].hear(method, params)

    @property
    def may_be_lost(self) -> bool:
        """Whether nothing was announced that is in the file: no reply was complete, and no turn."""
        return not self.settled and not any(
            turn.completed or any(item["type"] != "userMessage" for item in turn.items.values())
            for turn in self.told.values()
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether the last turn that was announced is over."""
        return not self.told or list(self.told.values())[-1].completed is not None

    def check(self, path: Path, turns: list[Message]) -> None:
        """Compare the turns that a new server reads, oldest first, with what was told, and with the file."""
        data = path.read_bytes()
        file = SessionFile.check(data, self.bytes_before)
        assert same_bytes(turns[: len(self.settled)], self.settled), "a turn of the past has changed"
        found = turns[len(self.settled) :]
        missing = list(self.told)[len(found) :]
        assert [turn["id"] for turn in found][: len(self.told)] == list(self.told)[: len(found)]
        assert not missing or self.may_be_lost, "an announced turn is missing"
        assert len(found) <= len(self.told) + 1, "more than one turn began unheard"
        for turn in found:
            _check_turn(turn, self.told.get(turn["id"], ToldTurn()), file, may_miss=self.may_be_lost)
        self.settled, self.told, self.bytes_before = turns, {}, data


def _check_turn(turn: Message, told: ToldTurn, file: SessionFile, *, may_miss: bool) -> None:
    if told.completed is not None:
        assert same_bytes(turn, {**told.completed, "items": told.in_order})
        return
    end = file.ends.get(turn["id"])  # its marker can be there although nobody has heard of it
    assert turn["status"] == ("interrupted" if end is None else end["status"])
    assert ("completedAt" in turn) is (end is not None)
    again = [item for item in turn["items"] if item["id"] in told.items]
    assert same_bytes(again, told.in_order[: len(again)] if may_miss else told.in_order)
    for item in turn["items"]:
        if item["type"] == "toolCall":
            assert item["status"] in ("completed", "failed")
            if item["id"] not in file.answered:
                assert (item["status"], "completedAt" in item) == ("failed", False)


def session_files(home: Path) -> dict[str, Path]:
    """The session files that have their header, under the ids of their sessions."""
    found = {}
    for path in (home / "agent" / "sessions").rglob("*.jsonl"):
        header = _parse(path.read_bytes().partition(b"\n")[0])
        if header is not None:
            found[header["id"]] = path
    return found


def has_user_message(path: Path) -> bool:
    """Whether somebody said something in a session; one in which nobody did is not listed."""
    entries = [_parse(line) or {} for line in path.read_bytes().split(b"\n")]
    return any(entry.get("message", {}).get("role") == "user" for entry in entries)


def _parse(line: bytes) -> Message | None:
    """The object on a line; None for a line that is not whole."""
    try:
        entry: Message = json.loads(line)
    except ValueError:
        return None
    return entry
