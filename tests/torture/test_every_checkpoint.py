"""Something happens at every single checkpoint of a scenario, and every beginning still has one end.

The whole sweep is `nox -s torture`; the ordinary tests take every n-th step of it.

Source: architecture, "The cancellation model".
"""

from pathlib import Path
from typing import Any

import pytest

from tests.torture.harness import Run, run_scenario
from tests.torture.scenarios import INJECTIONS, PLAIN, SCENARIOS, Scenario, one_turn


async def sweep(tmp_path: Path, scenario: Scenario, injection: str, stride: int) -> int:
    """Play the scenario once for each n-th of its steps, with the injection there; how often it came."""

    def ended_well(run: Run) -> None:
        ends = [
            one["params"]["turn"]["status"] for one in run.door.heard if one.get("method") == "turn/completed"
        ]
        assert ends == list(scenario.ends)

    async def run(name: str, **more: Any) -> tuple[int, bool]:
        return await run_scenario(
            tmp_path / name.replace(" ", "-"),
            scenario.script,
            scenario.play,
            saved=scenario.saved,
            settings=scenario.settings,
            model=scenario.model,
            prepare=scenario.prepare,
            **more,
        )

    steps, _ = await run("count", finish=ended_well)
    fired = 0
    for at in range(1, steps + 1, stride):
        _, happened = await run(f"{injection}-{at}", at=at, inject=INJECTIONS[injection])
        fired += happened
    return fired


@pytest.mark.rule("S22", "S23", "S81")
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_some_checkpoints(
    tmp_path: Path, scenario: str, injection: str
) -> None:
    """A part of the sweep."""
    chosen = SCENARIOS[scenario]
    assert await sweep(tmp_path, chosen, injection, chosen.stride) > 3


@pytest.mark.rule("S22", "S23", "S81")
@pytest.mark.torture
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("injection", INJECTIONS)
async def test_every_beginning_has_one_end_at_every_checkpoint(
    tmp_path: Path, scenario: str, injection: str, sweeps: dict[tuple[str, str], int]
) -> None:
    """The whole sweep, three times: trio chooses another order of tasks each time."""
    for turn in range(3):
        fired = await sweep(tmp_path / str(turn), SCENARIOS[scenario], injection, stride=1)
        assert fired > 8
        sweeps[scenario, injection] = sweeps.get((scenario, injection), 0) + fired


async def test_the_check_finds_a_turn_without_an_end(tmp_path: Path) -> None:
    """The invariants are not empty: a run whose completion is taken away does not pass."""

    def lose_the_end(run: Run) -> None:
        run.door.heard[:] = [one for one in run.door.heard if one.get("method") != "turn/completed"]

    with pytest.raises(AssertionError):
        await run_scenario(tmp_path, PLAIN, one_turn, finish=lose_the_end)
