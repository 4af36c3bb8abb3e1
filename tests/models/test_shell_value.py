"""A command that prints a value: what it gives, and that it leaves nothing. With real children."""

import os
from pathlib import Path

import pytest
import trio

from knightcode.models.shell_value import ShellFailedError, run_for_output
from knightcode.processes.children import kill_all_now, live_groups
from tests.processes.facts import pids_in, runs

ESCAPED = "setsid sh -c 'echo $$ >> pids; exec sleep 600' >/dev/null 2>&1 &"
"""A process in a session of its own, where a signal to the command's group does not reach it."""


async def run(command: str, folder: Path, *, seconds: float = 5.0) -> bytes | str:
    """What the command printed in `folder`, or why there is nothing."""
    environ = {"PATH": os.environ["PATH"], "FOLDER": str(folder)}
    try:
        return await run_for_output(f"cd $FOLDER; {command}", environ, seconds=seconds, limit_bytes=100)
    except ShellFailedError as error:
        return str(error)


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("echo out; echo err >&2; cat", b"out\n"),
        ("printf %0100d 0", b"0" * 100),
        ("printf %0101d 0", "printed more than 100 bytes"),
        ("exit 3", "ended with status 3"),
        ("kill -TERM $$", "ended with status 143"),
        ("echo a\0b", "could not be started: embedded null byte"),
    ],
)
async def test_a_command_gives_what_it_printed_or_the_reason_why_not(
    tmp_path: Path, command: str, outcome: bytes | str
) -> None:
    """Models and providers, "Value syntax"."""
    with trio.fail_after(10):
        assert await run(command, tmp_path) == outcome


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (f"{ESCAPED} until test -s pids; do :; done; echo done", b"done\n"),
        (f"{ESCAPED} exec sleep 600", "took longer than 0.3 s"),
        (f"{ESCAPED} exec >&-; exec sleep 600", "took longer than 0.3 s"),
    ],
    ids=["ended", "too long", "silent"],
)
async def test_what_left_the_group_of_a_command_ends_with_it(
    tmp_path: Path, command: str, outcome: bytes | str
) -> None:
    with trio.fail_after(10):
        seconds = 5.0 if isinstance(outcome, bytes) else 0.3
        assert await run(command, tmp_path, seconds=seconds) == outcome
        (pid,) = await pids_in(tmp_path, 1)
    assert (runs(pid), live_groups()) == (False, ())


async def test_a_forced_exit_kills_a_command_with_all_that_it_started(tmp_path: Path) -> None:
    outcome: bytes | str = b""

    async def keep() -> None:
        nonlocal outcome
        outcome = await run(f"{ESCAPED} exec sleep 600", tmp_path)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep)
            (pid,) = await pids_in(tmp_path, 1)
            assert len(live_groups()) == 1
            kill_all_now()
    assert (outcome, runs(pid)) == ("ended with status 137", False)


async def test_an_interrupted_command_leaves_nothing(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, f"{ESCAPED} exec sleep 600", tmp_path)
            (pid,) = await pids_in(tmp_path, 1)
            nursery.cancel_scope.cancel()
    assert (runs(pid), live_groups()) == (False, ())
