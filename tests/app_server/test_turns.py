"""Turns over stdin and stdout: the order of what is sent, and what is read back."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.app_server.pipe import Message, accept, alive, open_pipe, text, tool, write_script


def shape(heard: list[Message], thread_id: str) -> list[str]:
    """What was sent, one word or two each: enough to compare an order."""
    seen = []
    for message in heard:
        method, params = message.get("method"), message.get("params", {})
        if method is None:
            seen.append(f"answer {message['id']}")
        elif method.startswith("item/") and "item" in params:
            seen.append(f"{method} {params['item']['type']}")
        elif method == "thread/status/changed":
            status = params["status"]
            seen.append(f"status {status['type']} {','.join(status.get('waitingOn', []))}".strip())
        else:
            seen.append(method)
    return seen


@pytest.mark.proves(
    "ITEM-006", "ITEM-007", "ITEM-008", "TURN-001", "TURN-002", "TURN-003", "TURN-007", "TURN-008",
    "TURN-009", "HOST-009", "STATUS-002", "STATUS-003", "USAGE-003", "USAGE-004",
)  # fmt: skip
async def test_a_plain_turn_is_told_in_the_documented_order(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    script = write_script(
        tmp_path / "script.json",
        [
            {"thinking": "Hm."},
            text(
                "Hel",
            ),
            text("lo"),
        ],
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        started = await pipe.call("thread/start", cwd=str(tmp_path))
        assert started["thread"]["status"] == {"type": "idle"}
        thread_id = started["thread"]["id"]
        await pipe.until_method("thread/started")
        before = len(pipe.heard)
        await pipe.send(
            {
                "id": 4,
                "method": "turn/start",
                "params": {"threadId": thread_id, "text": "Hi", "requestId": "r1", "clientMessageId": "m1"},
            }
        )
        await pipe.until_idle()
        heard = pipe.heard[before:]
    assert shape(heard, thread_id) == [
        "status active",
        "answer 4",
        "turn/started",
        "item/started userMessage",
        "item/completed userMessage",
        "item/started reasoning",
        "item/reasoning/delta",
        "item/started agentMessage",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/completed reasoning",
        "item/completed agentMessage",
        "thread/tokenUsage/updated",
        "turn/completed",
        "thread/turn/completed",
        "status idle",
    ]
    assert heard[1] == {
        "id": 4,
        "result": {"status": "started", "threadId": thread_id, "requestId": "r1"},
    }
    turn = heard[2]["params"]["turn"]
    assert heard[2]["params"] == {"threadId": thread_id, "turn": turn, "requestId": "r1"}
    assert turn == {
        "id": turn["id"],
        "threadId": thread_id,
        "status": "inProgress",
        "startedAt": turn["startedAt"],
        "items": [],
    }
    user = heard[3]["params"]["item"]
    assert user == {
        "type": "userMessage",
        "id": f"{turn['id']}:0",
        "index": 0,
        "text": "Hi",
        "images": [],
        "clientMessageId": "m1",
        "completedAt": user["completedAt"],
    }
    message = heard[11]["params"]["item"]
    assert message == {
        "type": "agentMessage",
        "id": f"{turn['id']}:1:t0",
        "index": 2,
        "text": "Hello",
        "startedAt": message["startedAt"],
        "completedAt": message["completedAt"],
    }
    completed = heard[13]["params"]["turn"]
    assert completed == {
        "id": turn["id"],
        "threadId": thread_id,
        "status": "completed",
        "startedAt": turn["startedAt"],
        "completedAt": completed["completedAt"],
    }
    assert heard[14]["params"] == {"turn": completed}


@pytest.mark.proves(
    "ITEM-009", "ITEM-010", "ITEM-024", "ITEM-026", "TURN-012", "TURN-016", "TURN-019", "THREAD-010",
    "THREAD-011", "THREAD-013", "HISTORY-001", "STATUS-001", "ITEM-003", "ITEM-014",
)  # fmt: skip
async def test_a_tool_turn_changes_the_file_and_reads_back_byte_for_byte_in_a_new_process(
    tmp_path: Path,
) -> None:
    """App Server: Threads and turns; History, listings, and large values."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "rate.py").write_bytes(b"LIMIT = 60\r\n# end")
    script = write_script(
        tmp_path / "script.json",
        [text("I look."), tool("read", path="rate.py"), tool("bash", command="echo one; echo two >&2")],
        [tool("edit", path="rate.py", edits=[{"oldText": "60", "newText": "90"}])],
        [text("Done.")],
    )
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        pipe.answer_approvals = accept
        await pipe.handshake()
        fresh = await pipe.call("thread/start", cwd=str(project))
        thread_id = fresh["thread"]["id"]
        assert "sessionFile" not in fresh["thread"]
        assert fresh["thread"]["updatedAt"] == fresh["thread"]["createdAt"]
        completed = await pipe.run_turn(thread_id, clientMessageId="draft")
        assert completed["turn"]["status"] == "completed"
        live = await pipe.call("thread/read", threadId=thread_id)
        final: dict[str, Any] = {}
        for method, params in pipe.notifications(thread_id):
            if method in ("item/started", "item/completed"):
                final[params["item"]["id"]] = params["item"]
    assert (project / "rate.py").read_bytes() == b"LIMIT = 90\r\n# end"
    items = live["turns"][0]["items"]
    shown = sorted(final.values(), key=lambda item: item["index"])
    assert shown.pop(0) == {**items[0], "clientMessageId": "draft"}
    assert shown == items[1:]
    assert [item["type"] for item in items] == [
        "userMessage", "agentMessage", "toolCall", "toolCall", "toolCall", "agentMessage",
    ]  # fmt: skip
    edit = items[4]
    assert edit["fileChanges"] == [
        {"path": str(project / "rate.py"), "kind": "modify", "diff": edit["fileChanges"][0]["diff"]}
    ]
    assert "-LIMIT = 60" in edit["fileChanges"][0]["diff"]
    assert Path(live["thread"]["sessionFile"]).is_file()

    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        again = await pipe.call("thread/read", threadId=thread_id)
        assert again["thread"]["status"] == {"type": "notLoaded"}
        assert json.dumps(again["turns"], sort_keys=True) == json.dumps(live["turns"], sort_keys=True)
        resumed = await pipe.call("thread/resume", threadId=thread_id)
        assert resumed["turns"] == live["turns"]
        assert resumed["queue"] == {"steering": [], "followUp": []}
        assert resumed["usage"]["output"] > 0
        assert "runningTurn" not in resumed
    kinds = [
        json.loads(line)["type"] for line in Path(live["thread"]["sessionFile"]).read_bytes().splitlines()
    ]
    assert kinds.count("turn_start") == kinds.count("turn_end") == 1


