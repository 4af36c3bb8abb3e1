"""Inputs that wait on the server: each begins a turn of its own, in order, or is taken out before.

Source: App Server, "Threads and turns"; App Server notes, "Steers and queue".
"""

import base64
from pathlib import Path

import pytest

from tests.app_server.pipe import lines_of, open_pipe, text, write_script
from tests.app_server.waiting import open_waiting

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()


@pytest.mark.proves("QUEUE-001", "QUEUE-002", "QUEUE-003", "QUEUE-004", "QUEUE-011", "TURN-011", "ITEM-001")
@pytest.mark.rule("S31")
async def test_queued_inputs_begin_turns_of_their_own_one_after_the_other(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("a")], [text("b")], [text("c")]) as turn:
        first = await turn.queue("one", clientMessageId="m1")
        second = await turn.queue("two")
        updated = await turn.pipe.until_method("turn/queue/updated")
        assert updated["followUp"] == [{"id": first, "text": "one"}, {"id": second, "text": "two"}]
        await turn.allow()
        await turn.pipe.until_idle()
    assert [said for _, said in turn.texts_of_users()] == ["go", "one", "two"]
    assert len({turn_id for turn_id, _ in turn.texts_of_users()}) == 3
    told = turn.pipe.notifications(turn.thread_id)
    order = [method for method, _ in told if method in ("turn/started", "turn/completed")]
    assert order == ["turn/started", "turn/completed"] * 3
    assert turn.queues() == [([], ["one"]), ([], ["one", "two"]), ([], ["two"]), ([], [])]
    echoes = [
        params["item"].get("clientMessageId")
        for method, params in told
        if method == "item/completed" and params["item"]["type"] == "userMessage"
    ]
    assert echoes == [None, "m1", None]
    statuses = [params["status"]["type"] for method, params in told if method == "thread/status/changed"]
    assert statuses == ["active", "active", "active", "idle"]  # active throughout: with and without approval


@pytest.mark.proves("QUEUE-005")
async def test_on_an_idle_thread_a_queued_input_starts_at_once_and_subscribes_nobody(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("a")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.until_method("thread/started")
        since = len(pipe.heard)
        await pipe.send(
            {"id": "q", "method": "turn/queue/add", "params": {"threadId": thread_id, "text": "hi"}}
        )
        await pipe.until_idle()
        heard = [one.get("method", "answer") for one in pipe.heard[since:]]
        assert heard[:5] == [
            "answer",
            "turn/queue/updated",
            "turn/queue/updated",
            "thread/status/changed",
            "turn/started",
        ]
        await pipe.call("thread/unsubscribe", threadId=thread_id)
        since = len(pipe.heard)
        await pipe.call("turn/queue/add", threadId=thread_id, text="again")
        await pipe.until_idle()
        methods = {one["method"] for one in pipe.heard[since:] if "method" in one}
        assert methods == {"thread/status/changed", "thread/turn/completed"}


@pytest.mark.proves("QUEUE-006", "QUEUE-014", "QUEUE-015", "QUEUE-016", "QUEUE-017", "QUEUE-018", "ITEM-005")
@pytest.mark.rule("S33")
async def test_an_input_that_is_removed_never_starts_and_is_removed_once(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("a")], [text("b")]) as turn:
        pipe, thread_id = turn.pipe, turn.thread_id
        gone = await turn.queue("gone", clientMessageId="m-gone")
        kept = await turn.queue("kept")
        assert await pipe.call("turn/queue/remove", threadId=thread_id, queueId=gone) == {"removed": True}
        assert await pipe.call("turn/queue/remove", threadId=thread_id, queueId=gone) == {"removed": False}
        assert await pipe.call("turn/queue/remove", threadId=thread_id, queueId="x") == {"removed": False}
        unknown = await pipe.ask("turn/queue/remove", threadId="nobody", queueId=kept)
        assert unknown["error"]["code"] == "threadNotFound"
        await turn.allow()
        await pipe.until_idle()
        assert await pipe.call("turn/queue/remove", threadId=thread_id, queueId=kept) == {"removed": False}
        history = await pipe.call("thread/read", threadId=thread_id)
    assert turn.queues() == [([], ["gone"]), ([], ["gone", "kept"]), ([], ["kept"]), ([], [])]
    said = [
        item["text"] for one in history["turns"] for item in one["items"] if item["type"] == "userMessage"
    ]
    assert said == ["go", "kept"]
    assert "m-gone" not in str(pipe.heard[-40:])


