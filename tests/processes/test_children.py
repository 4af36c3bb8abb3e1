"""Source: agent loop, "bash"; reports of commands that outlive a stop. With real children."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from knightcode.processes.children import (
    KILL_SECONDS,
    MARKER,
    TERM_GRACE_SECONDS,
    Child,
    kill_all_now,
    live_groups,
    open_child,
)
from knightcode.processes.families import GroupFamily, TableFamily
from tests.processes.facts import pids_in, runs, wait_for

ENVIRONMENT = dict(os.environ)

PLAIN = "echo $$ >> pids; sleep 600 & echo $! >> pids; sleep 601 & echo $! >> pids; wait"
STUBBORN = "trap '' TERM INT; echo $$ >> pids; sleep 600 & echo $! >> pids; echo >> /dev/null; wait; wait"
NOHUP = "nohup sleep 600 > /dev/null 2>&1 & echo $! >> pids; wait"
NEW_SESSION = "setsid bash -c 'echo $$ >> pids; exec sleep 600' > /dev/null 2>&1 & wait"
STUBBORN_SESSION = "setsid bash -c \"trap '' TERM; echo \\$\\$ >> pids; sleep 600; sleep 600\" & wait"
DOUBLE_FORK = "(setsid bash -c '(setsid sleep 600 & echo $! >> pids) &' &) ; sleep 600"
JOB_CONTROL = "set -m; sleep 600 & echo $! >> pids; wait"
STOPPED = "sleep 600 & echo $! >> pids; kill -STOP $!; wait"
CHANGED_ENVIRONMENT = "env -i setsid -w sleep 600 & echo $! >> pids; wait"
DAEMON = "env -i setsid -f /bin/sh -c 'echo $$ >> pids; exec sleep 600'"
"""Nothing shows where it comes from: another session, no parent, and nothing of its environment left."""
STUBBORN_DAEMON = "env -i setsid -f /bin/sh -c \"trap '' TERM; echo \\$\\$ >> pids; sleep 600; sleep 600\""


async def start(folder: Path, command: str, use_table: bool = True) -> None:
    """Run a shell command until this is cancelled."""
    argv = ["/bin/bash", "-c", command]
    async with open_child(argv, cwd=folder, environment=ENVIRONMENT, use_table=use_table) as child:
        await child.wait_exited()


async def cancelled_with(
    folder: Path, command: str, count: int, use_table: bool = True
) -> tuple[list[int], float]:
    """The processes that a command has named before it was cancelled, and how long its end took."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, folder, command, use_table)
            pids = await pids_in(folder, count)
            began = trio.current_time()
            nursery.cancel_scope.cancel()
        return pids, trio.current_time() - began


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (PLAIN, 3),
        (STUBBORN, 2),
        (NOHUP, 1),
        (NEW_SESSION, 1),
        (STUBBORN_SESSION, 1),
        (DOUBLE_FORK, 1),
        (JOB_CONTROL, 1),
        (STOPPED, 1),
        (CHANGED_ENVIRONMENT, 1),
        (f"{DAEMON}; sleep 600", 1),
        (f"{STUBBORN_DAEMON}; sleep 600", 1),
    ],
)
async def test_when_an_interrupt_is_over_nothing_of_the_call_runs(
    tmp_path: Path, command: str, count: int
) -> None:
    pids, _ = await cancelled_with(tmp_path, command, count)
    assert [pid for pid in pids if runs(pid)] == []
    assert live_groups() == ()


async def test_a_plain_child_is_gone_long_before_the_grace_is_over(tmp_path: Path) -> None:
    _, seconds = await cancelled_with(tmp_path, PLAIN, 3)
    assert seconds < TERM_GRACE_SECONDS


async def test_a_stubborn_child_gets_the_grace_and_no_more(tmp_path: Path) -> None:
    _, seconds = await cancelled_with(tmp_path, STUBBORN, 2)
    assert TERM_GRACE_SECONDS <= seconds < TERM_GRACE_SECONDS + KILL_SECONDS


async def test_a_child_may_tidy_up_when_it_is_asked_to_end(tmp_path: Path) -> None:
    tidy = 'sh -c "sleep 0.1 && rm lock"'  # long enough for several looks at the process table
    command = f"trap '{tidy}; exit' TERM; touch lock; echo $$ >> pids; while :; do sleep 0.01; done"
    await cancelled_with(tmp_path, command, 1)
    assert not (tmp_path / "lock").exists()


async def test_what_a_finished_command_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    with trio.fail_after(5):
        await start(tmp_path, f"sleep 600 & echo $! >> pids; setsid sleep 600 & echo $! >> pids; {DAEMON}")
        pids = await pids_in(tmp_path, 2)
    assert [pid for pid in pids if runs(pid)] == []


