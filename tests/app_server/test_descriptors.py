"""The protocol's descriptors: who can reach them, and what they may be."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.app_server.pipe import (
    INIT,
    PATIENCE,
    Message,
    environment,
    lines_of,
    open_pipe,
    text,
    tool,
    write_script,
)

SERVER = (sys.executable, "-m", "knightcode", "app-server")
ASK: list[Message] = [*INIT, {"id": 1, "method": "model/list"}]


async def run_to_its_end(command: Sequence[str], home: Path, stdin: bytes | int) -> tuple[int, list[Message]]:
    """Run a server that is given all its input at once; exit code and what it wrote."""
    home.mkdir(exist_ok=True)
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command, stdin=stdin, capture_stdout=True, check=False, env=environment(home), cwd=home
        )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@asynccontextmanager
async def open_terminal(home: Path, terminal: int) -> AsyncIterator[trio.Process]:
    """A server on a terminal; killed on exit if it still runs."""
    process = await trio.lowlevel.open_process(
        SERVER, stdin=terminal, stdout=terminal, env=environment(home), cwd=home
    )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.mark.rule("S80")
@pytest.mark.proves("FRAMING-004")
async def test_what_a_tools_child_writes_to_any_stdout_is_the_tools_output_and_no_line_of_the_protocol(
    tmp_path: Path,
) -> None:
    """App Server: Starting; stdout holds protocol messages and nothing else."""
    commands = [
        "echo inherited >&1; bash -c 'echo \"{}\" >&1'",
        "echo '{\"device\":1}' > /dev/stdout",
        "echo parent > /proc/$PPID/fd/1; echo through",
        "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> .*/\\1/p' | tr '\\n' ' '",
    ]
    script = write_script(
        tmp_path / "script.json", [tool("bash", command=one) for one in commands], [text("end")]
    )
    with (tmp_path / "stderr").open("w+b") as errors:
        async with open_pipe(
            tmp_path / "home", "--scripted-model", str(script), stderr=errors.fileno()
        ) as pipe:
            await pipe.handshake()
            thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
            await pipe.run_turn(thread_id)
            turn = (await pipe.call("thread/read", threadId=thread_id))["turns"][0]
        errors.seek(0)
        assert errors.read() == b"parent\n"
    outputs = [item["output"][0]["text"] for item in turn["items"] if item["type"] == "toolCall"]
    assert outputs[0] == "inherited\n{}\n"
    assert outputs[1] == '{"device":1}\n'
    assert outputs[2] == "through\n"
    # 3 is the listing's own look into the folder: a child has the standard three and nothing else.
    assert outputs[3].split() == ["0", "1", "2", "3"]


PRINTING = """
import os, sys, threading
from knightcode.app_server.main import main

def chatter():
    for number in range(200):
        print('{"printed":', number, '}', flush=True)
        os.write(1, b'{"written":1}\\n')
        os.system('echo \\'{"shell":1}\\'') if number % 100 == 0 else None

