"""What a thread tells of its context: known after a reply, unknown until then and after a compaction.

Source: App Server, "Subscriptions and replacement"; App Server notes, "Queue, usage, model, warning, UI".
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app_server.pipe import Message, Pipe, open_pipe, text, write_script

USAGE = {"input": 100, "output": 20, "cacheRead": 30, "cacheWrite": 0}
CONTEXT = 150
BILLED: dict[str, Any] = {
    **USAGE,
    "totalTokens": CONTEXT,
    "cost": dict.fromkeys(USAGE, 0.0) | {"total": 0.25},
}


def compact(session: Path, **more: Any) -> None:
    """Put a compaction at the end of a session file, as another process would have written it."""
    last = json.loads(session.read_bytes().splitlines()[-1])
    entry = {
        "type": "compaction",
        "id": "c0mpac7e",
        "parentId": last["id"],
        "timestamp": last["timestamp"],
        "summary": "They greeted each other.",
        "firstKeptEntryId": "c0mpac7e",
        "tokensBefore": CONTEXT,
        **more,
    }
    with session.open("a") as file:
        file.write(json.dumps(entry) + "\n")


async def usage_of(pipe: Pipe, thread_id: str) -> Message:
    """As a client that comes now is told."""
    usage: Message = (await pipe.call("thread/resume", threadId=thread_id))["usage"]
    return usage


def sums(replies: int, cost: float = 0.0) -> Message:
    """The usage of so many replies, without the context."""
    return {
        **{name: count * replies for name, count in USAGE.items()},
        "cost": cost,
        "contextWindow": 200_000,
    }


@pytest.mark.proves("USAGE-002")
async def test_the_context_of_a_new_thread_is_unknown_until_a_reply_tells_it(tmp_path: Path) -> None:
    """A reply that failed tells nothing; what was known before it still holds."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "fail"}, "steps": [{"error": "401 no"}]},
        {"when": {}, "steps": [text("Hello")], "usage": USAGE},
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        told = [await usage_of(pipe, thread_id)]
        for said in ("fail", "go", "fail"):
            await pipe.run_turn(thread_id, said)
            told.append(await usage_of(pipe, thread_id))
    known = {**sums(1), "contextTokens": CONTEXT}
    assert told == [sums(0), sums(0), known, known]


@pytest.mark.proves("USAGE-002")
@pytest.mark.parametrize("billed", [{"usage": BILLED}, {}, {"fromHook": True}], ids=["model", "free", "hook"])
async def test_after_a_compaction_the_context_is_unknown_until_the_next_reply(
    tmp_path: Path, billed: dict[str, Any]
) -> None:
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("Hello")], "usage": USAGE})
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.run_turn(thread_id)
        thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
    compact(Path(thread["sessionFile"]), **billed)
    bills, cost = (1, 0.25) if "usage" in billed else (0, 0.0)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        assert await usage_of(pipe, thread_id) == sums(1 + bills, cost)
        await pipe.run_turn(thread_id)
        (updated,) = [
            params["usage"]
            for method, params in pipe.notifications()
            if method == "thread/tokenUsage/updated"
        ]
        assert updated == {**sums(2 + bills, cost), "contextTokens": CONTEXT}
        assert await usage_of(pipe, thread_id) == updated
