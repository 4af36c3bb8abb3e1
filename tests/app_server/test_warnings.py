"""What a thread's answers warn of: files that someone wrote and that could not be used as they are.

Source: App Server, "Threads and turns"; App Server notes, "Queue, usage, model, warning, UI".
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.app_server.pipe import Message, Pipe, open_pipe, text, write_script
from tests.app_server.recorded import faults_of

SOURCES: Final = {"settings", "extension", "trust", "server"}
MALFORMED: Final = '{"defaultModel": "m-1",'


def configured(home: Path, files: Mapping[str, str]) -> Path:
    """The agent's folder, with these files in it."""
    agent = home / "agent"
    agent.mkdir(parents=True)
    for name, content in files.items():
        (agent / name).write_text(content)
    return agent


async def started(pipe: Pipe, cwd: Path) -> Message:
    """The result of a `thread/start`."""
    return await pipe.call("thread/start", cwd=str(cwd))


@pytest.mark.proves("WARN-001", "WARN-002", "WARN-003", "WARN-005")
async def test_malformed_settings_are_warned_of_when_a_thread_starts_and_when_it_is_resumed(
    tmp_path: Path,
) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    home = tmp_path / "home"
    settings = configured(home, {"settings.json": MALFORMED}) / "settings.json"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        begun = await started(pipe, tmp_path)
        thread_id = begun["thread"]["id"]
        await pipe.run_turn(thread_id)
        assert (await pipe.call("thread/resume", threadId=thread_id))["warnings"] == begun["warnings"]
    async with open_pipe(home, "--scripted-model", str(script)) as later:
        await later.handshake()
        assert (await later.call("thread/resume", threadId=thread_id))["warnings"] == begun["warnings"]
    (warning,) = begun["warnings"]
    assert warning == {"message": warning["message"], "source": "settings"}
    assert warning["message"].startswith(f"{settings} is not valid JSON (")
    assert warning["message"].endswith("; its settings are not used")
    assert "warning" not in {method for method, _ in [*pipe.notifications(), *later.notifications()]}
    assert faults_of([*pipe.talk, *later.talk]) == []


def a_list(path: Path) -> None:
    path.write_text("[]")


def no_utf8(path: Path) -> None:
    path.write_bytes(b'{"shellPath":"\xff"}')


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.proves("WARN-005")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (a_list, "does not hold a JSON object"),
        (no_utf8, "is not valid JSON ("),
        (nothing, "is not valid JSON ("),
        (a_folder, "cannot be read (Is a directory)"),
        (a_pipe, "cannot be read (It is not a regular file)"),
    ],
)
async def test_settings_that_cannot_be_read_are_one_warning_and_threads_work_all_the_same(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    settings = configured(tmp_path / "home", {}) / "settings.json"
    spoil(settings)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        begun = await started(pipe, tmp_path)
        assert (await pipe.run_turn(begun["thread"]["id"]))["turn"]["status"] == "completed"
    (warning,) = begun["warnings"]
    assert warning["source"] == "settings"
    assert warning["message"].startswith(f"{settings} {reason}")


async def test_settings_without_a_fault_are_no_warning(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    configured(tmp_path / "home", {"settings.json": '{"later": {"x": 1}}'})
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        assert (await started(pipe, tmp_path))["warnings"] == []


@pytest.mark.proves("WARN-003", "WARN-004")
async def test_every_warning_says_what_it_is_about_and_comes_from_a_source_of_the_list(
    tmp_path: Path,
) -> None:
    """A session file that was damaged, and a configuration in which nothing is as it should be."""
    script = write_script(tmp_path / "script.json", [text("Hello")])
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
    session = Path(thread["sessionFile"])
    header, *entries = session.read_bytes().splitlines(keepends=True)
    session.write_bytes(header + b'{"type":"mess\n' + b"".join(entries))
    wrong = {"retry": {"maxRetries": "many"}, "httpIdleTimeoutMs": []}
    agent = home / "agent"
    (agent / "settings.json").write_text(json.dumps(wrong))
    (agent / "models.json").write_text(MALFORMED)
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        warnings = (await pipe.call("thread/resume", threadId=thread_id))["warnings"]
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
    assert {warning["source"] for warning in warnings} == {"settings", "server"} <= SOURCES
    assert warnings[-1] == {
        "message": "1 damaged line(s) of the session file were skipped",
        "source": "server",
        "path": str(session),
    }
    about = "maxRetries", "httpIdleTimeoutMs", "models.json"
    assert [name for name in about if not any(name in one["message"] for one in warnings)] == []
    assert all(set(one) <= {"message", "source", "path", "line", "column"} for one in warnings)
    assert faults_of(pipe.talk) == []
