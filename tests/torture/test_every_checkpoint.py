"""Something happens at every single checkpoint of a turn, and every beginning still has one end.

The whole sweep is `nox -s torture`; the ordinary tests take every n-th step of it.

Source: architecture, "The cancellation model".
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.torture.harness import Run, connect, run_scenario

PLAIN: list[Any] = [{"steps": [{"thinking": "hm"}, {"text": "one"}, {"text": "two"}]}]

TOOLS: list[Any] = [
    {
        "steps": [
            {"text": "look"},
            {"toolCall": {"name": "read", "arguments": {"path": "a.txt"}}},
            {"toolCall": {"name": "bash", "arguments": {"command": "echo hi; sleep 0.01; echo there"}}},
            {
                "toolCall": {
                    "name": "edit",
                    "arguments": {"path": "a.txt", "edits": [{"oldText": "one", "newText": "two"}]},
                }
            },
        ]
    },
    {"steps": [{"text": "done"}]},
]


async def one_turn(run: Run) -> None:
    """A start, to its end: with or without an interrupt on the way."""
    run.door.send(id="turn", method="turn/start", params={"threadId": run.thread_id, "text": "go"})
    await run.settled()


async def resume_first(run: Run) -> None:
    """The thread is loaded for somebody else when the start comes, or is about to be."""
    run.door.send(id="load", method="thread/resume", params={"threadId": run.thread_id})
    await one_turn(run)


@attrs.frozen
class Scenario:
    """A script and what is done with it; `saved` begins with a thread that is not loaded."""

    script: list[Any]
    play: Callable[[Run], Awaitable[None]] = one_turn
    saved: bool = False
    stride: int = 1  # of the part that runs in the ordinary tests


SCENARIOS = {
    "plain": Scenario(PLAIN),
    "tools": Scenario(TOOLS, stride=13),
    "start of a saved thread": Scenario(PLAIN, saved=True, stride=2),
    "resume and start of a saved thread": Scenario(PLAIN, resume_first, saved=True, stride=2),
}


def interrupt(run: Run) -> None:
    run.door.send(id="interrupt", method="turn/interrupt", params={"threadId": run.thread_id})


def interrupt_twice(run: Run) -> None:
    interrupt(run)
    run.door.send(id="again", method="turn/interrupt", params={"threadId": run.thread_id})


def disconnect(run: Run) -> None:
    run.host.disconnect(run.door.connection)


def unsubscribe(run: Run) -> None:
    run.door.send(id="leave", method="thread/unsubscribe", params={"threadId": run.thread_id})


def second_start(run: Run) -> None:
    run.door.send(id="second", method="turn/start", params={"threadId": run.thread_id, "text": "more"})


def resume_elsewhere(run: Run) -> None:
    other = connect(run.host, run.nursery)
    other.send(id="resume", method="thread/resume", params={"threadId": run.thread_id})


def shut_down(run: Run) -> None:
    run.host.manager.refuse_new_work()


INJECTIONS: dict[str, Callable[[Run], None]] = {
    "interrupt": interrupt,
    "two interrupts": interrupt_twice,
    "disconnect": disconnect,
    "second start": second_start,
    "resume elsewhere": resume_elsewhere,
    "shutdown": shut_down,
}


async def sweep(tmp_path: Path, scenario: Scenario, injection: str, stride: int) -> int:
    def completed(run: Run) -> None:
        ends = [
            one["params"]["turn"]["status"] for one in run.door.heard if one.get("method") == "turn/completed"
        ]
        assert ends == ["completed"]

    async def run(name: str, **more: Any) -> tuple[int, bool]:
        folder = tmp_path / name.replace(" ", "-")
        return await run_scenario(folder, scenario.script, scenario.play, saved=scenario.saved, **more)

    steps, _ = await run("count", finish=completed)
    fired = 0
    for at in range(1, steps + 1, stride):
        _, happened = await run(f"{injection}-{at}", at=at, inject=INJECTIONS[injection])
        fired += happened
    return fired


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_some_checkpoints(
    tmp_path: Path, scenario: str, injection: str
) -> None:
    """A part of the sweep: all steps of a plain turn, some of the others."""
    chosen = SCENARIOS[scenario]
    assert await sweep(tmp_path, chosen, injection, chosen.stride) > 3


@pytest.mark.torture
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_every_checkpoint(
    tmp_path: Path, scenario: str, injection: str
) -> None:
    """The whole sweep, three times: trio chooses another order of tasks each time."""
    for turn in range(3):
        assert await sweep(tmp_path / str(turn), SCENARIOS[scenario], injection, stride=1) > 8


async def test_the_check_finds_a_turn_without_an_end(tmp_path: Path) -> None:
    """The invariants are not empty: a run whose completion is taken away does not pass."""

    def lose_the_end(run: Run) -> None:
        run.door.heard[:] = [one for one in run.door.heard if one.get("method") != "turn/completed"]

    with pytest.raises(AssertionError):
        await run_scenario(tmp_path, PLAIN, one_turn, finish=lose_the_end)
