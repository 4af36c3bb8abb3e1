"""The server's end: what asks for it, what still happens, and what is gone afterwards."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import trio

from tests.app_server.pipe import (
    INIT,
    PATIENCE,
    Pipe,
    alive,
    environment,
    lines_of,
    open_pipe,
    text,
    tool,
    until_dead,
    write_script,
)

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
SLEEPER = "sleep 600 & echo $! > pids; sleep 600 & echo $! >> pids; echo $$ >> pids; echo ready; wait"
DEAF = "trap 'echo stopping > ../told' TERM; echo $$ > pids; echo ready; while :; do sleep 0.05; done"
"""A command that says when it is told to end, and does not: the stop takes half a second longer."""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    """For a server's stderr."""
    with (tmp_path / "log").open("w+b") as file:
        yield file


@pytest.fixture
def told(tmp_path: Path) -> Iterator[int]:
    """A pipe in the file system, open for reading, by which a deaf command tells of itself."""
    os.mkfifo(tmp_path / "told")
    descriptor = os.open(tmp_path / "told", os.O_RDONLY | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def pids_in(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def markers(file: Path) -> list[tuple[str, str | None]]:
    """The begins and ends of turns that a session file holds, with how they ended."""
    entries = [json.loads(line) for line in file.read_bytes().splitlines()]
    return [(entry["type"], entry.get("status")) for entry in entries if entry["type"].startswith("turn_")]


def statuses(pipe: Pipe, thread_id: str) -> list[str]:
    return [
        params["status"]["type"]
        for method, params in pipe.notifications(thread_id)
        if method == "thread/status/changed"
    ]


def session_file(home: Path, thread_id: str) -> Path:
    """Where a thread is saved."""
    (file,) = home.rglob(f"*{thread_id}.jsonl")
    return file


async def until_stopping(told: int) -> None:
    """Until a deaf command has been told to end."""
    with trio.fail_after(PATIENCE):
        await trio.lowlevel.wait_readable(told)


async def until_ready(pipe: Pipe, said: str = "ready") -> None:
    """Until a command has written a word."""
    await pipe.until(
        lambda one: one.get("method") == "item/toolCall/outputDelta" and said in one["params"]["delta"]
    )


async def start_turn(pipe: Pipe, cwd: Path, words: str, mode: str = "fullAccess") -> str:
    """A new thread with a turn that has begun; its id."""
    cwd.mkdir()
    thread_id = await pipe.start_thread(cwd, approvalMode=mode)
    result = await pipe.call("turn/start", threadId=thread_id, text=words)
    assert result["status"] == "started"
    return thread_id


async def end(pipe: Pipe, ending: str) -> None:
    """Begin the stop, and read what comes until the output ends."""
    if ending == "EOF":
        await pipe.close()
        return
    pipe.process.send_signal(signal.Signals[ending])
    while await pipe.hear() is not None:
        pass


@pytest.mark.proves("SHUTDOWN-001", "SHUTDOWN-002", "SHUTDOWN-005")
@pytest.mark.parametrize("ending", ["EOF", "SIGINT", "SIGTERM", "SIGHUP"])
async def test_a_stop_ends_every_turn_as_interrupted_saves_it_and_leaves_no_process(
    tmp_path: Path, log: IO[bytes], ending: str
) -> None:
    """App Server: Ownership, unloading, and shutdown; notes, "Shutdown"."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "silent"}, "steps": [text("so far"), {"silence": True}]},
        {"when": {"user": "tool"}, "steps": [tool("bash", command=SLEEPER)]},
        {"when": {"user": "ask"}, "steps": [tool("bash", command="touch ran")]},
    )
    home, where = tmp_path / "home", {name: tmp_path / name for name in ("silent", "tool", "ask")}
    async with open_pipe(home, "--scripted-model", str(script), stderr=log.fileno()) as pipe:
        await pipe.handshake()
        idle = await pipe.start_thread(tmp_path)
        threads = {"ask": await start_turn(pipe, where["ask"], "ask", "ask")}
        await pipe.until(lambda one: one.get("method") == "item/toolCall/requestApproval")
        threads["silent"] = await start_turn(pipe, where["silent"], "silent")
        await pipe.until_method("item/agentMessage/delta")
        threads["tool"] = await start_turn(pipe, where["tool"], "tool")
        await until_ready(pipe)
        pids = pids_in(where["tool"])
        assert len(pids) == 3 and all(map(alive, pids))
        await end(pipe, ending)
        assert await pipe.exit_code() == 0
    assert [pid for pid in pids if alive(pid)] == []
    assert not (where["ask"] / "ran").exists()
    for name, thread_id in threads.items():
        completed = [
            params["turn"]["status"]
            for method, params in pipe.notifications(thread_id)
            if method == "turn/completed"
        ]
        assert completed == ["interrupted"], name
        assert statuses(pipe, thread_id)[-1] == "notLoaded"
        assert markers(session_file(home, thread_id)) == [("turn_start", None), ("turn_end", "interrupted")]
    assert statuses(pipe, idle) == ["notLoaded"]
    assert not any("error" in one for one in pipe.heard)
    assert list(home.rglob("*.lock")) == list(home.rglob("*.tmp")) == []
    log.seek(0)
    assert log.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_right_after_the_start_ends_the_process_without_a_traceback(
    tmp_path: Path, log: IO[bytes], number: signal.Signals
) -> None:
    """App Server notes: Shutdown; before the program runs at all, the system's own default ends it."""
    async with open_pipe(tmp_path / "home", stderr=log.fileno()) as pipe:
        pipe.process.send_signal(number)
        assert await pipe.exit_code() in (0, -number)
    log.seek(0)
    assert log.read() == b""


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_while_the_program_still_loads_is_a_clean_stop(
    tmp_path: Path, log: IO[bytes], number: signal.Signals
) -> None:
    """App Server notes: Shutdown; the first answer is given long before everything is loaded."""
    async with open_pipe(tmp_path / "home", stderr=log.fileno()) as pipe:
        await pipe.send(INIT[0])
        assert "result" in (await pipe.hear() or {})
        pipe.process.send_signal(number)
        assert await pipe.exit_code() == 0
    log.seek(0)
    assert log.read() == b""


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


@pytest.mark.proves("SHUTDOWN-003")
async def test_what_is_written_after_the_stop_began_is_not_read(tmp_path: Path, told: int) -> None:
    """App Server: Ownership, unloading, and shutdown; new input stops immediately."""
    script = write_script(tmp_path / "script.json", [tool("bash", command=DEAF)])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        other = await pipe.start_thread(tmp_path)
        thread_id = await start_turn(pipe, tmp_path / "deaf", "go")
        await until_ready(pipe)
        pipe.process.send_signal(signal.SIGTERM)
        await until_stopping(told)
        before = len(pipe.heard)
        await pipe.send(
            {"id": "late", "method": "turn/start", "params": {"threadId": other, "text": "x"}},
            {"id": "later", "method": "model/list"},
        )
        await pipe.close()
        assert await pipe.exit_code() == 0
    assert [one for one in pipe.heard[before:] if "id" in one] == []
    assert [params["threadId"] for method, params in pipe.notifications() if method == "turn/started"] == [
        thread_id
    ]


async def test_a_signal_after_the_end_of_input_changes_nothing(tmp_path: Path, told: int) -> None:
    """App Server notes: Shutdown; only a second signal is impatience."""
    script = write_script(tmp_path / "script.json", [tool("bash", command=DEAF)])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        await start_turn(pipe, tmp_path / "deaf", "go")
        await until_ready(pipe)
        assert pipe.process.stdin is not None
        await pipe.process.stdin.aclose()
        await until_stopping(told)
        pipe.process.send_signal(signal.SIGTERM)
        assert (await pipe.until_method("turn/completed"))["turn"]["status"] == "interrupted"
        await pipe.close()
        assert await pipe.exit_code() == 0


@pytest.mark.proves("SHUTDOWN-006", "SHUTDOWN-007")
async def test_at_the_end_reads_are_answered_and_a_start_that_was_not_accepted_is_refused(
    tmp_path: Path,
) -> None:
    """App Server: Ownership, unloading, and shutdown; work that cannot finish returns shuttingDown."""
    # A first user message that takes a while to load: the start waits for it when the input ends.
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("said")]})
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        file = session_file(tmp_path / "home", thread_id)
    lengthen(file, 20_000)
    size = file.stat().st_size
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.write(
            lines_of(
                *INIT,
                {"id": "start", "method": "turn/start", "params": {"threadId": thread_id, "text": "x"}},
                {"id": "list", "method": "thread/list"},
                {"id": "stop", "method": "turn/interrupt", "params": {"threadId": "none"}},
            )
        )
        await pipe.close()
        assert await pipe.exit_code() == 0
    answers = {one["id"]: one for one in pipe.heard if "id" in one}
    assert len([one for one in pipe.heard if "id" in one]) == len(answers) == 4
    assert answers["start"]["error"]["code"] == "shuttingDown"
    assert [row["id"] for row in answers["list"]["result"]["threads"]] == [thread_id]
    assert answers["stop"]["error"]["code"] == "threadNotFound"
    assert file.stat().st_size == size


