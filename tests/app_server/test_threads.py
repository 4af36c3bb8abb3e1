"""What a thread is made of, what it says of itself, and which model it asks."""

import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.app_server.pipe import Message, Pipe, accept, open_pipe, text, tool, write_script


def header_of(file: Path) -> Message:
    header: Message = json.loads(file.read_bytes().split(b"\n", 1)[0])
    return header


async def summary_of(pipe: Pipe, thread_id: str) -> Message:
    """A thread's row in the listing."""
    rows = (await pipe.call("thread/list"))["threads"]
    (row,) = [row for row in rows if row["id"] == thread_id]
    found: Message = row
    return found


@pytest.mark.proves("THREAD-001", "THREAD-003", "THREAD-009", "THREAD-011", "STATUS-002", "SUBSCRIBE-001")
async def test_a_new_thread_says_all_of_itself_and_its_commands_run_in_its_directory(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    project = tmp_path / "a project"
    project.mkdir()
    script = write_script(tmp_path / "script.json", [tool("bash", command="pwd")], [text("done")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        before = len(pipe.heard)
        started = await pipe.call("thread/start", cwd=f"{project}/.", approvalMode="fullAccess", name="Work")
        announced = await pipe.until_method("thread/started")
        assert [one.get("id", one.get("method")) for one in pipe.heard[before:]] == [2, "thread/started"]
        thread = started["thread"]
        assert started == {
            "thread": thread,
            "warnings": [],
            "ui": {"statuses": [], "workingVisible": True, "widgets": []},
        }
        assert announced == {"thread": thread}
        assert thread == {
            "id": thread["id"],
            "cwd": str(project),
            "name": "Work",
            "status": {"type": "idle"},
            "createdAt": thread["createdAt"],
            "updatedAt": thread["updatedAt"],
            "approvalMode": "fullAccess",
            "thinkingLevel": "medium",
            "workspace": {"mode": "local"},
            "archived": False,
            "model": thread["model"],
            "mode": "desktop",
        }
        assert datetime.fromisoformat(thread["createdAt"]) <= datetime.fromisoformat(thread["updatedAt"])
        await pipe.run_turn(thread["id"])
        items = (await pipe.call("thread/read", threadId=thread["id"]))["turns"][0]["items"]
    assert items[1]["output"][0]["text"] == f"{project}\n"
    assert ("turn/completed", thread["id"]) in [
        (method, p.get("threadId")) for method, p in pipe.notifications()
    ]


@pytest.mark.proves("THREAD-006", "THREAD-010", "THREAD-012", "THREAD-014")
async def test_times_come_from_the_header_and_the_entries_and_not_from_the_file(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hello")]})
    home, other = tmp_path / "home", tmp_path / "other"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
        file = Path(thread["sessionFile"])
        created = header_of(file)["timestamp"]
        last = json.loads(file.read_bytes().splitlines()[-1])["timestamp"]
        assert (thread["createdAt"], thread["updatedAt"]) == (created, last)
        assert datetime.fromisoformat(created) <= datetime.fromisoformat(last)
        assert created.endswith("Z")
        os.utime(file, (2_000_000_000, 2_000_000_000))
        again = (await pipe.call("thread/resume", threadId=thread_id))["thread"]
        assert (again["createdAt"], again["updatedAt"]) == (created, last)
        assert (await summary_of(pipe, thread_id))["createdAt"] == created
    copied = other / file.relative_to(home)
    copied.parent.mkdir(parents=True)
    shutil.copyfile(file, copied)
    async with open_pipe(other, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        row = await summary_of(pipe, thread_id)
        assert row["createdAt"] == created
        assert datetime.fromisoformat(row["updatedAt"]) >= datetime.fromisoformat(last)
        assert "forkedFromId" not in row


@pytest.mark.proves("HOST-001", "HOST-004", "CLIENT-003")
async def test_threads_of_one_process_keep_to_their_own_files_and_reading_one_changes_nothing(
    tmp_path: Path,
) -> None:
    """App Server: the introduction; "Subscriptions and replacement"."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "first"}, "steps": [text("to the first")]},
        {"when": {"user": "second"}, "steps": [text("to the second")]},
    )
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        ids = [await pipe.start_thread(tmp_path) for _ in range(2)]
        before = len(pipe.heard)
        for thread_id, words in zip(ids, ("first", "second"), strict=True):
            assert (await pipe.call("turn/start", threadId=thread_id, text=words))["status"] == "started"
        done = {
            one["params"]["threadId"] for one in pipe.heard[before:] if one.get("method") == "turn/completed"
        }
        while done != set(ids):
            done.add((await pipe.until_method("turn/completed"))["threadId"])
        files = [Path((await pipe.call("thread/read", threadId=one))["thread"]["sessionFile"]) for one in ids]
    assert files[0] != files[1]
    for file, own, foreign in ((files[0], b"first", b"second"), (files[1], b"second", b"first")):
        assert own in file.read_bytes() and foreign not in file.read_bytes()
    kept = {file: file.stat() for file in files}
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        page = await pipe.call("thread/read", threadId=ids[0])
        assert page["thread"]["status"] == {"type": "notLoaded"}
        assert page["turns"][-1]["status"] == "completed"
        assert (await summary_of(pipe, ids[0]))["status"] == {"type": "notLoaded"}
        assert await pipe.call("thread/unsubscribe", threadId=ids[0]) == {"status": "notSubscribed"}
        assert pipe.notifications() == []
    assert {file: (one.st_mtime_ns, one.st_size) for file, one in kept.items()} == {
        file: (file.stat().st_mtime_ns, file.stat().st_size) for file in files
    }


def models_file(home: Path, tmp_path: Path) -> None:
    """Three models: two that play scripts of their own, one of which can think, and one without a key."""
    (home / "agent").mkdir(parents=True)
    scripts = {
        name: str(write_script(tmp_path / f"{name}.json", {"when": {}, "steps": [text(f"I am {name}.")]}))
        for name in ("plain", "thinker")
    }
    providers: dict[str, Any] = {
        "box": {"api": "scripted", "baseUrl": scripts["plain"], "models": [{"id": "plain"}]},
        "brain": {
            "api": "scripted",
            "baseUrl": scripts["thinker"],
            "models": [{"id": "thinker", "reasoning": True}],
        },
        "locked": {
            "api": "openai-completions",
            "baseUrl": "https://models.example.test/v1",
            "apiKey": "$NOT_SET",
            "models": [{"id": "m"}],
        },
    }
    (home / "agent" / "models.json").write_text(json.dumps({"providers": providers}))


@pytest.mark.proves("MODEL-001", "MODEL-003", "MODEL-004")
async def test_every_thinking_level_that_a_model_lists_can_be_set(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    home = tmp_path / "home"
    models_file(home, tmp_path)
    async with open_pipe(home) as pipe:
        await pipe.handshake()
        listed = {
            (model["provider"], model["id"]): model for model in (await pipe.call("model/list"))["models"]
        }
        plain, thinker = listed["box", "plain"], listed["brain", "thinker"]
        assert plain["thinkingLevels"] == ["off"]
        assert plain["available"] and thinker["available"] and not listed["locked", "m"]["available"]
        levels = thinker["thinkingLevels"]
        assert levels[0] == "off" and len(levels) > 2
        thread_id = await pipe.start_thread(tmp_path, model={"provider": "brain", "id": "thinker"})
        for level in levels:
            set_to = await pipe.call("thread/settings/update", threadId=thread_id, thinkingLevel=level)
            assert set_to["thread"]["thinkingLevel"] == level
        told = [
            p["thinkingLevel"] for method, p in pipe.notifications() if method == "thread/settings/updated"
        ]
        assert told[-1] == levels[-1]


@pytest.mark.proves("MODEL-005", "MODEL-006")
async def test_the_next_turn_goes_to_the_model_that_was_chosen(tmp_path: Path) -> None:
    """App Server: Threads and turns."""
    home = tmp_path / "home"
    models_file(home, tmp_path)
    (home / "agent" / "settings.json").write_text(
        json.dumps({"defaultProvider": "locked", "defaultModel": "m"})
    )

    async def reply(pipe: Pipe, thread_id: str) -> str:
        await pipe.run_turn(thread_id)
        items = (await pipe.call("thread/read", threadId=thread_id))["turns"][-1]["items"]
        return str(items[-1]["text"])

    async with open_pipe(home) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path, model={"provider": "box", "id": "plain"})
        assert await reply(pipe, thread_id) == "I am plain."
        chosen = await pipe.call(
            "thread/settings/update", threadId=thread_id, model={"provider": "brain", "id": "thinker"}
        )
        assert (chosen["thread"]["model"]["provider"], chosen["thread"]["model"]["id"]) == (
            "brain",
            "thinker",
        )
        assert await reply(pipe, thread_id) == "I am thinker."
    (home / "agent" / "models.json").write_text('{"providers": {}}')
    async with open_pipe(home) as pipe:
        await pipe.handshake()
        resumed = await pipe.call("thread/resume", threadId=thread_id)
        assert "model" not in resumed["thread"]
        assert len(resumed["warnings"]) == 1
        refused = await pipe.ask("turn/start", threadId=thread_id, text="x")
        assert refused["error"]["code"] == "authRequired"


@pytest.mark.proves("STATUS-001", "SUBSCRIBE-004", "SUBSCRIBE-005", "SUBSCRIBE-015", "SUBSCRIBE-016")
async def test_who_unsubscribes_hears_no_more_of_a_threads_turns_until_it_starts_one(tmp_path: Path) -> None:
    """App Server: Subscriptions and replacement."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "long"}, "steps": [tool("bash", command="echo out; sleep 0.2")], "times": 1},
        {"when": {}, "steps": [text("over")]},
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        pipe.answer_approvals = accept
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        await pipe.send(
            {"id": "t", "method": "turn/start", "params": {"threadId": thread_id, "text": "long"}}
        )
        await pipe.until_method("item/toolCall/outputDelta")
        assert await pipe.call("thread/unsubscribe", threadId=thread_id) == {"status": "unsubscribed"}
        before = len(pipe.heard)
        assert await pipe.call("thread/unsubscribe", threadId=thread_id) == {"status": "notSubscribed"}
        await pipe.until_idle()
        told = [one["method"] for one in pipe.heard[before:] if "method" in one]
        assert told == ["thread/turn/completed", "thread/status/changed"]
        since = len(pipe.heard)
        await pipe.run_turn(thread_id, "again")
        methods = {one.get("method") for one in pipe.heard[since:]}
        assert {"turn/started", "item/completed", "turn/completed"} <= methods


async def test_a_file_that_was_made_from_another_names_that_ones_header_id(tmp_path: Path) -> None:
    """App Server: Threads and turns; not an id inferred from the parent's file name."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hello")]})
    home = tmp_path / "home"
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        parent = await pipe.start_thread(tmp_path)
        await pipe.run_turn(parent)
        stored = Path((await pipe.call("thread/read", threadId=parent))["thread"]["sessionFile"])
    renamed = stored.with_name("2020-01-01T00-00-00-000Z_some-other-name.jsonl")
    stored.rename(renamed)
    header, _, rest = renamed.read_text().partition("\n")
    child = json.loads(header) | {"id": "child", "parentSession": str(renamed)}
    (stored.parent / "child.jsonl").write_text(json.dumps(child) + "\n" + rest + "{torn\n")
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        rows = {row["id"]: row for row in (await pipe.call("thread/list"))["threads"]}
        assert rows["child"]["forkedFromId"] == parent
        assert "forkedFromId" not in rows[parent]
        read = (await pipe.call("thread/read", threadId="child"))["thread"]
        resumed = await pipe.call("thread/resume", threadId="child")
        assert read["forkedFromId"] == resumed["thread"]["forkedFromId"] == parent
        assert [(one["source"], one["path"]) for one in resumed["warnings"]] == [
            ("server", str(stored.parent / "child.jsonl"))
        ]
        assert "damaged line" in resumed["warnings"][0]["message"]


async def test_a_context_file_that_cannot_be_used_is_a_warning_once(tmp_path: Path) -> None:
    """Agent loop: Context files; App Server: Threads and turns (warnings)."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("hello")]})
    (tmp_path / "AGENTS.md").write_bytes(b"x" * 1_000_000)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        await pipe.run_turn(thread_id)
        told = [params for method, params in pipe.notifications() if method == "warning"]
        assert [(one["threadId"], one["source"]) for one in told] == [(thread_id, "server")]
        assert str(tmp_path / "AGENTS.md") in told[0]["message"]
        resumed = await pipe.call("thread/resume", threadId=thread_id)
        assert [one["message"] for one in resumed["warnings"]] == [told[0]["message"]]
