"""Logs of the server: where they go, what a line is, and that nobody has to read them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.app_server.pipe import INIT, PATIENCE, environment, lines_of, open_pipe, text, write_script

LOGGING = """
import logging, sys, threading
from knightcode.app_server.main import main

count, padding = int(sys.argv.pop(1)), "x" * 200
noted = threading.Event()

class Root(logging.RootLogger):
    def addHandler(self, handler):
        super().addHandler(handler)
        noted.set()

logging.root.__class__ = Root

def chatter():
    noted.wait()
    for number in range(count):
        logging.getLogger("chatter").error("line %d", number, extra={"padding": padding})
    try:
        raise ValueError("on purpose \\ud83d")
    except ValueError:
        logging.getLogger("chatter").exception("failed", extra={"thing": object()})

talk = threading.Thread(target=chatter)
talk.start()
code = main(sys.argv[1:])
talk.join()
sys.exit(code)
"""


def chatty(lines: int) -> tuple[str, ...]:
    """A server in which a thread logs so many lines as soon as there is a log, and a failure at last."""
    return (sys.executable, "-c", LOGGING, str(lines))


async def stop_when_logged(home: Path, lines: int, stderr: Path) -> None:
    """Run a chatty server until its last line, the failure, has been written."""
    with stderr.open("wb") as errors:
        async with open_pipe(home, stderr=errors.fileno(), command=chatty(lines)) as pipe:
            await pipe.handshake()
            with trio.fail_after(PATIENCE):
                while b"on purpose" not in stderr.read_bytes():
                    await pipe.call("model/list")
            await pipe.close()
            assert await pipe.exit_code() == 0
            assert all("event" not in one for one in pipe.heard)


@pytest.mark.proves("FRAMING-005")
async def test_logs_are_objects_on_stderr_one_per_line_with_their_fields(tmp_path: Path) -> None:
    """App Server: Starting; architecture, errors and logs."""
    await stop_when_logged(tmp_path / "home", 3, tmp_path / "log")
    lines = [json.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert [line["event"] for line in lines] == ["line 0", "line 1", "line 2", "failed"]
    first, last = lines[0], lines[-1]
    assert first == {
        "time": first["time"],
        "level": "error",
        "event": "line 0",
        "logger": "chatter",
        "padding": "x" * 200,
    }
    assert last["failure"].endswith("ValueError: on purpose \ufffd\n")
    assert last["thing"].startswith("<object")


@pytest.mark.proves("FRAMING-005")
async def test_a_failure_of_the_server_is_logged_without_what_people_wrote(tmp_path: Path) -> None:
    """Architecture: errors and logs; prompts never."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "agent").write_bytes(b"a file where the directory should be")
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("a secret reply")]})
    with (tmp_path / "log").open("w+b") as errors:
        async with open_pipe(home, "--scripted-model", str(script), stderr=errors.fileno()) as pipe:
            await pipe.handshake()
            thread_id = await pipe.start_thread(tmp_path)
            await pipe.send(
                {
                    "id": "t",
                    "method": "turn/start",
                    "params": {"threadId": thread_id, "text": "a secret prompt"},
                }
            )
            broken = await pipe.until(
                lambda one: one.get("params", {}).get("status", {}).get("type") == "systemError"
            )
            assert str(home / "agent") in broken["params"]["status"]["message"]
            await pipe.close()
        errors.seek(0)
        lines = [json.loads(line) for line in errors.read().splitlines()]
    assert ("error", "thread broken") in [(line["level"], line["event"]) for line in lines]
    assert {line["thread_id"] for line in lines if line["event"] != "configuration problem"} == {thread_id}
    assert "secret" not in json.dumps(lines)


@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full", "2> /dev/null"])
async def test_a_log_that_cannot_be_written_costs_nothing(tmp_path: Path, redirection: str) -> None:
    """Architecture: errors and logs."""
    command = ("sh", "-c", f'exec "$@" {redirection}', "sh", *chatty(100))
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command,
            stdin=lines_of(*INIT, {"id": 1, "method": "model/list"}),
            capture_stdout=True,
            check=False,
            env=environment(tmp_path),
            cwd=tmp_path,
        )
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["init", 1]


async def test_a_stderr_that_nobody_reads_holds_nothing_up_and_drops_lines_in_the_end(tmp_path: Path) -> None:
    """Architecture: errors and logs; a full stderr must not stop the loop."""
    reading, writing = os.pipe()
    try:
        async with open_pipe(tmp_path / "home", stderr=writing, command=chatty(5_000)) as pipe:
            await pipe.handshake()
            for _ in range(20):
                await pipe.call("model/list")
            await pipe.close()
            assert await pipe.exit_code() == 0
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as kept:
        lines = kept.read().splitlines()
    assert 0 < len(lines) < 5_000
    assert [json.loads(line)["event"] for line in lines[:100]] == [f"line {number}" for number in range(100)]


async def test_a_stderr_whose_reader_went_away_holds_nothing_up(tmp_path: Path) -> None:
    """Architecture: errors and logs."""
    async with open_pipe(tmp_path / "home", stderr=subprocess.PIPE, command=chatty(500)) as pipe:
        assert pipe.process.stderr is not None
        await pipe.process.stderr.aclose()
        await pipe.handshake()
        await pipe.call("model/list")
        await pipe.close()
        assert await pipe.exit_code() == 0
