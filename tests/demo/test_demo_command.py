"""The demo as its users start it: a child process, with a real server as its own child."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio

from tests.demo.commands import (
    COMMAND,
    SECONDS,
    Done,
    kept_folders,
    open_terminal_demo,
    private_environ,
    run_demo,
    running_below,
    server_below,
)

CHOICES = "accept (y), decline (n) or cancel (c)"


@attrs.frozen
class Run:
    """A finished demo and what it left behind."""

    done: Done
    folder: Path
    environ: dict[str, str]

    @property
    def kept(self) -> Path:
        (kept,) = kept_folders(self.folder)
        return kept


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run on the sample, which the tests below look at from different sides."""
    folder = tmp_path_factory.mktemp("sample")
    environ = private_environ(folder)
    return Run(run_demo(environ), folder, environ)


def test_the_demo_of_the_sample_succeeds_without_keys_and_says_nothing_on_stderr(sample: Run) -> None:
    assert (sample.done.code, sample.done.err) == (0, "")
    assert "The demo did what it should." in sample.done.out


def test_the_bug_of_the_sample_is_fixed_in_the_copy_and_its_tests_pass(sample: Run) -> None:
    project = sample.kept / "project"
    assert "return -(-items // per_page)" in (project / "pager" / "pages.py").read_text()
    tests = subprocess.run(
        [sys.executable, "-m", "unittest"], cwd=project, capture_output=True, timeout=SECONDS, check=False
    )
    assert tests.returncode == 0, tests.stderr


def test_the_demo_shows_what_it_is_asked_and_what_it_answers(sample: Run) -> None:
    asked = re.findall(
        r"^\? May (\w+) run\?\n(?:    .*\n)+?    choices: (.*)\n    (\w+) ", sample.done.out, re.M
    )
    assert asked == [(tool, "accept, decline, cancel", "accept") for tool in ("bash", "edit", "bash")]


def test_the_test_is_seen_failing_before_the_change_and_passing_after_it(sample: Run) -> None:
    failed, passed = sample.done.out.index("FAILED (failures=1)"), sample.done.out.index("    OK\n")
    assert failed < sample.done.out.index("> edit pager/pages.py") < passed


def test_the_demo_ends_with_diff_usage_and_a_session_file_that_exists(sample: Run) -> None:
    out = sample.done.out
    assert "-    return items // per_page\n+    return -(-items // per_page)\n" in out
    assert re.search(r"usage    [\d,]+ tokens in, \d+ out, \$0\.0000\n", out)
    (session,) = re.findall(r"^  session  (.*)$", out, re.M)
    assert Path(session).parent == sample.kept / "sessions"
    header, *entries = map(json.loads, Path(session).read_text().splitlines())
    assert header["cwd"] == str(sample.kept / "project")
    assert entries


def test_nothing_is_written_to_the_home_folder(sample: Run) -> None:
    assert list((sample.folder / "home").iterdir()) == []


def test_no_process_outlives_the_demo(sample: Run) -> None:
    assert running_below(sample.folder) == []


def test_the_printed_lines_are_the_ones_in_the_file(sample: Run) -> None:
    printed = [line for line in sample.done.out.splitlines() if line.startswith('{"')]
    assert printed == (sample.kept / "turn.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in printed] == [
        "initialize",
        "initialized",
        "thread/settings/update",
        "turn/start",
    ]


def test_the_printed_commands_have_the_turn_once_more(sample: Run) -> None:
    commands = sample.done.out[sample.done.out.index("\ncd ") : sample.done.out.index("\nThe demo did")]
    (sample.kept / "project" / "left-by-the-turn").touch()
    done = subprocess.run(
        ["sh", "-c", commands],
        env=sample.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert not (sample.kept / "project" / "left-by-the-turn").exists()
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["id"] for message in messages if "result" in message] == [1, 2, 3]
    (ended,) = [
        message["params"]["turn"] for message in messages if message.get("method") == "turn/completed"
    ]
    assert ended["status"] == "completed"
    calls = [
        (message["params"]["item"]["tool"], message["params"]["item"]["status"])
        for message in messages
        if message.get("method") == "item/completed" and message["params"]["item"]["type"] == "toolCall"
    ]
    assert calls == [
        ("read", "completed"),
        ("read", "completed"),
        ("bash", "failed"),
        ("edit", "completed"),
        ("bash", "completed"),
    ]


