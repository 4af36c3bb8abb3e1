"""Who may let a tool run, what an answer is worth, and what is remembered of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app_server.pipe import Message, Pipe, open_pipe, text, tool, write_script

REQUEST = "item/toolCall/requestApproval"


async def asked_turn(pipe: Pipe, thread_id: str, answer: Any) -> tuple[list[Message], list[Message]]:
    """Run a turn and give every question one answer; the questions, and the tool items as they ended."""
    before = len(pipe.heard)
    pipe.answer_approvals = lambda _: answer
    await pipe.run_turn(thread_id)
    pipe.answer_approvals = None
    heard = pipe.heard[before:]
    questions = [one["params"] for one in heard if one.get("method") == REQUEST]
    items = [one["params"]["item"] for one in heard if one.get("method") == "item/completed"]
    return questions, [item for item in items if item["type"] == "toolCall"]


@pytest.mark.proves(
    "APPROVAL-002", "APPROVAL-009", "APPROVAL-011", "APPROVAL-014", "APPROVAL-022", "THREAD-002", "STATUS-004"
)
async def test_a_desktop_thread_asks_again_for_each_call_with_its_ids_unless_it_has_full_access(
    tmp_path: Path,
) -> None:
    """App Server: Approvals."""
    call = tool("bash", command="echo x >> ran")
    script = write_script(tmp_path / "script.json", [call], [call], [text("ok")], [call], [text("ok")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        by_default = await pipe.call("thread/start", cwd=str(tmp_path))
        assert by_default["thread"]["approvalMode"] == "ask"
        thread_id = by_default["thread"]["id"]
        questions, items = await asked_turn(pipe, thread_id, {"decision": "accept"})
        turn_id = next(p["turn"]["id"] for method, p in pipe.notifications() if method == "turn/started")
        assert [
            (one["threadId"], one["turnId"], one["itemId"], one["tool"], one["decisions"])
            for one in questions
        ] == [(thread_id, turn_id, item["id"], "bash", ["accept", "decline", "cancel"]) for item in items]
        assert len(questions) == 2
        statuses = [
            (p["status"]["type"], p["status"].get("waitingOn"))
            for method, p in pipe.notifications()
            if method == "thread/status/changed"
        ]
        assert statuses == [
            ("active", []),
            *[("active", ["approval"]), ("active", [])] * 2,
            ("idle", None),
        ]
        trusted = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        questions, items = await asked_turn(pipe, trusted, {"decision": "decline"})
        assert (questions, [item["status"] for item in items]) == ([], ["completed"] * 2)
    assert (tmp_path / "ran").read_text() == "x\n" * 4


@pytest.mark.proves("APPROVAL-008")
async def test_an_accepted_call_may_write_outside_the_workspace(tmp_path: Path) -> None:
    """App Server: Approvals; consent is no sandbox."""
    project, outside = tmp_path / "project", tmp_path / "outside.txt"
    project.mkdir()
    script = write_script(
        tmp_path / "script.json", [tool("write", path=str(outside), content="written")], [text("ok")]
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(project)
        questions, _ = await asked_turn(pipe, thread_id, {"decision": "accept"})
    assert [(one["tool"], one["input"]["path"]) for one in questions] == [("write", str(outside))]
    assert outside.read_text() == "written"


@pytest.mark.proves("APPROVAL-015", "APPROVAL-016", "APPROVAL-017", "APPROVAL-018", "LIMIT-004")
@pytest.mark.rule("S36")
async def test_whatever_is_no_offered_yes_blocks_the_call_and_a_decline_tells_the_model_why(
    tmp_path: Path,
) -> None:
    """App Server: Approvals; what the model reads comes back in its next reply."""
    answers: list[tuple[Any, str]] = [
        ({"decision": "decline"}, "declined"),
        ({"decision": "decline", "message": "Use the other file"}, "Use the other file"),
        ({"decision": "decline", "message": "ü" * 5_000}, "ü" * 4_000),
        ({"decision": "decline", "message": 5}, "declined"),
        ({"decision": "cancel", "message": "ignored"}, "cancelled"),
        ({"decision": "acceptForSession"}, "declined"),
        ({"decision": "acceptPrefixForSession"}, "declined"),
        ({"decision": "ACCEPT"}, "declined"),
        ({"decision": ["accept"]}, "declined"),
        ({"accept": True}, "declined"),
        ("accept", "declined"),
    ]
    script = write_script(
        tmp_path / "script.json",
        *[
            reply
            for _ in answers
            for reply in ([tool("bash", command="touch ran")], [text("{{toolResult}}")])
        ],
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for answer, told in answers:
            _, (item,) = await asked_turn(pipe, thread_id, answer)
            assert item["status"] == "declined", answer
            texts = [
                p["item"]["text"]
                for method, p in pipe.notifications()
                if method == "item/completed" and p["item"]["type"] == "agentMessage"
            ]
            assert told in texts[-1], answer
            assert "ü" * 4_001 not in texts[-1] and "ignored" not in texts[-1]
    assert not (tmp_path / "ran").exists()


async def test_an_error_as_an_answer_declines(tmp_path: Path) -> None:
    """App Server notes: Approvals and dialogs."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("ok")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        request = await pipe.until(lambda one: one.get("method") == REQUEST)
        await pipe.send({"id": request["id"], "error": {"code": "internal", "message": "no dialog"}})
        item = (await pipe.until_method("item/completed"))["item"]
        assert (item["type"], item["status"]) == ("toolCall", "declined")
        await pipe.until_idle()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "unreadable",
    [b"1e999", b"9" * 5_000, b"[" * 100 + b"-1e999" + b"]" * 100],
    ids=["out of range", "too many digits", "deep inside"],
)
async def test_an_answer_that_cannot_be_read_declines_and_harms_nothing_else(
    tmp_path: Path, unreadable: bytes
) -> None:
    """App Server notes: Approvals and dialogs; a line may be JSON and still hold what nobody can read."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("ok")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        request = await pipe.until(lambda one: one.get("method") == REQUEST)
        await pipe.write(
            b'{"id":"%b","result":{"decision":"accept","x":%b}}\n' % (request["id"].encode(), unreadable)
        )
        completed = await pipe.until(
            lambda one: one.get("method") == "item/completed" and one["params"]["item"]["type"] == "toolCall"
        )
        assert completed["params"]["item"]["status"] == "declined"
        assert (await pipe.until_method("turn/completed"))["turn"]["status"] == "completed"
    assert not (tmp_path / "ran").exists()


@pytest.mark.proves("APPROVAL-027")
@pytest.mark.rule("S38")
async def test_when_the_last_subscriber_leaves_a_question_counts_as_cancelled(tmp_path: Path) -> None:
    """App Server: Approvals."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("ok")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        request = await pipe.until(lambda one: one.get("method") == REQUEST)
        before = len(pipe.heard)
        await pipe.call("thread/unsubscribe", threadId=thread_id)
        await pipe.until_idle(before)
        told = [params for method, params in pipe.notifications() if method == "serverRequest/cancelled"]
        assert told == [{"threadId": thread_id, "requestId": request["id"]}]
        turn = (await pipe.call("thread/read", threadId=thread_id))["turns"][0]
    assert [(item["type"], item.get("status")) for item in turn["items"][1:2]] == [("toolCall", "declined")]
    assert turn["status"] == "completed"
    assert not (tmp_path / "ran").exists()