@pytest.mark.rule("S10")
async def test_a_start_and_an_interrupt_in_one_write_never_ask_the_model(tmp_path: Path) -> None:
    """App Server notes: Interrupts; every start is answered, and what was answered is true."""
    script = write_script(tmp_path / "script.json", {"steps": [text("asked")], "times": 1})
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        before = len(pipe.heard)
        await pipe.send(
            {"id": "s", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}},
            {"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}},
        )
        await pipe.until_idle()
        answers = {one["id"]: one for one in pipe.heard[before:] if "id" in one}
        assert answers["i"] == {"id": "i", "result": {}}
        assert answers["s"] == {"id": "s", "result": {"status": "cancelled", "threadId": thread_id}}
        assert [
            method for method, _ in pipe.notifications(thread_id) if method.startswith(("turn", "item"))
        ] == []
        # The script has one reply: it is still there, so nobody asked for it.
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"


@pytest.mark.proves("INTERRUPT-001", "INTERRUPT-003", "TURN-006", "TURN-010", "TURN-027")
@pytest.mark.rule("S3", "S14", "S20", "S22")
async def test_an_interrupt_while_streaming_keeps_what_arrived(tmp_path: Path) -> None:
    """App Server notes: Interrupts, during streaming."""
    script = write_script(tmp_path / "script.json", [text("so far"), {"silence": True}])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        answer = await pipe.call("turn/start", threadId=thread_id, text="go")
        assert answer == {"status": "started", "threadId": thread_id}
        turn_id = (await pipe.until_method("turn/started"))["turn"]["id"]
        await pipe.until_method("item/agentMessage/delta")
        before = len(pipe.heard)
        wrong = await pipe.ask("turn/interrupt", threadId=thread_id, turnId="00000000")
        assert wrong["error"]["code"] == "turnMismatch"
        assert wrong["error"]["data"] == {"runningTurnId": turn_id}
        for _ in range(3):
            assert await pipe.call("turn/interrupt", threadId=thread_id) == {}
        await pipe.until_idle(before)
        completed = [params for method, params in pipe.notifications() if method == "turn/completed"]
        assert [one["turn"]["status"] for one in completed] == ["interrupted"]
        assert "error" not in completed[0]["turn"]
        page = await pipe.call("thread/read", threadId=thread_id)
        assert [item.get("text") for item in page["turns"][0]["items"]] == ["go", "so far"]
        late = await pipe.ask("turn/interrupt", threadId=thread_id, turnId=turn_id)
        assert late["error"]["code"] == "turnMismatch"