talk = threading.Timer(0.05, chatter)
talk.start()
code = main(sys.argv[1:])
talk.join()
print("after the end", flush=True)
sys.exit(code)
"""


@pytest.mark.rule("S80")
@pytest.mark.proves("FRAMING-004")
async def test_what_code_inside_the_server_prints_lands_on_stderr(tmp_path: Path) -> None:
    """App Server: Starting; a stray print must not break a client."""
    with (tmp_path / "stderr").open("w+b") as errors:
        async with open_pipe(
            tmp_path / "home", stderr=errors.fileno(), command=(sys.executable, "-c", PRINTING)
        ) as pipe:
            await pipe.handshake()
            while (tmp_path / "stderr").stat().st_size == 0:
                await pipe.call("model/list")
            await pipe.close()
            assert await pipe.exit_code() == 0
        errors.seek(0)
        printed = errors.read()
    assert printed.count(b'{"printed":') == printed.count(b'{"written":1}') == 200
    assert printed.count(b'{"shell":1}') == 2
    assert printed.endswith(b"after the end\n")
    assert all(set(one) <= {"id", "result"} for one in pipe.heard)


async def test_input_may_be_a_file_and_its_end_is_the_end_of_input(tmp_path: Path) -> None:
    """App Server: Starting, a script drives the server."""
    written = tmp_path / "input"
    requests = [{"id": number, "method": "thread/list"} for number in range(3_000)]
    written.write_bytes(lines_of(*INIT, *requests))
    with written.open("rb") as file:
        code, heard = await run_to_its_end(SERVER, tmp_path / "home", file.fileno())
    assert (code, len(heard)) == (0, 3_001)


@pytest.mark.rule("S72")
async def test_output_may_be_a_file(tmp_path: Path) -> None:
    """App Server: Starting, a script drives the server."""
    with (tmp_path / "output").open("w+b") as file:
        with trio.fail_after(PATIENCE):
            done = await trio.run_process(
                SERVER, stdin=lines_of(*ASK), stdout=file.fileno(), env=environment(tmp_path), cwd=tmp_path
            )
        file.seek(0)
        assert [json.loads(line)["id"] for line in file] == ["init", 1]
    assert done.returncode == 0


@pytest.mark.rule("S72")
@pytest.mark.parametrize("redirection", ["< /dev/null", "<&-", "< /dev/null >&-", "<&- >&- 2>&-"])
async def test_a_server_without_input_ends_cleanly_at_once(tmp_path: Path, redirection: str) -> None:
    """App Server: Starting; no input is the end of input."""
    command = ("sh", "-c", f'exec "$@" {redirection}', "sh", *SERVER)
    assert await run_to_its_end(command, tmp_path / "home", subprocess.DEVNULL) == (0, [])


async def test_a_server_whose_stdout_is_closed_does_its_work_and_writes_nowhere(tmp_path: Path) -> None:
    """App Server: Starting; what would get the free descriptor's number must not receive the protocol."""
    command = ("sh", "-c", f'exec "$@" >&- 2> {tmp_path / "stderr"}', "sh", *SERVER)
    request = {"id": 1, "method": "thread/start", "params": {"cwd": str(tmp_path)}}
    assert await run_to_its_end(command, tmp_path / "home", lines_of(*INIT, request)) == (0, [])
    assert (tmp_path / "stderr").read_bytes() == b""


@pytest.mark.parametrize("ending", ["EOF", "a signal", "two signals"])
async def test_a_terminal_gets_its_blocking_mode_back(tmp_path: Path, ending: str) -> None:
    """Architecture: transport; the mode is shared with the shell that started the server."""
    ours, theirs = pty.openpty()
    try:
        tty.setraw(theirs)
        assert os.get_blocking(theirs)
        async with open_terminal(tmp_path, theirs) as process:
            os.write(ours, lines_of(*ASK))
            heard = b""
            with trio.fail_after(PATIENCE):
                while heard.count(b"\n") < 2:
                    await trio.lowlevel.wait_readable(ours)
                    heard += os.read(ours, 65536)
                assert not os.get_blocking(theirs)
                if ending == "EOF":
                    # A raw terminal has no end of input but this: its reader is told that it hung up.
                    mode = termios.tcgetattr(theirs)
                    mode[3] |= termios.ICANON
                    termios.tcsetattr(theirs, termios.TCSANOW, mode)
                    os.write(ours, b"\x04")
                else:
                    # Held meanwhile: it finds both at once, and does not end before the second.
                    process.send_signal(signal.SIGSTOP)
                    process.send_signal(signal.SIGTERM)
                    if ending == "two signals":
                        process.send_signal(signal.SIGINT)
                    process.send_signal(signal.SIGCONT)
                code = await process.wait()
                assert code in (
                    (128 + signal.SIGINT, 128 + signal.SIGTERM) if ending == "two signals" else (0,)
                )
        assert os.get_blocking(theirs)
    finally:
        os.close(ours)
        os.close(theirs)
