"""What the sweeps play, and what they do in the middle of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio

from knightcode.agent.hooks import Handled, Input
from tests.app_server.pipe import Message
from tests.torture.harness import Run, connect

PLAIN: list[Any] = [{"steps": [{"thinking": "hm"}, {"text": "one"}, {"text": "two"}]}]


def call(name: str, **arguments: Any) -> Message:
    return {"toolCall": {"name": name, "arguments": arguments}}


TOOLS: list[Any] = [
    {
        "steps": [
            {"text": "look"},
            call("read", path="a.txt"),
            call("bash", command="echo hi; sleep 0.01; echo there"),
            call("edit", path="a.txt", edits=[{"oldText": "one", "newText": "two"}]),
        ]
    },
    {"steps": [{"text": "done"}]},
]

ASKING: list[Any] = [
    {"steps": [{"text": "may I?"}, call("write", path="b.txt", content="b")]},
    {"steps": [{"text": "thanks"}]},
    {"steps": [{"text": "more"}]},
]

SUMMARY: Message = {"when": {"system": "You summarise"}, "steps": [{"text": "in short"}]}
FULL: list[Any] = [
    {"steps": [call("read", path="a.txt")], "usage": {"input": 95_000, "output": 10}},
    {"steps": [{"text": "done"}], "usage": {"input": 95_000, "output": 10}},
    SUMMARY,
]
SMALL = {"contextWindow": 100_000, "maxTokens": 10_000}

FAILING: list[Any] = [
    {"steps": [{"text": "be"}, {"error": "503 busy"}]},
    {"steps": [{"error": "503 busy"}]},
    {"steps": [{"text": "at last"}]},
]


def start(run: Run, text: str = "go", request_id: str = "turn") -> None:
    run.door.send(id=request_id, method="turn/start", params={"threadId": run.thread_id, "text": text})


async def one_turn(run: Run) -> None:
    """A start, to its end: with or without an interrupt on the way."""
    start(run)
    await run.settled()


async def resume_first(run: Run) -> None:
    """The thread is loaded for somebody else when the start comes, or is about to be."""
    run.door.send(id="load", method="thread/resume", params={"threadId": run.thread_id})
    await one_turn(run)


async def queued_inputs(run: Run) -> None:
    """Two inputs wait behind a turn; one more is taken out again."""
    start(run)
    for name in ("q1", "q2", "q3"):
        run.door.send(id=name, method="turn/queue/add", params={"threadId": run.thread_id, "text": name})
    run.door.drain()  # they are answered as they come
    answers = [one for one in run.door.heard if one.get("id") == "q2" and "result" in one]
    queue_id = answers[0]["result"]["queueId"] if answers else "none"
    run.door.send(
        id="remove", method="turn/queue/remove", params={"threadId": run.thread_id, "queueId": queue_id}
    )
    await run.settled()


async def compaction_and_start(run: Run) -> None:
    """A compaction on request, and a start that waits for it."""
    run.door.send(id="compact", method="thread/compact", params={"threadId": run.thread_id})
    start(run)
    await run.settled()


def steers_when_asked(run: Run) -> None:
    """A steer goes through slow `input` handlers while its turn waits for a person, who then agrees."""

    async def looks(given: Input | Handled) -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()

    def asked(question: Message) -> bool:
        params = question["params"]
        wanted = {"threadId": run.thread_id, "expectedTurnId": params["turnId"]}
        run.door.send(id="s1", method="turn/steer", params={**wanted, "text": "first"})
        run.door.send(id="s2", method="turn/steer", params={**wanted, "text": "second"})

        async def agree() -> None:
            await run.door.answer_to("s1")
            run.door.send(id=question["id"], result={"decision": "accept"})

        run.nursery.start_soon(agree)
        return False

    run.thread.hooks.input.add(looks)
    run.door.approve = asked


def nothing(run: Run) -> None:
    """Nothing to prepare."""


@attrs.frozen
class Scenario:
    """A script and what is done with it.

    Attributes:
        saved: begin with a thread that is not loaded.
        ends: how its turns end when nothing comes in between.
        stride: of the part that runs in the ordinary tests.
    """

    script: list[Any]
    play: Callable[[Run], Awaitable[None]] = one_turn
    saved: bool = False
    ends: tuple[str, ...] = ("completed",)
    settings: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    prepare: Callable[[Run], None] = nothing
    stride: int = 1


SCENARIOS = {
    "plain": Scenario(PLAIN, stride=2),
    "tools": Scenario(TOOLS, stride=23),
    "start of a saved thread": Scenario(PLAIN, saved=True, stride=5),
    "resume and start of a saved thread": Scenario(PLAIN, resume_first, saved=True, stride=5),
    "an open approval": Scenario(ASKING, stride=7),
    "steers in handlers": Scenario(ASKING, prepare=steers_when_asked, stride=9),
    "queued inputs": Scenario(PLAIN * 4, queued_inputs, ends=("completed",) * 3, stride=11),
    "tries": Scenario(FAILING, settings={"retry": {"baseDelayMs": 1}}, stride=5),
    "compaction between requests": Scenario(
        FULL, settings={"compaction": {"keepRecentTokens": 1}}, model=SMALL, stride=9
    ),
    "compaction on request": Scenario(
        [*PLAIN, SUMMARY],
        compaction_and_start,
        saved=True,
        ends=("completed", "completed"),
        settings={"compaction": {"keepRecentTokens": 1}},
        stride=7,
    ),
}


def interrupt(run: Run) -> None:
    run.door.send(id="interrupt", method="turn/interrupt", params={"threadId": run.thread_id})


def interrupt_twice(run: Run) -> None:
    interrupt(run)
    run.door.send(id="again", method="turn/interrupt", params={"threadId": run.thread_id})


def disconnect(run: Run) -> None:
    run.host.disconnect(run.door.connection)


def second_start(run: Run) -> None:
    start(run, "more", "second")


def resume_elsewhere(run: Run) -> None:
    other = connect(run.host, run.nursery)
    other.send(id="resume", method="thread/resume", params={"threadId": run.thread_id})


def unload(run: Run) -> None:
    thread = run.host.manager.loaded(run.thread_id)
    if thread is not None:
        thread.unload("unload")


def unload_and_start(run: Run) -> None:
    unload(run)
    second_start(run)


def shut_down(run: Run) -> None:
    run.host.manager.refuse_new_work()


INJECTIONS: dict[str, Callable[[Run], None]] = {
    "interrupt": interrupt,
    "two interrupts": interrupt_twice,
    "disconnect": disconnect,
    "second start": second_start,
    "resume elsewhere": resume_elsewhere,
    "unload": unload,
    "unload and start": unload_and_start,
    "shutdown": shut_down,
}
