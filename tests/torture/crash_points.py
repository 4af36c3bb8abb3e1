"""Where a server is killed: moments of a turn, told by messages and bytes and never by time."""

import random
from collections.abc import Callable
from typing import Any, Literal

import attrs

from tests.app_server.pipe import Message, text, tool

Turn = Literal["work", "wait", "flood"]
"""What the user says, and thereby which turn the script plays."""

_FLOOD = "for n in $(seq 400); do seq ${n}000 ${n}500; sleep 0.02; done"
_SLOW: dict[str, Any] = {"chunk": 3, "delayMs": 2}

SCRIPT: list[Any] = [
    # A whole turn: two replies with calls, of which two run side by side, then a last word.
    {
        "when": {"user": "work"},
        "steps": [
            {"thinking": "which file?", **_SLOW},
            text("I look at it.", **_SLOW),
            tool("read", path="a.txt"),
        ],
    },
    {
        "when": {"toolResult": "read"},
        "steps": [
            text("Now both.", **_SLOW),
            tool("bash", command="echo one; sleep 0.02; echo two; sleep 0.12; echo three"),
            tool("write", path="b.txt", content="{{request}}\n"),
        ],
    },
    {"when": {"toolResultText": ""}, "steps": [text("All is done.", **_SLOW)]},
    # Turns that go on until the server dies.
    {"when": {"user": "wait"}, "steps": [text("hold"), tool("bash", command="echo begun; sleep 600")]},
    {"when": {"user": "flood"}, "steps": [tool("bash", command=_FLOOD)]},
    {"when": {"user": ""}, "steps": [{"thinking": "hm"}, text("quick"), tool("read", path="a.txt")]},
]
"""What the model does, whichever server plays it and however often."""


@attrs.frozen
class Point:
    """A moment in a turn that the user began by saying `turn`.

    Attributes:
        after: `request`: nothing of what follows the request for the turn has been read; `lines`,
            `bytes`, `deltas`: so much has been read of the output since then, deltas being those of
            a command's output; `interrupt`: as `lines`, and an interrupt was written last.
        count: of what `after` names.
    """

    turn: Turn
    after: Literal["request", "lines", "bytes", "deltas", "interrupt"]
    count: int = 0


_KINDS: tuple[Callable[[random.Random], Point], ...] = (
    lambda chance: Point("work", "request"),
    lambda chance: Point("work", "lines", chance.randint(1, 44)),
    lambda chance: Point("work", "lines", chance.randint(1, 44)),
    lambda chance: Point("work", "bytes", chance.randint(1, 8_700)),
    lambda chance: Point("work", "bytes", chance.randint(1, 8_700)),
    lambda chance: Point("wait", "deltas", 1),
    lambda chance: Point("flood", "deltas", chance.randint(1, 4)),
    lambda chance: Point("flood", "bytes", chance.randint(2_000, 90_000)),
    lambda chance: Point("work", "interrupt", chance.randint(1, 44)),
    lambda chance: Point("wait", "interrupt", chance.randint(1, 9)),
)


def points(seed: int, count: int) -> list[Point]:
    """So many moments, of each kind in turn; the same for the same seed."""
    chance = random.Random(seed)
    return [_KINDS[number % len(_KINDS)](chance) for number in range(count)]


def name_of(message: Message, asked: dict[Any, str]) -> str:
    """What a message is, in a few words.

    Args:
        asked: the methods of the client's requests, under their ids.
    """
    if "method" not in message:
        return f"answer to {asked.get(message['id'], '?')}"
    item = message["params"].get("item")
    return message["method"] if item is None else f"{message['method']} {item['type']}"