@pytest.mark.proves("APPROVAL-028")
@pytest.mark.rule("S39", "S41")
async def test_an_interrupt_withdraws_the_open_question_and_none_is_put_for_the_calls_after_it(
    tmp_path: Path,
) -> None:
    """App Server: Threads and turns, "Approvals"."""
    calls = [tool("bash", command=f"touch ran-{number}") for number in range(3)]
    script = write_script(tmp_path / "script.json", calls, [text("ok")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        request = await pipe.until(lambda one: one.get("method") == REQUEST)
        before = len(pipe.heard)
        await pipe.call("turn/interrupt", threadId=thread_id)
        await pipe.until_idle(before)
        assert [one for one in pipe.heard[before:] if one.get("method") == REQUEST] == []
        told = [params for method, params in pipe.notifications() if method == "serverRequest/cancelled"]
        assert told == [{"threadId": thread_id, "requestId": request["id"]}]
        statuses = [
            p["status"].get("waitingOn")
            for method, p in pipe.notifications()
            if method == "thread/status/changed"
        ]
        assert statuses == [[], ["approval"], [], None]
    assert not list(tmp_path.glob("ran-*"))


@pytest.mark.proves("APPROVAL-004", "APPROVAL-005")
async def test_the_approval_mode_is_kept_on_the_branch_and_an_invalid_one_is_ask(tmp_path: Path) -> None:
    """App Server: Approvals."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hello")]})
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        await pipe.call("thread/settings/update", threadId=thread_id, approvalMode="fullAccess")
        file = Path((await pipe.call("thread/read", threadId=thread_id))["thread"]["sessionFile"])
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        assert (await pipe.call("thread/read", threadId=thread_id))["thread"]["approvalMode"] == "fullAccess"
        assert (await pipe.call("thread/resume", threadId=thread_id))["thread"][
            "approvalMode"
        ] == "fullAccess"
    for invalid in ("zzz", None, 5):
        entries = [json.loads(line) for line in file.read_bytes().splitlines()]
        for entry in entries:
            if entry["type"] == "custom" and "mode" in (entry.get("data") or {}):
                entry["data"]["mode"] = invalid
        file.write_bytes(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        async with open_pipe(home, "--scripted-model", str(script)) as pipe:
            await pipe.handshake()
            assert (await pipe.call("thread/resume", threadId=thread_id))["thread"]["approvalMode"] == "ask"
