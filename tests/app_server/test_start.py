"""The command line of the server: options, usage, and where session files go."""

import json
import subprocess
from pathlib import Path

import pytest
import trio

from tests.app_server.pipe import PATIENCE, Pipe, environment, open_pipe, text, write_script

VARIABLE = "KNIGHTCODE_CODING_AGENT_SESSION_DIR"


async def output_of_run(home: Path, *arguments: str) -> tuple[int, bytes, bytes]:
    """Exit code, stdout and stderr of a server whose stdin stays open and silent all the time."""
    with (home / "stderr").open("w+b") as errors:
        async with open_pipe(home, *arguments, stderr=errors.fileno()) as pipe:
            code = await pipe.exit_code()
            assert pipe.process.stdout is not None
            with trio.fail_after(PATIENCE):
                output = b"".join([bytes(chunk) async for chunk in pipe.process.stdout])
        errors.seek(0)
        return code, output, errors.read()


@pytest.mark.proves("START-014", "START-015")
async def test_help_prints_the_usage_on_stderr_and_exits_while_stdin_is_open(tmp_path: Path) -> None:
    """App Server: Starting; command line, "app-server"."""
    code, output, errors = await output_of_run(tmp_path, "--help")
    assert (code, output) == (0, b"")
    for option in (b"--session-dir", b"--scripted-model", b"--help", b"-h"):
        assert option in errors
    assert await output_of_run(tmp_path, "-h") == (0, b"", errors)
    assert await output_of_run(tmp_path, "--session-dir", str(tmp_path), "-h") == (0, b"", errors)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--no-such-option"], b"--no-such-option"),
        (["somewhere"], b"somewhere"),
        (["--session-dir"], b"--session-dir needs a value"),
        (["--session-dir", ""], b"--session-dir needs a value"),
        (["--scripted-model"], b"--scripted-model needs a value"),
        (["--session-dir", "/tmp", "--session-dirr", "/tmp"], b"--session-dirr"),
        (["-e"], b"-e"),
        (["--extension"], b"--extension"),
    ],
)
async def test_wrong_arguments_are_told_with_the_usage_on_stderr(
    tmp_path: Path, arguments: list[str], said: bytes
) -> None:
    """Command line, "app-server": message and usage on stderr, exit 2."""
    code, output, errors = await output_of_run(tmp_path, *arguments)
    assert (code, output) == (2, b"")
    first, _, usage = errors.partition(b"\n\n")
    assert said in first
    assert usage.startswith(b"usage: knightcode app-server")


async def test_a_scripted_model_that_is_missing_fails_the_turn_and_not_the_server(tmp_path: Path) -> None:
    """App Server: Threads and turns; a model's failure is a turn's outcome."""
    async with open_pipe(tmp_path / "home", "--scripted-model", "none.json") as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        turn = (await pipe.run_turn(thread_id))["turn"]
        assert turn["status"] == "failed"
        assert "none.json" in turn["error"]["message"]


async def saved_file(pipe: Pipe, cwd: Path) -> Path:
    """Where the session file of a new thread in `cwd` lies after its first turn."""
    await pipe.handshake()
    thread_id = await pipe.start_thread(cwd)
    await pipe.run_turn(thread_id)
    thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
    found = Path(thread["sessionFile"])
    assert found.is_file()
    return found


@pytest.mark.proves("START-010", "START-011", "START-012", "START-013")
async def test_the_session_folder_is_the_flags_then_the_variables_then_the_settings_then_the_projects(
    tmp_path: Path,
) -> None:
    """App Server: Starting."""
    home, project = tmp_path / "home", tmp_path / "project"
    (home / "agent").mkdir(parents=True)
    project.mkdir()
    script = str(write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hi")]}))
    flag, variable, setting = tmp_path / "flag", tmp_path / "variable", tmp_path / "setting"
    with_variable = environment(home, **{VARIABLE: str(variable)})
    async with open_pipe(home, "--scripted-model", script) as pipe:
        own = await saved_file(pipe, project)
    assert own.parent.parent == home / "agent" / "sessions"
    (home / "agent" / "settings.json").write_text(json.dumps({"sessionDir": str(setting)}))
    async with open_pipe(home, "--scripted-model", script) as pipe:
        assert (await saved_file(pipe, project)).parent == setting
    async with open_pipe(home, "--scripted-model", script, environ=with_variable) as pipe:
        assert (await saved_file(pipe, project)).parent == variable
    arguments = ("--session-dir", str(flag), "--scripted-model", script)
    async with open_pipe(home, *arguments, environ=with_variable) as pipe:
        assert (await saved_file(pipe, project)).parent == flag


async def test_a_relative_session_dir_begins_at_the_servers_directory_and_not_at_the_threads(
    tmp_path: Path,
) -> None:
    """App Server: Starting; command line, "app-server"."""
    started, project = tmp_path / "started", tmp_path / "project"
    started.mkdir()
    project.mkdir()
    write_script(started / "script.json", [text("hi")])
    arguments = ("--session-dir", "kept", "--scripted-model", "script.json")
    async with open_pipe(tmp_path / "home", *arguments, cwd=started) as pipe:
        assert (await saved_file(pipe, project)).parent == started / "kept"


async def test_a_broken_settings_file_is_a_warning_and_no_reason_not_to_start(tmp_path: Path) -> None:
    """Settings, "Malformed file"."""
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    (home / "agent" / "settings.json").write_bytes(b'{"sessionDir": ')
    async with open_pipe(home) as pipe:
        await pipe.handshake()
        warnings = (await pipe.call("thread/start", cwd=str(tmp_path)))["warnings"]
        assert [str(home / "agent" / "settings.json") in one["message"] for one in warnings] == [True]


async def test_an_agent_directory_that_cannot_exist_does_not_keep_the_server_from_starting(
    tmp_path: Path,
) -> None:
    """App Server: Starting; listings and models need no directory."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "agent").write_bytes(b"a file is in the way")
    async with open_pipe(home, stderr=subprocess.DEVNULL) as pipe:
        await pipe.handshake()
        assert (await pipe.call("thread/list")) == {"threads": []}
        assert "error" not in await pipe.ask("model/list")