def lengthen(file: Path, entries: int) -> None:
    """Append a long conversation, entry by entry, to a session file."""
    last = json.loads(file.read_bytes().splitlines()[-1])
    added = []
    for number in range(entries):
        entry = {
            "type": "message",
            "id": f"{number:08x}",
            "parentId": last["id"],
            "timestamp": last["timestamp"],
            "message": {
                "role": "user",
                "content": [{"type": "text", "text": "x" * 300}],
                "timestamp": number,
            },
        }
        added.append(entry)
        last = entry
    with file.open("ab") as out:
        out.write(lines_of(*added))


async def test_a_client_that_closes_its_end_in_a_turn_stops_the_server_in_order(tmp_path: Path) -> None:
    """App Server notes: Shutdown; a broken output is an end as well."""
    noisy = "echo $$ > pids; while :; do echo x; sleep 0.02; done"
    script = write_script(tmp_path / "script.json", [tool("bash", command=noisy)])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await start_turn(pipe, tmp_path / "noisy", "go")
        await until_ready(pipe, "x")
        pids = pids_in(tmp_path / "noisy")
        file = session_file(tmp_path / "home", thread_id)
        assert pipe.process.stdout is not None
        await pipe.process.stdout.aclose()
        assert await pipe.exit_code() == 0
    assert [pid for pid in pids if alive(pid)] == []
    assert markers(file) == [("turn_start", None), ("turn_end", "interrupted")]


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


