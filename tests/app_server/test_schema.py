"""Whole sessions, recorded on both sides, against the stored schema; nothing unlisted is ever sent."""

import json
from pathlib import Path

import pytest

from tests.app_server.pipe import Message, Pipe, accept, open_pipe, text, tool, write_script
from tests.app_server.recorded import METHODS, SCHEMA, Talk, faults_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def interrupted_turn(pipe: Pipe, thread_id: str) -> None:
    await pipe.send({"id": "i", "method": "turn/start", "params": {"threadId": thread_id, "text": "silent"}})
    await pipe.until_method("item/agentMessage/delta")
    before = len(pipe.heard)
    await pipe.call("thread/resume", threadId=thread_id)
    await pipe.call("turn/interrupt", threadId=thread_id)
    await pipe.until_idle(before)


@pytest.mark.proves("SCHEMA-001", "SCHEMA-002", "HOST-009")
async def test_every_line_of_a_session_with_everything_in_it_is_in_the_schema_with_every_member(
    tmp_path: Path,
) -> None:
    """App Server: Method reference, "Limits and client reference"."""
    (tmp_path / "note.txt").write_text("one\n")
    script = write_script(
        tmp_path / "script.json",
        {"when": {"system": "You summarise"}, "steps": [text("short")]},
        {"when": {"user": "silent"}, "steps": [text("so far"), {"silence": True}]},
        {"when": {"user": "fail"}, "steps": [text("begun"), {"error": "401 no"}]},
        {"when": {"user": "fine"}, "steps": [{"error": "503 busy"}], "times": 1},
        {"when": {"user": "ask"}, "steps": [tool("bash", command="true")], "times": 1},
        {"when": {"user": "tools", "toolResult": ""}, "steps": [text("All done.")]},
        {
            "when": {"user": "tools"},
            "steps": [
                {"thinking": "Hm."},
                text("I look."),
                tool("read", path="note.txt"),
                tool("bash", command="echo out; echo err >&2; false"),
                tool("edit", path="note.txt", edits=[{"oldText": "one", "newText": "two"}]),
                tool("write", path="new.txt", content="new\n"),
                tool("no_such_tool", x=1),
            ],
            "times": 1,
        },
        {"when": {}, "steps": [text("fine")]},
    )
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    settings = {"compaction": {"keepRecentTokens": 1}, "retry": {"maxRetries": 1, "baseDelayMs": 1}}
    (home / "agent" / "settings.json").write_text(json.dumps(settings))
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.write(b"nonsense\n")
        await pipe.ask("model/list")
        pipe.answer_approvals = accept
        await pipe.handshake(mode="desktop", capabilities={"optOutNotifications": ["x"]})
        thread_id = await pipe.start_thread(
            tmp_path, name="A name", thinkingLevel="high", workspace={"mode": "local"}
        )
        await pipe.run_turn(
            thread_id,
            "tools",
            requestId="r",
            clientMessageId="m",
            images=[{"mimeType": "image/png", "data": PIXEL}],
        )
        await pipe.run_turn(thread_id, "fail")
        await pipe.run_turn(thread_id, "fine")
        await interrupted_turn(pipe, thread_id)
        pipe.answer_approvals = lambda _: {"decision": "decline", "message": "no"}
        await pipe.run_turn(thread_id, "ask")
        await pipe.call(
            "thread/settings/update", threadId=thread_id, approvalMode="fullAccess", thinkingLevel="off"
        )
        await pipe.call("thread/read", threadId=thread_id)
        await pipe.call("thread/list", cwd=str(tmp_path), archived=False, limit=1)
        await pipe.call("model/list")
        await pipe.call("server/diagnostics")
        await pipe.call("thread/compact", threadId=thread_id)
        await pipe.call("turn/queue/add", threadId=thread_id, text="silent", clientMessageId="q")
        turn_id = (await pipe.until_method("item/agentMessage/delta"))["turnId"]
        waits = await pipe.call("turn/queue/add", threadId=thread_id, text="never")
        await pipe.call("turn/queue/remove", threadId=thread_id, queueId=waits["queueId"])
        await pipe.call("turn/steer", threadId=thread_id, expectedTurnId=turn_id, text="more")
        since = len(pipe.heard)
        await pipe.call("turn/interrupt", threadId=thread_id, turnId=turn_id)
        await pipe.until_idle(since)
        await pipe.call("thread/unsubscribe", threadId=thread_id)
        for method, params in (
            ("thread/read", {"threadId": "none"}),
            ("thread/list", {"cursor": "none"}),
            ("thread/start", {"cwd": "relative"}),
            ("turn/interrupt", {"threadId": thread_id, "turnId": "none"}),
            ("turn/start", {"threadId": thread_id, "text": ""}),
            ("no/such", {}),
        ):
            assert "error" in await pipe.ask(method, **params), method
        await pipe.close()
    first: Talk = pipe.talk
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        await pipe.call("thread/list")
        await pipe.call("thread/resume", threadId=thread_id)
        await pipe.send(
            {"id": "w", "method": "turn/start", "params": {"threadId": thread_id, "text": "silent"}}
        )
        await pipe.until_method("item/agentMessage/delta")
        await pipe.close()
    talk = [*first, *pipe.talk]
    assert faults_of(talk) == []
    assert methods_of(talk, "client") == set(METHODS) | {"initialized", "no/such"}
    sent = methods_of(talk, "server")
    missing = {"item/removed", "thread/deleted", "warning", "serverRequest/cancelled"}
    assert set(SCHEMA["notifications"]) - sent <= missing
    assert set(SCHEMA["serverRequests"]) <= sent


def methods_of(talk: Talk, side: str) -> set[str]:
    return {message["method"] for other, message in talk if other == side and "method" in message}


def test_the_check_finds_what_the_schema_does_not_list() -> None:
    """The check itself: each fault is found, and a good line has none."""
    read: Message = {"id": 1, "method": "thread/read", "params": {"threadId": "t"}}
    good: Talk = [
        ("client", read),
        ("server", {"id": 1, "error": {"code": "threadNotFound", "message": "m"}}),
    ]
    assert faults_of(good) == []
    models: Message = {"id": 2, "method": "model/list"}
    turn = {"id": "t", "threadId": "t", "status": "completed", "startedAt": 1, "completedAt": 2}
    done: Message = {"method": "turn/completed", "params": {"threadId": "t", "turn": turn}}
    assert faults_of([("server", done)]) == []
    bad: list[Talk] = [
        [("server", {"id": 9, "result": {}})],
        [("server", {**done, "jsonrpc": "2.0"}), ("server", {"method": "no/such", "params": {}})],
        [("server", {"method": "turn/completed", "params": {**done["params"], "more": 1}})],
        [("server", {"method": "turn/completed", "params": {"threadId": "t", "turn": {**turn, "more": 1}}})],
        [("server", {"method": "turn/completed", "params": {"threadId": "t"}})],
        [("client", models), ("server", {"id": 2, "result": {"models": [{"id": "m"}]}})],
        [("client", models), ("server", {"id": 2, "result": {"models": [], "more": 1}})],
        [("client", models), ("server", {"id": 2, "error": {"code": "threadNotFound", "message": "m"}})],
        [("client", models), ("server", {"id": 2, "error": {"code": "no", "message": "m"}})],
        [("client", models), ("server", {"id": "2", "result": {"models": []}})],
        [("client", {**read, "params": {"threadId": "t", "more": 1}})],
        [("client", {"method": "exit"})],
    ]
    assert [json.dumps(talk) for talk in bad if not faults_of(talk)] == []
