"""Something happens at every single checkpoint of a turn, and every beginning still has one end.

The whole sweep is `nox -s torture`; the ordinary tests take every n-th step of it.

Source: architecture, "The cancellation model".
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

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

SCRIPTS = {"plain": PLAIN, "tools": TOOLS}


async def one_turn(run: Run) -> None:
    """A start, to its end: with or without an interrupt on the way."""
    run.door.send(id="turn", method="turn/start", params={"threadId": run.thread_id, "text": "go"})
    if not run.door.connection.core.outbox.closed:
        await run.settled()


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


async def sweep(tmp_path: Path, script: str, injection: str, stride: int, offset: int = 0) -> int:
    def completed(run: Run) -> None:
        ends = [
            one["params"]["turn"]["status"] for one in run.door.heard if one.get("method") == "turn/completed"
        ]
        assert ends == ["completed"]

    steps, _ = await run_scenario(tmp_path / "count", SCRIPTS[script], one_turn, finish=completed)
    fired = 0
    for at in range(1 + offset, steps + 1, stride):
        _, happened = await run_scenario(
            tmp_path / f"{injection}-{at}".replace(" ", "-"),
            SCRIPTS[script],
            one_turn,
            at=at,
            inject=INJECTIONS[injection],
        )
        fired += happened
    return fired


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_some_checkpoints(
    tmp_path: Path, script: str, injection: str
) -> None:
    """A part of the sweep: all steps of a plain turn, some of one with tools."""
    assert await sweep(tmp_path, script, injection, stride=1 if script == "plain" else 13) > 3


@pytest.mark.torture
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_every_checkpoint(
    tmp_path: Path, script: str, injection: str
) -> None:
    """The whole sweep."""
    assert await sweep(tmp_path, script, injection, stride=1) > (8 if script == "plain" else 40)


async def test_the_check_finds_a_turn_without_an_end(tmp_path: Path) -> None:
    """The invariants are not empty: a run whose completion is taken away does not pass."""

    def lose_the_end(run: Run) -> None:
        run.door.heard[:] = [one for one in run.door.heard if one.get("method") != "turn/completed"]

    with pytest.raises(AssertionError):
        await run_scenario(tmp_path, PLAIN, one_turn, finish=lose_the_end)
