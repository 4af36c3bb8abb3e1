"""The first words with a real process, and what a client may rule out with them."""

import platform
import sys
from importlib import metadata
from pathlib import Path

import pytest

from knightcode import __version__
from tests.app_server.pipe import INIT, Message, open_pipe, text, tool, write_script
from tests.app_server.recorded import METHODS

ARCHITECTURES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}


@pytest.mark.proves("HANDSHAKE-001", "HANDSHAKE-002", "HANDSHAKE-004", "HANDSHAKE-005")
async def test_initialize_tells_the_installed_version_and_this_machine(tmp_path: Path) -> None:
    """App Server: Handshake."""
    async with open_pipe(tmp_path / "home") as pipe:
        result = await pipe.handshake()
    os_name = sys.platform if sys.platform in ("win32", "darwin") else "linux"
    machine = platform.machine()
    assert result == {
        "serverInfo": {"name": "knightcode", "version": __version__},
        "platform": {
            "os": os_name,
            "arch": ARCHITECTURES.get(machine, machine.lower()),
            "homeDir": str(tmp_path / "home"),
        },
    }
    assert __version__ == installed_version()


def installed_version() -> str:
    """As the package's metadata or, in a checkout that is not installed, its build file says."""
    try:
        return metadata.version("knightcode")
    except metadata.PackageNotFoundError:
        build = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
        return build.partition('\nversion = "')[2].partition('"')[0]


@pytest.mark.proves("HANDSHAKE-013", "HANDSHAKE-014", "HANDSHAKE-015", "HANDSHAKE-016")
async def test_every_method_of_the_schema_waits_for_both_steps_of_the_handshake(tmp_path: Path) -> None:
    """App Server: Handshake, "Method reference"; notes, "Handshake and connection modes"."""
    methods = [method for method in METHODS if method != "initialize"]
    assert methods
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.send(*({"id": f"1 {method}", "method": method} for method in [*methods, "no/such"]))
        await pipe.send({"method": "initialized", "params": {}})  # too early, and ignored
        await pipe.send(INIT[0])
        await pipe.send(*({"id": f"2 {method}", "method": method} for method in [*methods, "no/such"]))
        await pipe.send(INIT[1], {"id": "ready", "method": "model/list"})
        await pipe.until(lambda one: one.get("id") == "ready")
        again = await pipe.ask("initialize", clientInfo={"name": "test", "version": "1"})
    codes = {one["id"]: one.get("error", {}).get("code") for one in pipe.heard}
    assert codes.pop("init") is codes.pop("ready") is None
    assert codes.pop(again["id"]) == "invalidParams"
    assert again["error"]["data"] == {"reason": "alreadyInitialized"}
    assert codes == {f"{n} {method}": "notInitialized" for n in (1, 2) for method in [*methods, "no/such"]}


async def test_a_broken_initialize_may_be_repeated_and_says_what_was_wrong(tmp_path: Path) -> None:
    """App Server notes: Handshake and connection modes."""
    wrong: list[Message] = [
        {},
        {"clientInfo": {"name": "x"}},
        {"clientInfo": {"name": "", "version": "1"}},
        {"clientInfo": {"name": "x" * 201, "version": "1"}},
        {"clientInfo": {"name": "x", "version": "1"}, "mode": "other"},
        {"clientInfo": {"name": "x", "version": "1"}, "capabilities": {"optOutNotifications": "all"}},
        {"clientInfo": {"name": "x", "version": "1"}, "capabilities": {"optOutNotifications": ["x"] * 257}},
    ]
    async with open_pipe(tmp_path / "home") as pipe:
        for params in wrong:
            refused = await pipe.ask("initialize", **params)
            assert refused["error"]["code"] == "invalidParams", params
            assert "initialize" in refused["error"]["message"]
        assert (await pipe.ask("model/list"))["error"]["code"] == "notInitialized"
        await pipe.handshake(capabilities={"optOutNotifications": ["x"] * 256})
        assert "models" in await pipe.call("model/list")


@pytest.mark.proves("HANDSHAKE-008", "HANDSHAKE-009", "HANDSHAKE-010", "HANDSHAKE-011", "HANDSHAKE-012")
async def test_an_opt_out_leaves_out_its_notifications_and_nothing_else(tmp_path: Path) -> None:
    """App Server: Handshake."""
    unwanted = [
        "item/reasoning/delta",
        "item/agentMessage/delta",
        "thread/read",
        "item/toolCall/requestApproval",
        "item/complete",
        "no/such",
    ]
    script = write_script(
        tmp_path / "script.json",
        [{"thinking": "Let me think."}, text("I will."), tool("bash", command="echo hi")],
        [text("Done.")],
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        pipe.answer_approvals = lambda _: {"decision": "accept"}
        await pipe.handshake(capabilities={"optOutNotifications": unwanted})
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        page = await pipe.call("thread/read", threadId=thread_id)
    methods = [method for method, _ in pipe.notifications()]
    assert not set(methods) & set(unwanted)
    assert "item/toolCall/outputDelta" in methods
    assert [one["method"] for one in pipe.heard if "id" in one and "method" in one] == [
        "item/toolCall/requestApproval"
    ]
    completed = [params["item"] for method, params in pipe.notifications() if method == "item/completed"]
    assert [(item["type"], item.get("text")) for item in completed] == [
        ("userMessage", "go"),
        ("reasoning", "Let me think."),
        ("agentMessage", "I will."),
        ("toolCall", None),
        ("agentMessage", "Done."),
    ]
    assert page["turns"][0]["items"] == [
        {key: value for key, value in item.items() if key != "clientMessageId"} for item in completed
    ]