def test_a_folder_of_the_user_is_copied_and_never_changed(tmp_path: Path) -> None:
    environ, folder = private_environ(tmp_path), tmp_path / "mine"
    git = {**environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    (folder / "node_modules").mkdir(parents=True)
    (folder / ".gitignore").write_text("node_modules/\n")
    (folder / "README.md").write_text("mine\n")
    (folder / "node_modules" / "huge.js").write_text("ignored\n")
    subprocess.run(["git", "init", "-q", str(folder)], env=git, check=True, timeout=SECONDS)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    # As inside a git hook: these variables would send every git command to the user's repository.
    hooked = {**environ, "GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    done = run_demo(hooked, str(folder))
    assert (done.code, done.err) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    (kept,) = kept_folders(tmp_path)
    names = {path.name for path in (kept / "project").iterdir()}
    assert names == {".git", ".gitignore", "README.md", "KNIGHTCODE_DEMO.md"}
    assert "?? KNIGHTCODE_DEMO.md" in done.out
    assert "+# A note from the demo" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wrong",), "unknown option --wrong"),
        (("/does/not/exist",), "/does/not/exist does not exist; give the folder of a project"),
        (("--model", "nobody/knows"), "there is no model nobody/knows"),
    ],
)
def test_a_demo_that_cannot_begin_says_why_and_leaves_nothing_behind(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = run_demo(private_environ(tmp_path), *arguments)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert kept_folders(tmp_path) == []


def test_without_git_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    done = run_demo(private_environ(tmp_path, PATH=str(tmp_path)))
    assert (done.code, done.out) == (1, "")
    assert "git is not installed" in done.err
    assert "https://git-scm.com/downloads" in done.err


def model_of_ones_own(folder: Path, *replies: object) -> dict[str, str]:
    """An environment whose models.json has the model mine/one, which plays these replies."""
    agent = folder / "agent"
    agent.mkdir()
    provider = {"api": "scripted", "baseUrl": "one.json", "models": [{"id": "one"}]}
    (agent / "models.json").write_text(json.dumps({"providers": {"mine": provider}}))
    (agent / "one.json").write_text(json.dumps({"replies": replies}))
    return private_environ(folder, KNIGHTCODE_CODING_AGENT_DIR=str(agent))


def test_a_model_that_can_be_used_is_taken_before_the_one_in_the_box(tmp_path: Path) -> None:
    environ = model_of_ones_own(tmp_path, {"steps": [{"text": "I do nothing."}]})
    done = run_demo(environ, "--yes")
    assert "  model    mine/one\n" in done.out
    assert "\nI do nothing.\n" in done.out
    assert done.out.count("The turn is completed, but the sample's tests still fail.") == 1
    assert done.code == 1


def test_a_real_models_commands_are_not_accepted_where_nobody_said_so(tmp_path: Path) -> None:
    command = {"toolCall": {"name": "bash", "arguments": {"command": f"touch {tmp_path}/ran"}}}
    done = run_demo(model_of_ones_own(tmp_path, {"steps": [command]}))
    assert (done.code, done.out) == (1, "")
    assert "mine/one is a real model" in done.err
    assert "--yes" in done.err
    assert not (tmp_path / "ran").exists()
    assert kept_folders(tmp_path) == []


def test_a_turn_that_fails_makes_the_demo_fail(tmp_path: Path) -> None:
    done = run_demo(
        model_of_ones_own(tmp_path, {"steps": [{"error": "no luck today"}]}), "--model", "mine/one", "--yes"
    )
    assert "no luck today" in done.out
    assert "The turn is failed, so the demo was not shown to its end." in done.out
    assert "The same over the protocol" not in done.out
    assert done.code == 1


@pytest.mark.parametrize("text", ['{"providers": {"mine": {}}}', "{"])
def test_a_models_json_with_a_mistake_is_told_beside_the_model_that_is_missing(
    text: str, tmp_path: Path
) -> None:
    environ = model_of_ones_own(tmp_path)
    (tmp_path / "agent" / "models.json").write_text(text)
    done = run_demo(environ, "--model", "mine/one")
    assert (done.code, done.out) == (1, "")
    assert f"\nwarning: {tmp_path}/agent/models.json: " in done.err
    assert kept_folders(tmp_path) == []


def test_a_models_json_with_a_mistake_is_told_once_when_the_demo_goes_on_without_it(tmp_path: Path) -> None:
    environ = model_of_ones_own(tmp_path)
    (tmp_path / "agent" / "models.json").write_text("{")
    done = run_demo(environ)
    assert (done.code, done.err) == (0, "")
    assert done.out.count(f"{tmp_path}/agent/models.json: ") == 1
    assert f"  warning  {tmp_path}/agent/models.json: " in done.out


def test_a_broken_settings_file_is_told_once_beside_a_model_that_can_be_used(tmp_path: Path) -> None:
    environ = model_of_ones_own(tmp_path, {"steps": [{"text": "I do nothing."}]})
    (tmp_path / "agent" / "settings.json").write_text("{")
    done = run_demo(environ, "--yes")
    assert done.out.count("settings.json is not valid JSON") == 1
    (kept,) = kept_folders(tmp_path)
    logged = [json.loads(line) for line in (kept / "server.log").read_text().splitlines()]
    problems = [line["reason"] for line in logged if line["event"] == "configuration problem"]
    assert len(problems) == 2  # the server that was asked for its models, and the one of the turn
    assert all("settings.json is not valid JSON" in problem for problem in problems)


async def test_a_server_that_dies_ends_the_demo_with_its_log_named(tmp_path: Path) -> None:
    environ = model_of_ones_own(tmp_path, {"steps": [{"text": "I am here."}, {"silence": True}]})
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(environ, "--yes") as demo:
            await demo.wait_for("I am here.")
            os.kill(server_below(tmp_path / "temporary"), signal.SIGKILL)
            code, shown = await demo.wait_for_end()
    assert code == 1
    assert "The server ended before the turn was over; its log is " in shown


async def test_ctrl_c_interrupts_the_turn_and_the_demo_ends_in_good_order(tmp_path: Path) -> None:
    environ = model_of_ones_own(tmp_path, {"steps": [{"text": "I am here."}, {"silence": True}]})
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(environ) as demo:
            await demo.wait_for("I am here.")
            demo.type("\x03")
            await demo.wait_for("Interrupting the turn.")
            code, shown = await demo.wait_for_end()
    assert code == 1
    assert "The turn is interrupted after" in shown
    assert "The turn is interrupted, so the demo was not shown to its end." in shown
    assert running_below(tmp_path / "temporary") == []


async def test_ctrl_c_takes_back_the_question_that_a_person_is_asked(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(private_environ(tmp_path), "--scripted") as demo:
            await demo.wait_for(f"{CHOICES}? ")
            demo.type("\x03")
            await demo.wait_for("Interrupting the turn.")
            code, shown = await demo.wait_for_end()
    assert code == 1
    assert "The turn is interrupted after" in shown
    assert CHOICES not in shown
    assert running_below(tmp_path / "temporary") == []


async def test_a_second_ctrl_c_ends_the_server_at_once(tmp_path: Path) -> None:
    # The path in it is what a process that stays behind would be found by.
    stubborn = f"trap '' TERM; : {tmp_path / 'temporary'}; while :; do sleep 0.1; done"
    environ = model_of_ones_own(
        tmp_path, {"steps": [{"toolCall": {"name": "bash", "arguments": {"command": stubborn}}}]}
    )
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(environ, "--yes") as demo:
            await demo.wait_for("(the demo answers)")
            demo.type("\x03")
            await demo.wait_for("Interrupting the turn.")
            demo.type("\x03")
            code, shown = await demo.wait_for_end()
    assert code == 1
    assert "knightcode demo: stopped; the server has ended" in shown
    assert "Copy, session file and log stay until you remove them:\n  rm -rf " in shown
    assert running_below(tmp_path / "temporary") == []


async def test_ctrl_c_before_the_turn_leaves_nothing_behind(tmp_path: Path) -> None:
    environ, waits = private_environ(tmp_path), tmp_path / "bin" / "git"
    waits.parent.mkdir()
    waits.write_text("#!/bin/sh\necho waiting >/dev/tty\nexec sleep 1000\n")
    waits.chmod(0o755)
    environ["PATH"] = f"{waits.parent}{os.pathsep}{environ['PATH']}"
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(environ) as demo:
            await demo.wait_for("waiting")
            demo.type("\x03")
            code, shown = await demo.wait_for_end()
    assert (code, "stopped; the server has ended" in shown) == (1, True)
    assert kept_folders(tmp_path) == []


async def test_a_person_at_a_terminal_is_asked_and_may_decline(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(private_environ(tmp_path)) as demo:
            await demo.wait_for(f"{CHOICES}? ")
            demo.type("what?\n")
            await demo.wait_for(f"That is no answer; please type {CHOICES}.\n")
            for answer in ("accept\n", "N\n"):
                await demo.wait_for(f"{CHOICES}? ")
                demo.type(answer)
            code, shown = await demo.wait_for_end()
    assert code == 1
    assert "did not run" in shown
    assert "The turn is completed, but the sample's tests still fail." in shown


async def test_in_ci_a_terminal_is_no_person_and_gets_colours_all_the_same(tmp_path: Path) -> None:
    with trio.fail_after(SECONDS):
        async with open_terminal_demo(private_environ(tmp_path, CI="true")) as demo:
            code, shown = await demo.wait_for_end()
    assert code == 0
    assert CHOICES not in shown
    assert "\x1b[32m+    return -(-items // per_page)\x1b[0m" in shown


def test_a_reader_that_goes_away_does_not_break_the_demo(tmp_path: Path) -> None:
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    assert reader.stdin is not None
    reader.wait(timeout=SECONDS)
    done = subprocess.run(
        [*COMMAND, "--scripted"],
        env=private_environ(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=reader.stdin,
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    reader.stdin.close()
    assert (done.returncode, done.stderr) == (0, b"")
    assert running_below(tmp_path) == []


def test_a_demo_whose_output_cannot_be_written_fails_and_says_so(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "--scripted"],
            env=private_environ(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    said = "knightcode demo: what it had to say could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert running_below(tmp_path) == []


async def test_a_question_that_nobody_could_read_is_not_waited_for(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with trio.fail_after(SECONDS):
            async with open_terminal_demo(private_environ(tmp_path), "--scripted", stdout=full) as demo:
                code, shown = await demo.wait_for_end()
    finally:
        os.close(full)
    assert code == 1
    assert "could not be written: No space left on device" in shown
