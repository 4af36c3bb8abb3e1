"""Any order of what clients can do, with any order of the tasks in every step, keeps the rules.

The machine writes a schedule, one request after the other, and plays it at its end: so a failing one
shrinks to the few requests that matter.

Source: docs/cancellation-rules.md.
"""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.torture.schedules import KINDS, play

kinds = st.sampled_from(KINDS)


class Schedule(RuleBasedStateMachine):
    """What is done, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, Any]] = []
        self.seed = 0

    @initialize(seed=st.integers(0, 2**16))
    def shuffle_tasks(self, seed: int) -> None:
        self.seed = seed

    @rule(kind=kinds)
    def start(self, kind: str) -> None:
        self.steps.append(("start", (kind,)))

    @rule(kind=kinds, count=st.integers(0, 40))
    def start_at_rest(self, kind: str, count: int) -> None:
        """A start that is admitted, and gets some way."""
        self.steps += [("rest", None), ("start", (kind,)), ("steps", count)]

    @rule(stale=st.booleans())
    def steer(self, stale: bool) -> None:
        self.steps.append(("steer", stale))

    @rule(kind=kinds)
    def queue(self, kind: str) -> None:
        self.steps.append(("queue", (kind,)))

    @rule(which=st.integers(0, 5))
    def remove(self, which: int) -> None:
        self.steps.append(("remove", (which,)))

    @rule(how=st.sampled_from(["any", "current", "stale"]))
    def interrupt(self, how: str) -> None:
        self.steps.append(("interrupt", (how,)))

    @rule(decision=st.sampled_from(["accept", "decline", "cancel", "no such word"]))
    def answer(self, decision: str) -> None:
        self.steps.append(("answer", (decision,)))

    @rule()
    def answer_again(self) -> None:
        self.steps.append(("answer_again", ()))

    @rule()
    def compact(self) -> None:
        self.steps.append(("compact", ()))

    @rule()
    def disconnect(self) -> None:
        self.steps.append(("disconnect", ()))

    @rule()
    def resume(self) -> None:
        self.steps.append(("resume", ()))

    @rule()
    def unload(self) -> None:
        self.steps.append(("unload", None))

    @rule(count=st.integers(1, 12))
    def let_tasks_run(self, count: int) -> None:
        self.steps.append(("steps", count))

    @rule(seconds=st.sampled_from([0.1, 0.8, 2.5, 30.0, 700.0]))
    def pass_time(self, seconds: float) -> None:
        self.steps.append(("pass_time", seconds))

    def teardown(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play(self.steps, self.seed, Path(folder) / "run")


def run_machine(examples: int, steps: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(
        Schedule,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.rule("S2", "S3", "S22", "S23", "S26", "S28", "S30", "S31", "S33", "S40", "S81", "S86")
def test_some_schedules_keep_the_rules() -> None:
    run_machine(40, 25, derandomize=True)


@pytest.mark.torture
def test_many_schedules_keep_the_rules() -> None:
    run_machine(1_500, 50, derandomize=False)
