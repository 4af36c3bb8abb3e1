"""Source: agent loop, "bash". With real shells."""

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.agent.tools.bash import BashTool
from knightcode.processes.children import live_groups
from tests.agent.tools.calls import call_context, failure, text
from tests.processes.facts import pids_in, runs

BASH = BashTool()


@pytest.fixture(autouse=True)
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the test's own for logs."""
    before, folder = tempfile.tempdir, tmp_path_factory.mktemp("logs")
    tempfile.tempdir = str(folder)
    yield folder
    tempfile.tempdir = before


async def bash(context: ToolContext, command: str, **more: object) -> ToolResult:
    with trio.fail_after(10):
        return await BASH.execute({"command": command, **more}, context)


async def interrupted(context: ToolContext, command: str, pids: int) -> tuple[list[int], ToolResult]:
    """Interrupt a command once it has named its processes; they, and the result as the loop makes it."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bash, context, command)
            found = await pids_in(context.cwd, pids)
            nursery.cancel_scope.cancel()
    return found, context.aborted()


async def test_output_and_errors_come_back_together_in_their_order(tmp_path: Path) -> None:
    result = await bash(call_context(tmp_path), "echo one; echo two >&2; echo three")
    assert result == ToolResult.of_text("one\ntwo\nthree\n")


async def test_a_silent_success_says_so(tmp_path: Path) -> None:
    assert await bash(call_context(tmp_path), "true") == ToolResult.of_text("(no output)")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo out; exit 3", "out\n\nCommand exited with code 3"),
        ("printf out; exit 3", "out\n\nCommand exited with code 3"),
        ("exit 1", "Command exited with code 1"),
        ("kill -9 $$", "Command exited with code 137"),
        ("no-such-program 2> /dev/null", "Command exited with code 127"),
    ],
)
async def test_a_failing_command_is_an_error_with_its_output_and_code(
    tmp_path: Path, command: str, told: str
) -> None:
    result = await bash(call_context(tmp_path), command)
    assert result == ToolResult.of_text(told, details={}, is_error=True)


async def test_a_command_out_of_time_is_ended_and_keeps_its_output(tmp_path: Path) -> None:
    result = await bash(call_context(tmp_path), "echo $$ > pids; echo out; sleep 600", timeout=0.25)
    assert result == ToolResult.of_text(
        "out\n\nCommand timed out after 0.25 seconds", details={}, is_error=True
    )
    assert not runs(int((tmp_path / "pids").read_text()))


async def test_an_interrupted_command_is_ended_and_keeps_its_output(tmp_path: Path) -> None:
    seen = trio.Event()

    def update(partial: ToolResult) -> None:
        if partial.content:
            seen.set()

    context = call_context(tmp_path, update=update)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bash, context, "echo $$ > pids; echo out; sleep 600 & sleep 601; wait")
            await seen.wait()
            nursery.cancel_scope.cancel()
    assert context.aborted() == ToolResult.of_text("out\n\nCommand aborted", details={}, is_error=True)
    assert not runs(int((tmp_path / "pids").read_text()))
    assert live_groups() == ()


@pytest.mark.parametrize(
    ("command", "pids"),
    [
        ("sleep 600 & echo $! >> pids; sleep 601 & echo $! >> pids; wait", 2),
        ("trap '' TERM INT; echo $$ >> pids; sleep 600; sleep 600", 1),
        ("setsid nohup sleep 600 > /dev/null 2>&1 & echo $! >> pids; wait", 1),
        ("(setsid sleep 600 & echo $! >> pids) & sleep 600", 1),
    ],
)
async def test_before_an_interrupted_call_is_over_its_processes_are_gone(
    tmp_path: Path, command: str, pids: int
) -> None:
    found, result = await interrupted(call_context(tmp_path), command, pids)
    assert [pid for pid in found if runs(pid)] == []
    assert text(result) == "Command aborted"


async def test_a_call_cancelled_before_it_began_has_the_aborted_result(tmp_path: Path) -> None:
    context = call_context(tmp_path)
    with trio.move_on_after(0) as scope:
        await BASH.execute({"command": "sleep 600"}, context)
    assert scope.cancelled_caught
    assert context.aborted() == ToolResult.of_text("Command aborted", details={}, is_error=True)


@pytest.mark.parametrize("checkpoints", range(0, 40, 4))
async def test_a_call_can_be_cancelled_anywhere_and_leaves_nothing(
    tmp_path: Path, logs: Path, checkpoints: int
) -> None:
    descriptors = sorted(os.listdir("/proc/self/fd"))
    context = call_context(tmp_path)
    result: ToolResult | None = None
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def cancel_later() -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                    await trio.to_thread.run_sync(os.sched_yield)
                scope.cancel()

            nursery.start_soon(cancel_later)
            with scope:
                result = await bash(context, "echo out; sleep 0.005; echo more")
    told = text(context.aborted() if result is None else result)
    assert told in (
        "Command aborted",
        "out\n\nCommand aborted",
        "out\nmore\n\nCommand aborted",
        "out\nmore\n",
    )
    assert live_groups() == ()
    assert sorted(os.listdir("/proc/self/fd")) == descriptors
    assert list(logs.iterdir()) == []


async def test_a_background_process_holds_the_call_for_a_moment_and_ends_with_it(tmp_path: Path) -> None:
    result = await bash(call_context(tmp_path), "sleep 600 & echo $! > pids; echo out")
    assert result == ToolResult.of_text("out\n")
    assert not runs(int((tmp_path / "pids").read_text()))


async def test_a_background_process_that_prints_for_ever_cannot_hold_the_call(tmp_path: Path) -> None:
    result = await bash(call_context(tmp_path), "yes & echo $! > pids")
    assert result.is_error is False
    assert not runs(int((tmp_path / "pids").read_text()))


async def test_a_shell_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    result = await bash(call_context(tmp_path), "echo out; exec >&- 2>&-; sleep 0.05; exit 4")
    assert text(result) == "out\n\nCommand exited with code 4"


async def test_updates_begin_empty_hold_all_output_so_far_and_end_with_the_result(tmp_path: Path) -> None:
    updates: list[ToolResult] = []
    shown = trio.Event()

    def update(partial: ToolResult) -> None:
        updates.append(partial)
        if partial == ToolResult.of_text("one\n", details={}):
            (tmp_path / "seen").touch()
            shown.set()

    context = call_context(tmp_path, update=update)
    await bash(context, "echo one; until [ -e seen ]; do sleep 0.01; done; echo two")
    assert updates[0] == ToolResult(details={})
    assert shown.is_set()
    assert updates[-1] == ToolResult.of_text("one\ntwo\n", details={})


async def test_updates_come_at_most_every_tenth_of_a_second(tmp_path: Path) -> None:
    times: list[float] = []
    context = call_context(tmp_path, update=lambda _: times.append(trio.current_time()))
    await bash(context, "for n in $(seq 60); do echo $n; sleep 0.005; done")
    gaps = [after - before for before, after in pairwise(times[1:-1])]
    assert all(gap >= 0.099 for gap in gaps)
    assert len(times) >= 4


async def test_long_output_is_cut_to_its_end_and_logged(tmp_path: Path, logs: Path) -> None:
    result = await bash(call_context(tmp_path), "seq 3000")
    (log,) = logs.iterdir()
    shown = "".join(f"{n}\n" for n in range(1001, 3001))
    assert text(result) == f"{shown}\n[Lines 1001-3000 of 3000 shown. All of it: {log}]"
    assert result.details["fullOutputPath"] == str(log)
    assert result.details["truncation"]["content"] == shown
    assert result.details["truncation"]["totalLines"] == 3000
    assert log.read_text() == "".join(f"{n}\n" for n in range(1, 3001))


async def test_long_output_of_a_failing_command_has_note_and_code(tmp_path: Path, logs: Path) -> None:
    result = await bash(call_context(tmp_path), "seq 3000; exit 2")
    (log,) = logs.iterdir()
    assert text(result).endswith(
        f"3000\n\n[Lines 1001-3000 of 3000 shown. All of it: {log}]\n\nCommand exited with code 2"
    )
    assert result.details == {}


async def test_twenty_megabytes_are_kept_on_disk_and_not_in_memory(tmp_path: Path, logs: Path) -> None:
    tracemalloc.start()
    try:
        result = await bash(call_context(tmp_path), "yes 0123456789abcde | head -c 20971520")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (log,) = logs.iterdir()
    assert log.stat().st_size == 20 * 1024 * 1024
    assert result.details["truncation"]["totalBytes"] == 20 * 1024 * 1024
    assert peak < 5_000_000


async def test_other_tasks_run_while_a_command_prints_a_lot(tmp_path: Path) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await bash(call_context(tmp_path), "head -c 2000000 /dev/zero")
        nursery.cancel_scope.cancel()
    assert turns > 20


async def test_escapes_are_kept_in_the_log_and_not_shown(tmp_path: Path, logs: Path) -> None:
    command = r"for n in $(seq 2100); do printf '\033[31m%s\033[0m\n' $n; done"
    result = await bash(call_context(tmp_path), command)
    (log,) = logs.iterdir()
    assert text(result).startswith("101\n102\n")
    assert log.read_bytes().startswith(b"\x1b[31m1\x1b[0m\n")


async def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    assert text(await bash(call_context(tmp_path), r"printf 'a\377b'")) == "a\ufffdb"


async def test_there_is_no_input(tmp_path: Path) -> None:
    assert text(await bash(call_context(tmp_path), "cat; echo end")) == "end\n"


async def test_the_command_runs_in_the_working_directory_with_the_calls_environment(tmp_path: Path) -> None:
    context = call_context(tmp_path, environment={"PATH": os.environ["PATH"], "ONLY": "this"})
    assert text(await bash(context, 'pwd; echo "$ONLY$HOME"')) == f"{tmp_path}\nthis\n"


async def test_the_prefix_of_the_settings_comes_on_a_line_of_its_own(tmp_path: Path) -> None:
    context = call_context(tmp_path, shell_command_prefix="greet() { echo hello; }  # comment")
    assert text(await bash(context, "greet")) == "hello\n"


async def test_the_shell_of_the_settings_is_used_and_must_exist(tmp_path: Path) -> None:
    assert text(await bash(call_context(tmp_path, shell_path="/bin/sh"), "echo $0")) == "/bin/sh\n"
    with pytest.raises(ToolError, match="shellPath does not exist"):
        await bash(call_context(tmp_path, shell_path="/no/such/shell"), "true")
    (tmp_path / "plain").touch(0o644)
    with pytest.raises(ToolError, match="could not be started: Permission denied"):
        await bash(call_context(tmp_path, shell_path=str(tmp_path / "plain")), "true")


async def test_a_missing_working_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="gone does not exist"):
        await bash(call_context(tmp_path / "gone"), "true")


@pytest.mark.parametrize(
    "timeout", [0, -1, float("inf"), float("nan"), 2_147_483.648, 10**400, "5", True, [], 1e308]
)
async def test_a_timeout_out_of_range_is_refused(tmp_path: Path, timeout: object) -> None:
    message = await failure(BASH, tmp_path, command="true", timeout=timeout)
    assert message.startswith("timeout must be")


async def test_the_largest_timeout_is_taken(tmp_path: Path) -> None:
    assert text(await bash(call_context(tmp_path), "echo a", timeout=2_147_483.647)) == "a\n"


@pytest.mark.parametrize("command", [None, 5, "a\0b"])
async def test_a_malformed_command_is_refused(tmp_path: Path, command: object) -> None:
    assert (await failure(BASH, tmp_path, command=command)).startswith("command must")


async def test_a_command_too_long_for_the_system_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Argument list too long"):
        await bash(call_context(tmp_path), "true " + "x" * 10_000_000)


def test_no_background_mode_is_offered() -> None:
    assert set(BASH.parameters["properties"]) == {"command", "timeout"}