async def test_a_daemon_that_is_all_of_a_command_ends_with_it(tmp_path: Path) -> None:
    """It may be an orphan before anybody has looked once."""
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        with trio.fail_after(5):
            await start(folder, f"exec {DAEMON}")
        if (folder / "pids").exists():  # else it was ended before it could say so
            assert [pid for pid in await pids_in(folder, 1) if runs(pid)] == []


async def test_other_processes_of_this_one_are_left_alone(tmp_path: Path) -> None:
    bystander = await trio.lowlevel.open_process(["sleep", "600"])
    await cancelled_with(tmp_path, PLAIN, 3)
    assert runs(bystander.pid)
    bystander.kill()
    with trio.fail_after(5):
        await bystander.wait()


async def test_two_calls_do_not_end_each_other(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, tmp_path / "two", f"{DAEMON}; {PLAIN}")
            others = await pids_in(tmp_path / "two", 4)
            await cancelled_with(tmp_path / "one", f"{DAEMON}; {PLAIN}", 4)
            assert [pid for pid in others if not runs(pid)] == []
            nursery.cancel_scope.cancel()


async def test_a_child_leads_its_own_session_has_no_input_and_carries_the_marker(tmp_path: Path) -> None:
    command = ["/bin/bash", "-c", f"read x; echo input=$? group=$(ps -o pgid= $$) marker=${MARKER}; exec >&-"]
    environment = {**ENVIRONMENT, MARKER: "outer"}
    output = b""
    with trio.fail_after(5):
        async with open_child(command, cwd=tmp_path, environment=environment) as child:
            assert os.getsid(child.pid) == child.pid
            assert live_groups() == (child.pid,)
            async for data in child.output:
                output += data
            await child.wait_exited()
    words = output.decode().split()
    assert words[:3] == ["input=1", "group=", str(child.pid)] or words[:2] == [
        "input=1",
        f"group={child.pid}",
    ]
    assert words[-1].startswith("marker=outer,")


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
async def test_the_exit_code_is_known_afterwards(tmp_path: Path, command: str, code: int) -> None:
    with trio.fail_after(5):
        async with open_child(["/bin/sh", "-c", command], cwd=tmp_path, environment=ENVIRONMENT) as child:
            await child.wait_exited()
            assert child.exit_code is None
    assert child.exit_code == code


async def test_no_zombie_and_no_descriptor_is_left(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with trio.fail_after(5):
            await start(tmp_path, "true")
    assert sorted(os.listdir("/proc/self/fd")) == before
    children = await trio.Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    assert children == ""


ADOPTING = """
import ctypes, os, subprocess, sys, trio
from knightcode.processes.children import open_child

async def main():
    mine = subprocess.Popen(["true"])  # somebody else's child, who has not asked for its end yet
    await trio.to_thread.run_sync(os.waitid, os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
    command = "env -i setsid -f sleep 600; env -i setsid -f true; (sleep 600 &); sleep 0.05"
    async with open_child(["/bin/bash", "-c", command], environment=os.environ) as child:
        await child.wait_exited()
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    print(children == [str(mine.pid)], mine.wait(), child.exit_code)

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this process
trio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the process table is Linux's")
async def test_a_process_that_gets_the_orphans_reaps_those_of_its_calls_and_no_child_of_others() -> None:
    """As the first process of a container, which everybody's orphans go to."""
    with trio.fail_after(20):
        done = await trio.run_process([sys.executable, "-c", ADOPTING], capture_stdout=True)
    assert done.stdout == b"True 0 0\n"


async def test_a_program_that_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with open_child(["/no/such/program"], cwd=tmp_path, environment=ENVIRONMENT):
            raise AssertionError("started")
    with pytest.raises(FileNotFoundError):
        async with open_child(["/bin/true"], cwd=tmp_path / "gone", environment=ENVIRONMENT):
            raise AssertionError("started")
    assert live_groups() == ()


async def test_a_failing_body_ends_the_child_and_keeps_its_error(tmp_path: Path) -> None:
    child: Child | None = None
    with trio.fail_after(5), pytest.raises(KeyError):
        async with open_child(["sleep", "600"], cwd=tmp_path, environment=ENVIRONMENT) as child:
            raise KeyError
    assert child is not None
    assert not runs(child.pid)


async def test_a_call_cancelled_before_its_child_started_leaves_nothing(tmp_path: Path) -> None:
    with trio.move_on_after(0) as scope:
        await start(tmp_path, "echo $$ >> pids; sleep 600")
    assert scope.cancelled_caught
    assert live_groups() == ()
    assert not (tmp_path / "pids").exists() or not any(runs(pid) for pid in await pids_in(tmp_path, 1))


async def test_a_watchdog_thread_can_kill_everything_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, tmp_path, STUBBORN)
            nursery.start_soon(start, tmp_path / "a", f"{STUBBORN_DAEMON}; {STUBBORN_SESSION}")
            pids = await pids_in(tmp_path, 2) + await pids_in(tmp_path / "a", 2)
            watchdog = threading.Thread(target=kill_all_now)
            watchdog.start()
            watchdog.join()  # the event loop stands still meanwhile
            await wait_for(lambda: not any(runs(pid) for pid in pids))
    assert live_groups() == ()