@pytest.mark.proves("QUEUE-007", "QUEUE-008")
@pytest.mark.rule("S34")
async def test_an_input_that_cannot_start_is_dropped_with_an_error_and_the_next_is_tried(
    tmp_path: Path,
) -> None:
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.write(
            lines_of(
                *(
                    {"id": f"q{n}", "method": "turn/queue/add", "params": {"threadId": thread_id, **more}}
                    for n, more in enumerate([{"text": "one", "clientMessageId": "m1"}, {"text": "two"}])
                )
            )
        )
        errors = [await pipe.until_method("error") for _ in range(2)]
        await pipe.until_idle()
        ids = [one["result"]["queueId"] for one in pipe.heard if str(one.get("id")).startswith("q")]
    assert [one["code"] for one in errors] == ["authRequired"] * 2
    assert [one["threadId"] for one in errors] == [thread_id] * 2
    assert [one["queueId"] for one in errors] == ids
    assert [one.get("clientMessageId") for one in errors] == ["m1", None]
    assert [one["data"] for one in errors] == [{"reason": "noModel"}] * 2
    assert all("dropped" in one["message"] for one in errors)
    assert "turn/started" not in {method for method, _ in pipe.notifications()}


@pytest.mark.proves("QUEUE-012", "QUEUE-013", "IMAGE-003")
async def test_images_of_a_queued_input_are_checked_at_once_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(base64.b64decode(PNG))
    images = [{"mimeType": "image/png", "data": PNG}, {"path": str(tmp_path / "a.png")}]
    async with open_waiting(tmp_path, [text("a")], [text("b")]) as turn:
        pipe = turn.pipe
        for bad in (
            [{"path": "a.png"}],
            [{"path": str(tmp_path / "none.png")}],
            [{"mimeType": "image/png", "data": "?"}],
        ):
            refused = await pipe.ask("turn/queue/add", threadId=turn.thread_id, text="x", images=bad)
            assert (refused["error"]["code"], refused["error"]["data"]) == (
                "invalidParams",
                {"reason": "badImage"},
            )
        empty = await pipe.ask("turn/queue/add", threadId=turn.thread_id, text=" ")
        assert empty["error"]["data"] == {"reason": "emptyInput"}
        queue_id = await turn.queue("look", images=images)
        shown = await pipe.until_method("turn/queue/updated")
        assert shown["followUp"] == [{"id": queue_id, "text": "look", "attachments": 2}]
        await turn.allow()
        await pipe.until_idle()
        users = [
            params["item"]
            for method, params in pipe.notifications()
            if method == "item/completed" and params["item"]["type"] == "userMessage"
        ]
    assert [image["mimeType"] for image in users[-1]["images"]] == ["image/png"] * 2


async def test_the_queue_is_bounded(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("a")]) as turn:
        add = {"method": "turn/queue/add", "params": {"threadId": turn.thread_id, "text": "x"}}
        await turn.pipe.write(lines_of(*({"id": f"q{n}", **add} for n in range(257))))
        last = await turn.pipe.until(lambda one: one.get("id") == "q256")
        assert (last["error"]["code"], last["error"]["data"]) == ("invalidParams", {"reason": "queueFull"})
        await turn.pipe.call("turn/interrupt", threadId=turn.thread_id)
        await turn.pipe.until_idle()
        answers = {one["id"] for one in turn.pipe.heard if "result" in one and str(one["id"]).startswith("q")}
        assert len(answers) == 256
