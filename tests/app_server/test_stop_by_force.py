"""The server's end when it does not come by itself: a second signal, and what happens at fixed marks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.app_server.pipe import (
    INIT,
    PATIENCE,
    alive,
    environment,
    open_pipe,
    tool,
    until_dead,
    write_script,
)
from tests.app_server.stopping import (
    DEAF,
    SLEEPER,
    hearing_the_deaf,
    markers,
    pids_in,
    session_file,
    start_turn,
    until_ready,
    until_stopping,
)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[int]:
    """By which a deaf command tells that it was asked to end."""
    with hearing_the_deaf(tmp_path) as descriptor:
        yield descriptor


@pytest.mark.rule("S76", "S77")
@pytest.mark.parametrize(
    ("first", "second"), [("SIGTERM", "SIGINT"), ("SIGINT", "SIGTERM"), ("SIGHUP", "SIGHUP")]
)
async def test_a_second_signal_exits_at_once_with_its_number_and_ends_the_commands(
    tmp_path: Path, told: int, first: str, second: str
) -> None:
    """App Server notes: Shutdown."""
    script = write_script(tmp_path / "script.json", [tool("bash", command=DEAF)])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await start_turn(pipe, tmp_path / "deaf", "go")
        await until_ready(pipe)
        pids = pids_in(tmp_path / "deaf")
        file = session_file(tmp_path / "home", thread_id)
        pipe.process.send_signal(signal.Signals[first])
        await until_stopping(told)
        pipe.process.send_signal(signal.Signals[second])
        assert await pipe.exit_code() == 128 + signal.Signals[second]
        for pid in pids:
            await until_dead(pid)
    assert markers(file) == [("turn_start", None)]


HANGING = """
import os, sys
import knightcode.app_server.core.connection as core
class Hanging(core.ConnectionCore):
    def receive(self, data):
        actions = super().receive(data)
        if b"hang" in data:
            print("hanging", file=open("told", "w"), flush=True)
            while True:
                pass
        return actions