@pytest.mark.rule("S15")
async def test_an_interrupted_command_leaves_no_process_behind_before_the_turn_completes(
    tmp_path: Path,
) -> None:
    """Users' reports: Stop ends the turn, the command goes on."""
    commands = {
        "plain": "sleep 600 & echo $! > pids; sleep 601 & echo $! >> pids; echo ready; wait",
        "deaf": "trap '' TERM INT; sleep 600 & echo $! $$ > pids; echo ready; while :; do wait; done",
        "own session": "setsid sh -c 'echo $$ > pids; echo ready; sleep 600' & wait",
        "nohup": "nohup sleep 600 > /dev/null 2>&1 & echo $! > pids; echo ready; wait",
    }
    for name, command in commands.items():
        project = tmp_path / name
        project.mkdir()
        script = write_script(tmp_path / "script.json", [tool("bash", command=command)], [text("never")])
        async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
            await pipe.handshake()
            thread_id = await pipe.start_thread(project, approvalMode="fullAccess")
            await pipe.send(
                {"id": 9, "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}}
            )
            await pipe.until_method("item/toolCall/outputDelta")
            pids = [int(pid) for pid in (project / "pids").read_text().split()]
            assert pids and all(map(alive, pids)), name
            await pipe.call("turn/interrupt", threadId=thread_id)
            completed = next(
                (p for m, p in pipe.notifications() if m == "turn/completed"), None
            ) or await pipe.until_method("turn/completed")
            assert [pid for pid in pids if alive(pid)] == [], name
            assert completed["turn"]["status"] == "interrupted"
            items = [params["item"] for method, params in pipe.notifications() if method == "item/completed"]
            assert items[-1]["type"] == "toolCall" and items[-1]["status"] == "failed"
            assert items[-1]["output"][0]["text"].endswith("Command aborted")


@pytest.mark.rule("S36")
async def test_a_tool_in_ask_mode_runs_only_after_an_offered_yes(tmp_path: Path) -> None:
    """App Server: Approvals."""
    answers: list[tuple[Any, str, str]] = [
        ({"decision": "accept"}, "completed", ""),
        ({"decision": "decline", "message": "  Use the other file  "}, "declined", "Use the other file"),
        ({"decision": "decline"}, "declined", "declined"),
        ({"decision": "cancel"}, "declined", "cancelled"),
        ({"decision": "acceptForSession"}, "declined", "declined"),
        ({"decision": "yes"}, "declined", "declined"),
        ({}, "declined", "declined"),
        ([], "declined", "declined"),
        (None, "declined", "declined"),
    ]
    script = write_script(
        tmp_path / "script.json",
        *[reply for n in range(len(answers)) for reply in (
            [tool("bash", command=f"touch ran-{n}")], [text("next")],
        )],
    )  # fmt: skip
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for number, (answer, status, output) in enumerate(answers):
            await pipe.send(
                {"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}}
            )
            request = await pipe.until(lambda one: one.get("method") == "item/toolCall/requestApproval")
            assert not (tmp_path / f"ran-{number}").exists()
            params = request["params"]
            assert params == {
                "threadId": thread_id,
                "turnId": params["turnId"],
                "itemId": params["itemId"],
                "tool": "bash",
                "input": {"command": f"touch ran-{number}"},
                "decisions": ["accept", "decline", "cancel"],
            }
            await pipe.send({"id": request["id"], "result": answer})
            item = (await pipe.until(lambda one: one.get("method") == "item/completed"))["params"]["item"]
            assert (item["type"], item["status"]) == ("toolCall", status), answer
            assert output in item["output"][0]["text"]
            assert (tmp_path / f"ran-{number}").exists() == (status == "completed")
            await pipe.until_idle()


@pytest.mark.rule("S39", "S40", "S41", "S86")
async def test_a_withdrawn_approval_blocks_the_call_and_tells_the_client(tmp_path: Path) -> None:
    """App Server notes: Approvals and dialogs."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("never")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send({"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        request = await pipe.until(lambda one: one.get("method") == "item/toolCall/requestApproval")
        before = len(pipe.heard)
        await pipe.call("turn/interrupt", threadId=thread_id)
        await pipe.until_idle(before)
        cancelled = [p for m, p in pipe.notifications() if m == "serverRequest/cancelled"]
        assert cancelled == [{"threadId": thread_id, "requestId": request["id"]}]
        await pipe.send({"id": request["id"], "result": {"decision": "accept"}})
        await pipe.call("thread/read", threadId=thread_id)
        assert not (tmp_path / "ran").exists()
        statuses = [
            tuple(p["status"]["waitingOn"])
            for m, p in pipe.notifications()
            if m == "thread/status/changed" and p["status"]["type"] == "active"
        ]
        assert statuses == [(), ("approval",), ()]


async def test_twenty_thousand_deltas_arrive_complete_and_in_order(tmp_path: Path) -> None:
    """Architecture: performance budget; nothing is lost and nothing is quadratic."""
    script = write_script(tmp_path / "script.json", [{"text": "0123456789abcdefghi.", "repeat": 20_000}])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        deltas = [p["delta"] for m, p in pipe.notifications() if m == "item/agentMessage/delta"]
        completed = [p["item"] for m, p in pipe.notifications() if m == "item/completed"][-1]
    assert "".join(deltas) == "0123456789abcdefghi." * 20_000 == completed["text"]


async def test_two_threads_of_one_process_run_side_by_side(tmp_path: Path) -> None:
    """App Server: the introduction."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "slow"}, "steps": [text("waiting"), {"silence": True}]},
        {"when": {"user": "quick"}, "steps": [text("done")]},
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        slow, quick = await pipe.start_thread(tmp_path), await pipe.start_thread(tmp_path)
        await pipe.call("turn/start", threadId=slow, text="slow")
        await pipe.until_method("item/agentMessage/delta")
        busy = await pipe.ask("turn/start", threadId=slow, text="again")
        assert busy["error"]["code"] == "turnInProgress"
        assert (await pipe.run_turn(quick, "quick"))["turn"]["status"] == "completed"
        before = len(pipe.heard)
        await pipe.call("turn/interrupt", threadId=slow)
        await pipe.until_idle(before)
        files = {
            (await pipe.call("thread/read", threadId=one))["thread"]["sessionFile"] for one in (slow, quick)
        }
        assert len(files) == 2


async def test_a_reply_that_fails_ends_the_turn_as_failed_with_its_kind(tmp_path: Path) -> None:
    """App Server: Threads and turns; models and providers, "Errors"."""
    failures = {
        '401 {"error":"invalid x-api-key"}': "auth",
        "429 too many requests": "rateLimit",
        "prompt is too long: 300000 tokens": "contextOverflow",
        "connection error: reset by peer": "network",
        "529 overloaded": "provider",
        "something else": "other",
    }
    script = write_script(tmp_path / "script.json", *[[text("begun"), {"error": one}] for one in failures])
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    (home / "agent" / "settings.json").write_text('{"retry": {"enabled": false}}')
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for message, kind in failures.items():
            turn = (await pipe.run_turn(thread_id))["turn"]
            assert (turn["status"], turn["error"]) == ("failed", {"message": message, "kind": kind})
        page = await pipe.call("thread/read", threadId=thread_id)
        assert [turn["error"]["kind"] for turn in page["turns"]] == list(failures.values())


async def test_a_thread_without_a_usable_model_can_be_given_one(tmp_path: Path) -> None:
    """App Server: Threads and turns; the refusal says what to do."""
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    script = write_script(tmp_path / "script.json", [text("hello")])
    (home / "agent" / "models.json").write_text(
        json.dumps(
            {
                "providers": {
                    "box": {"api": "scripted", "baseUrl": str(script), "models": [{"id": "m"}]},
                    "locked": {
                        "api": "openai-completions",
                        "baseUrl": "https://models.example.test/v1",
                        "apiKey": "$NOT_SET",
                        "models": [{"id": "m"}],
                    },
                }
            }
        )
    )
    async with open_pipe(home) as pipe:
        await pipe.handshake()
        models = (await pipe.call("model/list"))["models"]
        by_name = {(model["provider"], model["id"]): model for model in models}
        assert by_name["box", "m"]["available"] and not by_name["locked", "m"]["available"]
        assert by_name["box", "m"]["thinkingLevels"] == ["off"]
        unknown = await pipe.ask("thread/start", cwd=str(tmp_path), model={"provider": "box", "id": "no"})
        assert unknown["error"]["code"] == "invalidParams"
        assert unknown["error"]["data"] == {"reason": "unknownModel"}
        locked = await pipe.ask("thread/start", cwd=str(tmp_path), model={"provider": "locked", "id": "m"})
        assert locked["error"]["code"] == "authRequired"
        assert locked["error"]["data"] == {"reason": "noCredentials", "provider": "locked"}
        thread_id = await pipe.start_thread(tmp_path, model={"provider": "box", "id": "m"})
        nothing = await pipe.ask("thread/settings/update", threadId=thread_id)
        assert nothing["error"]["code"] == "invalidParams"
        bad = await pipe.ask(
            "thread/settings/update",
            threadId=thread_id,
            approvalMode="fullAccess",
            model={"provider": "box", "id": "no"},
        )
        assert bad["error"]["data"] == {"reason": "unknownModel"}
        kept = await pipe.call("thread/resume", threadId=thread_id)
        assert kept["thread"]["approvalMode"] == "ask"
        changed = await pipe.call("thread/settings/update", threadId=thread_id, approvalMode="fullAccess")
        assert changed["thread"]["approvalMode"] == "fullAccess"
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"


async def test_bad_requests_get_their_code_and_change_nothing(tmp_path: Path) -> None:
    """App Server notes: Error object."""
    script = write_script(tmp_path / "script.json", [text("hello")])
    picture = tmp_path / "no.png"
    picture.write_bytes(b"not a picture")
    os.mkfifo(tmp_path / "pipe.png")
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        refused: list[tuple[str, dict[str, Any], str, Any]] = [
            ("thread/start", {"cwd": "relative"}, "invalidParams", None),
            ("thread/start", {"cwd": str(tmp_path / "none")}, "invalidParams", {"reason": "cwdMissing"}),
            ("thread/start", {"cwd": "/\0"}, "invalidParams", {"reason": "cwdMissing"}),
            ("thread/start", {"cwd": 5}, "invalidParams", None),
            ("thread/start", {"cwd": str(tmp_path), "name": " \n "}, "invalidParams", None),
            ("thread/start", {"cwd": str(tmp_path), "name": "x" * 201}, "invalidParams", None),
            ("thread/start", {"cwd": str(tmp_path), "thinkingLevel": "huge"}, "invalidParams", None),
            ("thread/start", {"cwd": str(tmp_path), "approvalMode": "yolo"}, "invalidParams", None),
            (
                "thread/start",
                {"cwd": str(tmp_path), "workspace": {"mode": "worktree"}},
                "invalidParams",
                None,
            ),
            ("turn/start", {"threadId": "none", "text": "x"}, "threadNotFound", None),
            ("turn/start", {"threadId": "../../etc", "text": "x"}, "threadNotFound", None),
            ("turn/start", {"threadId": thread_id, "text": " \n"}, "invalidParams", {"reason": "emptyInput"}),
            ("turn/start", {"threadId": thread_id}, "invalidParams", None),
            ("turn/start", {"threadId": thread_id, "text": "x", "requestId": ""}, "invalidParams", None),
            (
                "turn/start",
                {"threadId": thread_id, "text": "x", "clientMessageId": "x" * 129},
                "invalidParams",
                None,
            ),
            *(
                (
                    "turn/start",
                    {"threadId": thread_id, "text": "x", "images": [image]},
                    "invalidParams",
                    {"reason": "badImage"},
                )
                for image in (
                    {"path": "relative.png"},
                    {"path": str(picture)},
                    {"path": str(tmp_path)},
                    {"path": str(tmp_path / "pipe.png")},
                    {"path": str(tmp_path / "none.png")},
                    {"mimeType": "image/png", "data": "###"},
                    {"mimeType": "image/png", "data": "AAAA"},
                )
            ),
            ("turn/interrupt", {"threadId": "none"}, "threadNotFound", None),
            ("turn/interrupt", {"threadId": thread_id, "turnId": "x"}, "turnMismatch", None),
            ("thread/read", {"threadId": "none"}, "threadNotFound", None),
            ("thread/resume", {"threadId": "none"}, "threadNotFound", None),
            ("thread/resume", {"threadId": thread_id, "cursor": "x"}, "invalidCursor", None),
            ("thread/read", {"threadId": thread_id, "cursor": "e30"}, "invalidCursor", None),
            ("thread/list", {"cursor": "e30"}, "invalidCursor", None),
            ("thread/list", {"limit": 0}, "invalidParams", None),
            ("thread/settings/update", {"threadId": "none", "approvalMode": "ask"}, "threadNotFound", None),
            ("no/such", {}, "methodNotFound", None),
        ]
        for method, params, code, data in refused:
            error = (await pipe.ask(method, **params))["error"]
            assert error["code"] == code, (method, params, error)
            assert error.get("data") == data or data is None, (method, params, error)
            assert error["message"].strip()
        assert await pipe.call("thread/unsubscribe", threadId="none") == {"status": "notSubscribed"}
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        page = await pipe.call("thread/read", threadId=thread_id)
        assert len(page["turns"]) == 1


async def test_threads_are_listed_and_found_again_after_a_restart(tmp_path: Path) -> None:
    """App Server: History, listings, and large values."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hello")]})
    home = tmp_path / "home"
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        first, second = await pipe.start_thread(one), await pipe.start_thread(two)
        await pipe.start_thread(two)  # nothing is ever said in it, so it leaves nothing behind
        await pipe.run_turn(first, "First line\nmore")
        await pipe.run_turn(second, "Second \u2028 line")
        # The system's clock for files may be too coarse to tell two turns apart.
        stored = (await pipe.call("thread/read", threadId=first))["thread"]["sessionFile"]
        os.utime(stored, (1, 1))
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        listed = (await pipe.call("thread/list"))["threads"]
        assert [(row["id"], row["name"], row["cwd"], row["status"]) for row in listed] == [
            (second, "Second \u2028 line", str(two), {"type": "notLoaded"}),
            (first, "First line", str(one), {"type": "notLoaded"}),
        ]
        only = (await pipe.call("thread/list", cwd=str(one)))["threads"]
        assert [row["id"] for row in only] == [first]
        page = await pipe.call("thread/list", limit=1)
        assert [row["id"] for row in page["threads"]] == [second]
        rest = await pipe.call("thread/list", limit=1, cursor=page["nextCursor"])
        assert [row["id"] for row in rest["threads"]] == [first]
        assert "nextCursor" not in rest
        other = await pipe.ask("thread/list", cwd=str(one), cursor=page["nextCursor"])
        assert other["error"]["code"] == "invalidCursor"
        assert (await pipe.run_turn(first, "again"))["turn"]["status"] == "completed"
        history = await pipe.call("thread/read", threadId=first)
        assert [turn["items"][0]["text"] for turn in history["turns"]] == ["First line\nmore", "again"]


async def test_a_session_cut_at_any_turn_reads_as_interrupted_and_goes_on(tmp_path: Path) -> None:
    """Users' reports: after a crash a tool stays "running"; here the turn is interrupted."""
    script = write_script(
        tmp_path / "script.json",
        [tool("bash", command="echo out; sleep 600")],
        [text("after")],
    )
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        await pipe.send({"id": 1, "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}})
        await pipe.until_method("item/toolCall/outputDelta")
        pipe.process.kill()
        await pipe.exit_code()
        while await pipe.process.stdout.receive_some(1 << 20):  # type: ignore[union-attr]
            pass
    await trio.to_thread.run_sync(kill_sleepers)
    script = write_script(tmp_path / "script.json", [text("after")])
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        page = await pipe.call("thread/read", threadId=thread_id)
        turn = page["turns"][0]
        assert turn["status"] == "interrupted" and "completedAt" not in turn
        assert [(item["type"], item.get("status")) for item in turn["items"]] == [
            ("userMessage", None),
            ("toolCall", "failed"),
        ]
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"


def kill_sleepers() -> None:
    """End what a killed server left behind: only processes that carry its marker and this command."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (
                    b"KNIGHTCODE_SESSION_ID=" in (entry / "environ").read_bytes()
                    and b"600" in (entry / "cmdline").read_bytes()
                ):
                    os.kill(int(entry.name), 9)
            except OSError:
                continue


async def test_only_the_tools_of_the_settings_are_offered_and_run(tmp_path: Path) -> None:
    """Settings: Tools."""
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    (home / "agent" / "settings.json").write_text('{"defaultTools": ["-bash"]}')
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("done")])
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        await pipe.run_turn(thread_id)
        items = [params["item"] for method, params in pipe.notifications() if method == "item/completed"]
        assert [item["output"] for item in items if item["type"] == "toolCall"] == [
            [{"type": "text", "text": "Tool bash not found"}]
        ]
    assert not (tmp_path / "ran").exists()
