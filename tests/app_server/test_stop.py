"""The server's end: what asks for it, what still happens, and what is gone afterwards."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import trio

from tests.app_server.pipe import (
    INIT,
    PATIENCE,
    alive,
    lines_of,
    open_pipe,
    text,
    tool,
    write_script,
)
from tests.app_server.stopping import (
    DEAF,
    SLEEPER,
    end,
    hearing_the_deaf,
    markers,
    pids_in,
    session_file,
    start_turn,
    statuses,
    until_ready,
    until_stopping,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[IO[bytes]]:
    """For a server's stderr."""
    with (tmp_path / "log").open("w+b") as file:
        yield file


@pytest.fixture
def told(tmp_path: Path) -> Iterator[int]:
    """By which a deaf command tells that it was asked to end."""
    with hearing_the_deaf(tmp_path) as descriptor:
        yield descriptor


@pytest.mark.rule("S68", "S70", "S72", "S78")
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


@pytest.mark.rule("S72")
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


@pytest.mark.rule("S65", "S76")
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


@pytest.mark.rule("S76")
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


@pytest.mark.rule("S67", "S81")
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


@pytest.mark.rule("S70")
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


@pytest.mark.rule("S72", "S80")
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


@pytest.mark.rule("S65")
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


@pytest.mark.rule("S68")
async def test_after_the_stop_began_no_model_is_asked_and_no_queued_input_begins(
    tmp_path: Path, told: int
) -> None:
    """App Server notes: Shutdown; the turn that runs ends, and nothing comes of its end."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "go"}, "steps": [tool("bash", command=DEAF)]},
        {"when": {}, "steps": [text("asked again"), tool("bash", command="touch ran")]},
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await start_turn(pipe, tmp_path / "deaf", "go")
        await until_ready(pipe)
        await pipe.call("turn/queue/add", threadId=thread_id, text="next")
        pipe.process.send_signal(signal.SIGTERM)
        await until_stopping(told)
        await pipe.close()
        assert await pipe.exit_code() == 0
    kinds = [params["item"]["type"] for method, params in pipe.notifications() if method == "item/completed"]
    assert kinds == ["userMessage", "toolCall"]
    assert [method for method, _ in pipe.notifications() if method == "turn/started"] == ["turn/started"]
    assert not (tmp_path / "deaf" / "ran").exists()
    assert markers(session_file(tmp_path / "home", thread_id)) == [
        ("turn_start", None),
        ("turn_end", "interrupted"),
    ]


@pytest.mark.rule("S70", "S80")
@pytest.mark.parametrize("ending", ["EOF", "SIGTERM"])
async def test_a_stop_in_the_middle_of_a_flood_cuts_no_line(tmp_path: Path, ending: str) -> None:
    """App Server notes: Shutdown; the output is lines to its last byte."""
    steps = [{"text": "x" * 200, "repeat": 20_000}, {"silence": True}]
    script = write_script(tmp_path / "script.json", steps)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await start_turn(pipe, tmp_path / "flood", "go")
        await pipe.until_method("item/agentMessage/delta")
        await end(pipe, ending)  # it is `hear` that looks at each line, and at the last byte
        assert await pipe.exit_code() == 0
    assert [
        params["turn"]["status"]
        for method, params in pipe.notifications(thread_id)
        if method == "turn/completed"
    ] == ["interrupted"]
    assert statuses(pipe, thread_id)[-1] == "notLoaded"


@pytest.mark.rule("S76")
async def test_a_signal_after_the_end_of_a_stop_changes_nothing_of_its_exit_code(tmp_path: Path) -> None:
    """App Server notes: Shutdown; until the interpreter itself is gone."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        await pipe.close()  # to the end of its output: everything is over but the process
        pipe.process.send_signal(signal.SIGTERM)
        assert await pipe.exit_code() == 0