core.ConnectionCore = Hanging
from knightcode.app_server.main import main
sys.exit(main(sys.argv[1:]))
"""
"""A server whose event loop hangs in a busy loop once it is told to."""


@pytest.mark.rule("S76")
async def test_a_second_signal_ends_a_server_whose_event_loop_hangs_and_its_commands(
    tmp_path: Path, told: int
) -> None:
    """App Server notes: Shutdown; who is impatient needs nothing of the server to work."""
    script = write_script(tmp_path / "script.json", [tool("bash", command=SLEEPER)])
    async with open_pipe(
        tmp_path / "home",
        "--scripted-model",
        str(script),
        command=(sys.executable, "-c", HANGING),
        cwd=tmp_path,
    ) as pipe:
        await pipe.handshake()
        await start_turn(pipe, tmp_path / "sleeper", "go")
        await until_ready(pipe)
        pids = pids_in(tmp_path / "sleeper")
        await pipe.send({"method": "hang"})
        await until_stopping(told)
        # Handled in the order of their numbers, should both come before the next bytecode.
        pipe.process.send_signal(signal.SIGINT)
        pipe.process.send_signal(signal.SIGTERM)
        assert await pipe.exit_code() == 128 + signal.SIGTERM
        for pid in pids:
            await until_dead(pid)


@pytest.mark.rule("S73", "S79")
@pytest.mark.torture
async def test_a_server_whose_event_loop_hangs_is_gone_ten_seconds_after_one_signal(
    tmp_path: Path, told: int
) -> None:
    """App Server: Ownership, unloading, and shutdown."""
    async with open_pipe(tmp_path / "home", command=(sys.executable, "-c", HANGING), cwd=tmp_path) as pipe:
        await pipe.handshake()
        await pipe.send({"method": "hang"})
        await until_stopping(told)
        pipe.process.send_signal(signal.SIGTERM)
        began = trio.current_time()
        with trio.fail_after(12):
            assert await pipe.process.wait() == 1
        assert trio.current_time() - began >= 9


@pytest.mark.rule("S73", "S79")
async def test_one_signal_arms_the_watchdog_although_the_event_loop_hangs(tmp_path: Path) -> None:
    """App Server notes: Shutdown; the same as above, in less time."""
    program = (
        "import os, signal\n"
        "from knightcode.app_server.shutdown import Watchdog\n"
        "from knightcode.app_server.signals import StopSignals\n"
        "watchdog = Watchdog(lambda: print('children ended', flush=True), 0.2)\n"
        "watchdog.start()\n"
        "signals = StopSignals()\n"
        "signals.install()\n"
        "with signals.listening(watchdog.arm, os._exit):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while True:\n"
        "        pass\n"
    )
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            (sys.executable, "-c", program), capture_stdout=True, check=False, env=environment(tmp_path)
        )
    assert (done.returncode, done.stdout) == (1, b"children ended\n")


@pytest.mark.rule("S76")
async def test_a_second_signal_while_the_program_still_loads_exits_at_once_with_its_number(
    tmp_path: Path,
) -> None:
    """App Server notes: Shutdown."""
    program = (
        "import os, signal, sys, threading\n"
        "import knightcode.app_server.core.connection as core\n"
        "class Twice(core.ConnectionCore):\n"
        "    def receive(self, data):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return super().receive(data)\n"
        "core.ConnectionCore = Twice\n"
        "from knightcode.app_server.main import main\n"
        "sys.exit(main([]))\n"
    )
    async with open_pipe(tmp_path / "home", command=(sys.executable, "-c", program)) as pipe:
        await pipe.send(INIT[0])
        assert await pipe.exit_code() == 128 + signal.SIGINT


@pytest.mark.rule("S73")
async def test_the_watchdog_ends_a_process_whose_event_loop_hangs_after_its_last_act(tmp_path: Path) -> None:
    """App Server notes: Shutdown; the last resort needs nothing that can hang."""
    program = (
        "import sys, time\n"
        "from knightcode.app_server.shutdown import Watchdog\n"
        "def last_act():\n"
        "    print('children ended', flush=True)\n"
        "    raise OSError('one could not be ended')\n"
        "kept = Watchdog(lambda: print('never'), 0.1)\n"
        "kept.start()\n"
        "kept.arm()\n"
        "kept.disarm()\n"
        "unarmed = Watchdog(lambda: print('never'), 0.1)\n"
        "unarmed.start()\n"
        "armed = Watchdog(last_act, 0.2)\n"
        "armed.start()\n"
        "armed.arm()\n"
        "armed.arm()\n"
        "time.sleep(600)\n"
    )
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            (sys.executable, "-c", program), capture_stdout=True, stderr=subprocess.DEVNULL,
            check=False, env=environment(tmp_path),
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"children ended\n")


@pytest.mark.rule("S73", "S74")
@pytest.mark.torture
@pytest.mark.proves("SHUTDOWN-011", "SHUTDOWN-012")
async def test_the_process_is_gone_ten_seconds_after_the_end_of_input_although_nobody_reads(
    tmp_path: Path,
) -> None:
    """App Server: Ownership, unloading, and shutdown."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        await pipe.write(b'{"id":1,"method":"thread/list"}\n' * 20_000)
        assert pipe.process.stdin is not None
        await pipe.process.stdin.aclose()
        began = trio.current_time()
        with trio.fail_after(12):
            assert await pipe.process.wait() == 1
        assert trio.current_time() - began >= 9


@pytest.mark.rule("S75")
@pytest.mark.proves("LIMIT-017")
async def test_a_client_that_does_not_read_is_given_up_at_64_mib_with_all_that_runs(tmp_path: Path) -> None:
    """App Server: Limits and client reference; notes, "Shutdown"."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "tool"}, "steps": [tool("bash", command=SLEEPER)]},
        {"when": {"user": "flood"}, "steps": [{"text": "x" * 65_536, "repeat": 1_400}, {"silence": True}]},
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        await start_turn(pipe, tmp_path / "tool", "tool")
        await until_ready(pipe)
        pids = pids_in(tmp_path / "tool")
        flood = await start_turn(pipe, tmp_path / "flood", "flood")
        with trio.fail_after(PATIENCE / 2):
            assert await pipe.process.wait() == 1
    assert [pid for pid in pids if alive(pid)] == []
    assert markers(session_file(tmp_path / "home", flood)) == [
        ("turn_start", None),
        ("turn_end", "interrupted"),
    ]


HURRIED = """
import os, sys
import trio
from knightcode.app_server import shutdown
shutdown.ANSWER_BY, shutdown.EXIT_BY = float(sys.argv.pop(1)), float(sys.argv.pop(1))
from knightcode.app_server.handlers.table import HANDLERS
from knightcode.app_server.main import main
from knightcode_protocol.results import ModelListResult