@pytest.mark.proves("SHUTDOWN-008")
async def test_a_slow_reader_still_gets_every_line_after_the_end_of_input(tmp_path: Path) -> None:
    """App Server: Ownership, unloading, and shutdown; output drains after the requests have settled."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        await pipe.write(
            b"".join(b'{"id":%d,"method":"thread/list"}\n' % number for number in range(10, 5_010))
        )
        assert pipe.process.stdin is not None and pipe.process.stdout is not None
        await pipe.process.stdin.aclose()
        heard = b""
        with trio.fail_after(PATIENCE):
            while chunk := await pipe.process.stdout.receive_some(4_000):
                heard += chunk
        assert await pipe.exit_code() == 0
    assert sorted(json.loads(line)["id"] for line in heard.splitlines()) == list(range(10, 5_010))
    assert heard.endswith(b"\n")


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


async def test_a_stop_in_the_middle_of_a_line_ignores_its_beginning_and_answers_what_was_whole(
    tmp_path: Path,
) -> None:
    """App Server notes: Shutdown; complete lines already read are handled."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        await pipe.write(lines_of({"id": "whole", "method": "model/list"}) + b'{"id":"half","method":"mod')
        await pipe.until(lambda one: one.get("id") == "whole")
        pipe.process.send_signal(signal.SIGTERM)
        assert await pipe.hear() is None
        assert await pipe.exit_code() == 0
