"""A client in another language, which shares no code with the product, against a provider's real wire."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.app_server.pipe import Message, environment
from tests.app_server.provider import DIALECTS, Dialect, calls, configure, name_of, reply, says, thinks
from tests.models.loopback import open_loopback

CLIENT = Path(__file__).with_name("foreign_client.mjs")
PATIENCE = 30.0
"""Seconds; the client itself gives up after twenty."""


async def run_client(home: Path, project: Path, text: str) -> list[Message]:
    """The client's two runs against the server, as it tells them."""
    node = shutil.which("node")
    assert node is not None, "Node 18 or newer is needed to run the client of another language"
    command = [node, str(CLIENT), str(project), text, sys.executable, "-m", "knightcode", "app-server"]
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            check=False,
            env=environment(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
        )
    told = json.loads(done.stdout)
    assert "error" not in told and done.returncode == 0, told
    runs: list[Message] = told["runs"]
    return runs


def shape(message: Message) -> str:
    """A message in a word or two."""
    method, params = message.get("method"), message.get("params", {})
    if method is None:
        return f"answer {message['id']}"
    if method == "thread/status/changed":
        return " ".join(["status", params["status"]["type"], *params["status"].get("waitingOn", [])])
    if method.startswith("item/") and "item" in params:
        return f"{method.removeprefix('item/')} {params['item']['type']}"
    if "tool" in params:
        return f"ask {params['tool']}"
    return str(method)


def from_server(run: Message) -> list[Message]:
    return [one["message"] for one in run["messages"] if one["from"] == "server"]


def turns_as_sent(run: Message) -> str:
    """The turns of the last `thread/read` answer, as they stand in its line."""
    line = next(line for line in reversed(run["lines"]) if '"turns":' in line)
    return str(line[line.index('"turns":') :])


@pytest.mark.proves("HOST-009", "CLIENT-001", "ITEM-006", "ITEM-008", "ITEM-009", "TURN-016", "STATUS-004")
@pytest.mark.parametrize("dialect", DIALECTS, ids=name_of)
async def test_a_client_in_another_language_runs_a_turn_and_reads_it_back_byte_for_byte(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server: Handshake, Threads and turns, Approvals, History, listings, and large values."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "rate.py").write_bytes(b"LIMIT = 60\r\n# \xe2\x80\xa8 end")
    change = {"path": "rate.py", "edits": [{"oldText": "60", "newText": "90"}]}
    answers = (
        reply(dialect, thinks("Which?"), says("I ", "look."), calls("c1", "read", path="rate.py")),
        reply(dialect, calls("c2", "edit", **change)),
        reply(dialect, calls("c3", "bash", command="cat rate.py | tr -d '\\n'")),
        reply(dialect, says("It is \u2028 90 ", "now.\ud83d")),
    )
    async with open_loopback(*answers) as provider:
        configure(home, dialect, provider.url, {"reasoning": True})
        first, second = await run_client(home, project, "Raise the limit \u2028 please")
    assert (project / "rate.py").read_bytes() == b"LIMIT = 90\r\n# \xe2\x80\xa8 end"
    assert len(provider.requests) == len(answers)
    assert [(run["exitCode"], run["signal"]) for run in (first, second)] == [(0, None), (0, None)]
    call = ["started toolCall", "completed toolCall"]
    asked = ["started toolCall", "status active approval", "{}", "status active", "completed toolCall"]
    edit = [step.format("ask edit") for step in asked]
    shell = [step.format("ask bash") for step in asked]
    usage = "thread/tokenUsage/updated"
    spoken = [shape(message) for message in from_server(first)]
    assert [step for step in spoken if step != "item/toolCall/outputDelta"] == [
        "answer client-1",
        "answer client-2",
        "thread/started",
        "answer client-3",
        "status active",
        "answer client-4",
        "turn/started",
        "started userMessage",
        "completed userMessage",
        "started reasoning",
        "item/reasoning/delta",
        "started agentMessage",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "completed reasoning",
        "completed agentMessage",
        usage,
        *call,
        usage,
        *edit,
        usage,
        *shell,
        "started agentMessage",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/agentMessage/delta",  # half a character, which waited for its other half
        "completed agentMessage",
        usage,
        "turn/completed",
        "thread/turn/completed",
        "status idle",
        "answer client-5",
        "status notLoaded",
    ]
    assert turns_as_sent(first) == turns_as_sent(second)
    assert_told_as_read_back(from_server(first))


def assert_told_as_read_back(heard: list[Message]) -> None:
    """What `item/completed` said is what `thread/read` says, but for the client's own token."""
    (turn,) = next(one["result"]["turns"] for one in heard if "turns" in one.get("result", {}))
    told: dict[str, Any] = {}
    for one in heard:
        if one.get("method") == "item/completed":
            told[one["params"]["item"]["id"]] = one["params"]["item"]
    items = sorted(told.values(), key=lambda item: item["index"])
    assert items[0].pop("clientMessageId") == "draft-1"
    assert items == turn["items"]
    assert [(item["type"], item.get("status")) for item in items] == [
        ("userMessage", None),
        ("reasoning", None),
        ("agentMessage", None),
        ("toolCall", "completed"),
        ("toolCall", "completed"),
        ("toolCall", "completed"),
        ("agentMessage", None),
    ]
    assert items[5]["output"] == [{"type": "text", "text": "LIMIT = 90\r# \u2028 end"}]
    assert items[6]["text"] == "It is \u2028 90 now.\ufffd"


def test_the_client_of_another_language_imports_nothing_but_node() -> None:
    words = ("import ", "import(", "require(")
    imports = [line for line in CLIENT.read_text().splitlines() if any(word in line for word in words)]
    assert imports == ['import { spawn } from "node:child_process";']