def waits(connection, call, params):
    return trio.sleep_forever

def comes_late(connection, call, params):
    async def later():
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(open, "late")  # until somebody opens the other end
        return ModelListResult(models=())
    return later

HANDLERS["thread/list"], HANDLERS["model/list"] = waits, comes_late
sys.exit(main(sys.argv[1:]))
"""
"""A server whose marks come after other times, and with two requests that do not end by themselves."""


def hurried(answer_by: float, exit_by: float) -> tuple[str, ...]:
    return (sys.executable, "-c", HURRIED, str(answer_by), str(exit_by))


async def answers_at_the_mark(folder: Path, seconds: float) -> None:
    os.mkfifo(folder / "late")
    async with open_pipe(folder / "home", command=hurried(seconds, 10), cwd=folder) as pipe:
        await pipe.handshake()
        await pipe.send({"id": "late", "method": "model/list"}, {"id": "waits", "method": "thread/list"})
        assert "error" in await pipe.ask("turn/interrupt", threadId="none")  # the two are accepted
        before, began = len(pipe.heard), trio.current_time()
        assert pipe.process.stdin is not None
        await pipe.process.stdin.aclose()
        await pipe.hear()
        waited = trio.current_time() - began
        await pipe.hear()
        # Both are answered while one of them still is at work. Its result comes now.
        os.close(os.open(folder / "late", os.O_WRONLY | os.O_NONBLOCK))
        assert await pipe.hear() is None
        assert await pipe.exit_code() == 0
    assert waited >= seconds - 0.05
    answers = [(one["id"], one["error"]["code"]) for one in pipe.heard[before:]]
    assert sorted(answers) == [("late", "shuttingDown"), ("waits", "shuttingDown")]


@pytest.mark.rule("S71", "S81")
@pytest.mark.proves("SHUTDOWN-009", "SHUTDOWN-010")
async def test_at_the_mark_before_the_last_whoever_waits_is_refused_and_a_late_result_is_dropped(
    tmp_path: Path,
) -> None:
    """App Server: Ownership, unloading, and shutdown; the same as below, in less time."""
    await answers_at_the_mark(tmp_path, 0.5)


@pytest.mark.torture
@pytest.mark.rule("S71", "S81")
@pytest.mark.proves("SHUTDOWN-009", "SHUTDOWN-010")
async def test_at_nine_seconds_whoever_waits_is_refused_and_a_late_result_is_dropped(tmp_path: Path) -> None:
    """App Server: Ownership, unloading, and shutdown."""
    await answers_at_the_mark(tmp_path, 9)


@pytest.mark.rule("S74")
async def test_a_client_that_has_stopped_reading_delays_the_end_of_no_turn(tmp_path: Path) -> None:
    """App Server notes: Shutdown; with an earlier last mark."""
    script = write_script(tmp_path / "script.json", [tool("bash", command=SLEEPER)])
    command = hurried(2, 2.5)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script), command=command) as pipe:
        await pipe.handshake()
        thread_id = await start_turn(pipe, tmp_path / "sleeper", "go")
        await until_ready(pipe)
        pids = pids_in(tmp_path / "sleeper")
        file = session_file(tmp_path / "home", thread_id)
        await pipe.write(b'{"id":1,"method":"turn/interrupt","params":{"threadId":"none"}}\n' * 5_000)
        assert pipe.process.stdin is not None
        await pipe.process.stdin.aclose()
        began = trio.current_time()
        for pid in pids:
            await until_dead(pid)
        assert trio.current_time() - began < 2
        assert await pipe.exit_code() == 1
        assert trio.current_time() - began >= 2.4
    assert markers(file) == [("turn_start", None), ("turn_end", "interrupted")]
