"""A thread as a client knows it: what `thread/resume` answered, and everything told afterwards.

A mirror knows nothing of the server's code. It refuses what it does not understand, so that nothing
is left out of a comparison by accident.

Source: App Server, "Subscriptions and replacement", "Threads and turns".
"""

import copy
from collections.abc import Callable
from typing import Any

import attrs

from tests.app_server.pipe import Message

PASSING = {"thread/started", "thread/turn/completed", "turn/retry", "warning", "error"}
"""Told once, and in no snapshot."""

SETTINGS = ("model", "thinkingLevel", "approvalMode")
PROVISIONAL = ("startedAt", "completedAt", "clientMessageId", "tokensAfter")
"""Members of items that may differ between the live turn and the saved one."""


@attrs.define(eq=False)
class Mirror:
    """One client's view of one thread.

    Attributes:
        status, settings: of the thread.
        running: the turn that runs, with its items in order.
        ended: the turns that are over, oldest first, with their items.
    """

    status: Message
    settings: Message
    queue: Message
    usage: Message
    running: Message | None
    ended: list[Message]

    @classmethod
    def of(cls, resumed: Message) -> "Mirror":
        """What the result of a `thread/resume` says."""
        resumed = copy.deepcopy(resumed)
        thread = resumed["thread"]
        return cls(
            status=thread["status"],
            settings={name: thread.get(name) for name in SETTINGS},
            queue=resumed["queue"],
            usage=resumed["usage"],
            running=resumed.get("runningTurn"),
            ended=resumed["turns"],
        )

    def apply(self, message: Message) -> None:
        """Take in a notification."""
        method, params = message["method"], copy.deepcopy(message["params"])
        if method not in PASSING:
            _STEPS[method](self, params)

    def state(self) -> Message:
        """All of it, comparable: two clients that know the same have equal states."""
        running = None if self.running is None else {**self.running, "items": self._in_order()}
        ended = [{**turn, "items": _lasting(turn["items"])} for turn in self.ended]
        return copy.deepcopy({**attrs.asdict(self), "running": running, "ended": ended})

    # --- inside ----------------------------------------------------------------------------------

    def _in_order(self) -> list[Message]:
        """The items by their index; nested calls behind the call that made them."""
        assert self.running is not None
        items = {item["id"]: item for item in self.running["items"]}

        def place(item: Message) -> int:
            while "parentItemId" in item:
                item = items[item["parentItemId"]]
            index: int = item["index"]
            return index

        return sorted(items.values(), key=place)

    def _item(self, params: Message) -> Message:
        (item,) = (one for one in self._items_of(params) if one["id"] == params["itemId"])
        return item

    def _items_of(self, params: Message) -> list[Message]:
        assert self.running is not None, f"no turn runs, and yet: {params}"
        assert params["turnId"] == self.running["id"]
        items: list[Message] = self.running["items"]
        return items

    def _status(self, params: Message) -> None:
        assert params["status"] != self.status, "a status was told twice"
        self.status = params["status"]

    def _settings(self, params: Message) -> None:
        self.settings = {name: params.get(name) for name in SETTINGS}

    def _usage(self, params: Message) -> None:
        self.usage = params["usage"]

    def _queue(self, params: Message) -> None:
        self.queue = {"steering": params["steering"], "followUp": params["followUp"]}

    def _turn_started(self, params: Message) -> None:
        assert self.running is None, "two turns run"
        self.running = params["turn"]

    def _turn_completed(self, params: Message) -> None:
        assert self.running is not None
        assert params["turn"]["id"] == self.running["id"]
        self.ended.append({**params["turn"], "items": self._in_order()})
        self.running = None

    def _item_started(self, params: Message) -> None:
        items = self._items_of(params)
        assert params["item"]["id"] not in {item["id"] for item in items}, "an item began twice"
        items.append(params["item"])

    def _item_completed(self, params: Message) -> None:
        items = self._items_of(params)
        for place, item in enumerate(items):
            if item["id"] == params["item"]["id"]:
                items[place] = params["item"]
                return
        items.append(params["item"])  # one that never began: a call that was not reached

    def _item_removed(self, params: Message) -> None:
        self._items_of(params).remove(self._item(params))

    def _text(self, params: Message) -> None:
        self._item(params)["text"] += params["delta"]

    def _output(self, params: Message) -> None:
        item = self._item(params)
        before = "" if params.get("replace") else "".join(part["text"] for part in item["output"])
        item["output"] = [{"type": "text", "text": before + params["delta"]}]


def _lasting(items: list[Message]) -> list[Message]:
    """A turn's items as both the live turn and the saved one show them: nested calls are not saved."""
    kept = [item for item in items if "parentItemId" not in item]
    return [{name: value for name, value in item.items() if name not in PROVISIONAL} for item in kept]


_STEPS: dict[str, Callable[[Mirror, Any], None]] = {
    "thread/status/changed": Mirror._status,
    "thread/settings/updated": Mirror._settings,
    "thread/tokenUsage/updated": Mirror._usage,
    "turn/queue/updated": Mirror._queue,
    "turn/started": Mirror._turn_started,
    "turn/completed": Mirror._turn_completed,
    "item/started": Mirror._item_started,
    "item/completed": Mirror._item_completed,
    "item/removed": Mirror._item_removed,
    "item/agentMessage/delta": Mirror._text,
    "item/reasoning/delta": Mirror._text,
    "item/toolCall/outputDelta": Mirror._output,
}