@pytest.mark.skipif(sys.platform != "linux", reason="the process table is Linux's")
async def test_what_is_started_while_everything_is_killed_is_killed_too(tmp_path: Path) -> None:
    storm = f"echo $$ >> pids; for n in $(seq 300); do {DAEMON.replace('$$ >> pids', '>> started')}; done"
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start, tmp_path, storm)
            await wait_for((tmp_path / "started").exists)
            kill_all_now()
            assert daemons_in(tmp_path) == []


def daemons_in(folder: Path) -> list[str]:
    """What runs in a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(folder) and runs(int(name)):
                found.append(name)
    return found


@pytest.mark.parametrize(("command", "count"), [(PLAIN, 3), ("echo $$ >> pids; exec sleep 600", 1)])
async def test_without_a_process_table_the_group_is_ended(tmp_path: Path, command: str, count: int) -> None:
    pids, _ = await cancelled_with(tmp_path, command, count, use_table=False)
    assert [pid for pid in pids if runs(pid)] == []


async def test_without_a_process_table_a_finished_command_keeps_its_code(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "exit 5"]
    with trio.fail_after(5):
        async with open_child(argv, cwd=tmp_path, environment=ENVIRONMENT, use_table=False) as child:
            await child.wait_exited()
    assert child.exit_code == 5


async def test_without_a_process_table_who_left_the_group_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (stray,), _ = await cancelled_with(tmp_path, NEW_SESSION, 1, use_table=False)
    assert runs(stray)
    os.kill(stray, signal.SIGKILL)
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("WARNING", "child_escaped")
    assert vars(record)["stray"] == f"{stray} sleep 600"


def test_killing_everything_kills_nothing_when_nothing_runs() -> None:
    kill_all_now()


def test_a_sweep_signals_only_once_unless_it_kills(tmp_path: Path) -> None:
    script = f"trap 'echo >> {tmp_path}/heard' TERM; echo ready; while :; do sleep 0.01; done"
    with subprocess.Popen(
        ["/bin/bash", "-c", script], start_new_session=True, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        family = TableFamily(child.pid, ("no-such-marker",))
        assert child.pid in family.sweep(signal.SIGTERM)
        while not (tmp_path / "heard").exists():
            family.sweep(signal.SIGTERM)
        while family.sweep(signal.SIGKILL):
            pass
    assert (tmp_path / "heard").read_text() == "\n"
    assert child.returncode == -signal.SIGKILL


def test_where_only_the_group_can_be_reached_it_ends_and_strays_are_named() -> None:
    marker = "f00d" * 8
    with subprocess.Popen(
        ["/bin/bash", "-c", "setsid sleep 600 & echo $!; wait"],
        start_new_session=True,
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, MARKER: marker},
    ) as child:
        assert child.stdout is not None
        stray = int(child.stdout.readline())
        family = GroupFamily(child.pid, marker)
        while os.getsid(stray) != stray:
            pass
        assert any(line.startswith(f"{stray} ") for line in family.strays())
        assert family.sweep(signal.SIGKILL) == (child.pid,)
        child.wait()
        assert family.sweep(signal.SIGKILL) == ()
        os.kill(stray, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the process table is Linux's")
def test_a_process_with_any_name_is_read_from_the_table(tmp_path: Path) -> None:
    program = tmp_path / ") S 1 (x\n)"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"], start_new_session=True) as child:
        family = TableFamily(child.pid, ())
        assert child.pid in family.sweep(signal.SIGKILL)


async def test_many_calls_that_end_at_once_end_all_their_daemons(tmp_path: Path) -> None:
    """One reading of the process table serves all who end at the same time."""
    count = 40
    command = f"(setsid env -i sleep 3600 & echo $! >> {tmp_path}/pids); sleep 3600"

    async def one(told: trio.Event) -> None:
        async with open_child(command, environment={"PATH": os.environ["PATH"]}) as child:
            with trio.CancelScope() as scope:
                scopes.append(scope)
                if len(scopes) == count:
                    told.set()
                await child.wait_exited()

    scopes: list[trio.CancelScope] = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            told = trio.Event()
            for _ in range(count):
                nursery.start_soon(one, told)
            await told.wait()
            pids = await pids_in(tmp_path, count)
            for scope in scopes:
                scope.cancel()
    assert [pid for pid in pids if runs(pid)] == []
