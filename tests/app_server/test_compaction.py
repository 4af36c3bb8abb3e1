"""Compaction of a thread: on request as a turn of its own, before a run, and between two requests.

Source: App Server notes, "thread/start, fork, compact, settings", "Admission and the life of a start",
"Interrupts"; Compaction.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.app_server.pipe import Message, Pipe, open_pipe, text, tool, write_script

SUMMARY: Message = {"when": {"system": "You summarise"}, "steps": [text("## Goal\nAll of it")]}
SILENT: Message = {"when": {"system": "You summarise"}, "steps": [{"silence": True}]}
MODEL = {"contextWindow": 100_000, "maxTokens": 10_000}
FULL = {"input": 95_000, "output": 10}


def says(value: str, **usage: int) -> Message:
    """A reply; its usage decides whether the context counts as full."""
    return {"steps": [text(value)], **({"usage": usage} if usage else {})}


@asynccontextmanager
async def open_thread(tmp_path: Path, *replies: Message, **settings: Any) -> AsyncIterator[tuple[Pipe, str]]:
    """A server with one thread; every turn is large enough to be summarised."""
    script = write_script(tmp_path / "script.json", *replies, model=MODEL)
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True)
    compaction = {"keepRecentTokens": 1, **settings}
    (home / "agent" / "settings.json").write_text(json.dumps({"compaction": compaction}))
    async with open_pipe(home, "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        yield pipe, await pipe.start_thread(tmp_path, approvalMode="fullAccess")


def start_of(thread_id: str, text: str, request_id: str = "turn") -> Message:
    return {"id": request_id, "method": "turn/start", "params": {"threadId": thread_id, "text": text}}


def told(pipe: Pipe, since: int) -> list[str]:
    """What was sent, in short."""
    seen = []
    for one in pipe.heard[since:]:
        method, params = one.get("method"), one.get("params", {})
        if method is None:
            seen.append(f"answer {one['id']} {one['result'].get('status', '')}".strip())
        elif method.startswith("item/") and "item" in params:
            item = params["item"]
            seen.append(f"{method.removeprefix('item/')} {item['type']} {item.get('status', '')}".strip())
        elif method == "turn/completed":
            seen.append(f"{method} {params['turn']['status']}")
        elif method in ("turn/started", "thread/tokenUsage/updated", "turn/queue/updated"):
            seen.append(method)
    return seen


async def test_a_compaction_on_request_is_a_turn_of_its_own_and_is_answered_at_its_end(
    tmp_path: Path,
) -> None:
    replies = says("a"), says("b"), SUMMARY, says("{{user}}?")
    async with open_thread(tmp_path, *replies) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        since = len(pipe.heard)
        await pipe.send({"id": "c", "method": "thread/compact", "params": {"threadId": thread_id}})
        await pipe.until_idle()
        assert told(pipe, since) == [
            "turn/started",
            "started compaction running",
            "completed compaction completed",
            "thread/tokenUsage/updated",
            "turn/completed completed",
            "answer c completed",
        ]
        items = [one["params"]["item"] for one in pipe.heard[since:] if one.get("method") == "item/completed"]
        assert items[0]["summary"].startswith("## Goal\nAll of it\n")
        assert items[0]["reason"] == "manual"
        again = await pipe.ask("thread/compact", threadId=thread_id)
        assert (again["error"]["code"], again["error"]["data"]) == (
            "invalidParams",
            {"reason": "nothingToCompact"},
        )
        page = await pipe.call("thread/read", threadId=thread_id)
        assert [len(turn["items"]) for turn in page["turns"]] == [2, 2, 1]
        assert page["turns"][2]["items"][0]["id"] == items[0]["id"]
        assert (await pipe.run_turn(thread_id, "three"))["turn"]["status"] == "completed"


@pytest.mark.proves("USAGE-006", "USAGE-002")
async def test_what_a_summary_costs_is_counted_and_the_size_of_the_context_is_then_unknown(
    tmp_path: Path,
) -> None:
    costly = {**SUMMARY, "usage": {"input": 7, "output": 5}}
    replies = says("a", input=10, output=2), says("b", input=20, output=3), costly
    async with open_thread(tmp_path, *replies) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        assert (await pipe.call("thread/compact", threadId=thread_id)) == {"status": "completed"}
        usages = [
            params["usage"]
            for method, params in pipe.notifications(thread_id)
            if method == "thread/tokenUsage/updated"
        ]
    none = {"cacheRead": 0, "cacheWrite": 0, "cost": 0, "contextWindow": 100_000}
    assert usages == [
        {"input": 10, "output": 2, "contextTokens": 12, **none},
        {"input": 30, "output": 5, "contextTokens": 23, **none},
        {"input": 44, "output": 15, **none},  # two requests: the history, and the turn that is cut
    ]


async def test_a_compaction_that_fails_is_a_failed_turn_and_stores_nothing(tmp_path: Path) -> None:
    broken = {"when": {"system": "You summarise"}, "steps": [{"error": "no such model"}]}
    async with open_thread(tmp_path, says("a"), says("b"), broken) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        answer = await pipe.ask("thread/compact", threadId=thread_id)
        assert answer["error"]["code"] == "internal"
        assert "no such model" in answer["error"]["message"]
        items = [params["item"] for method, params in pipe.notifications() if method == "item/completed"]
        assert (items[-1]["type"], items[-1]["status"]) == ("compaction", "failed")
        assert items[-1]["error"] == answer["error"]["message"]
        page = await pipe.call("thread/read", threadId=thread_id)
        assert [turn["status"] for turn in page["turns"]] == ["completed", "completed", "failed"]
        assert page["turns"][2]["items"] == []


@pytest.mark.rule("S19")
async def test_an_interrupt_cancels_a_compaction_on_request(tmp_path: Path) -> None:
    async with open_thread(tmp_path, says("a"), says("b"), SILENT) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        since = len(pipe.heard)
        await pipe.send({"id": "c", "method": "thread/compact", "params": {"threadId": thread_id}})
        await pipe.until_method("item/started")
        assert await pipe.call("turn/interrupt", threadId=thread_id) == {}
        await pipe.until_idle()
        words = ("interrupted", "compaction", "answer c")
        assert [one for one in told(pipe, since) if any(word in one for word in words)] == [
            "started compaction running",
            "completed compaction cancelled",
            "turn/completed interrupted",
            "answer c cancelled",
        ]
        page = await pipe.call("thread/read", threadId=thread_id)
        assert page["turns"][2]["items"] == []


@pytest.mark.proves("ADMIT-002")
async def test_a_start_waits_for_a_compaction_on_request_and_a_second_one_is_refused(tmp_path: Path) -> None:
    slow = {"when": {"system": "You summarise"}, "steps": [{"waitMs": 100}, text("short")]}
    async with open_thread(tmp_path, says("a"), says("b"), slow, says("c")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        since = len(pipe.heard)
        await pipe.send(
            {"id": "c", "method": "thread/compact", "params": {"threadId": thread_id}},
            start_of(thread_id, "three", "s1"),
            start_of(thread_id, "four", "s2"),
            {"id": "c2", "method": "thread/compact", "params": {"threadId": thread_id}},
        )
        await pipe.until_idle()
        heard = pipe.heard[since:]
        errors = {one["id"]: one["error"]["code"] for one in heard if "error" in one}
        assert errors == {"s2": "turnInProgress", "c2": "turnInProgress"}
        order = [one["id"] for one in heard if "result" in one]
        assert order == ["c", "s1"]
        idle = [one for one in heard if one.get("params", {}).get("status", {}).get("type") == "idle"]
        assert len(idle) == 1


@pytest.mark.rule("S5")
async def test_an_interrupt_ends_the_waiting_of_a_start_and_the_compaction_it_waits_for(
    tmp_path: Path,
) -> None:
    async with open_thread(tmp_path, says("a"), says("b"), SILENT, says("c")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        since = len(pipe.heard)
        await pipe.send(
            {"id": "c", "method": "thread/compact", "params": {"threadId": thread_id}},
            start_of(thread_id, "three", "s"),
        )
        await pipe.until_method("item/started")
        await pipe.send({"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})
        await pipe.until_idle()
        answers = {one["id"]: one["result"] for one in pipe.heard[since:] if "result" in one}
        assert answers == {
            "s": {"status": "cancelled", "threadId": thread_id},
            "i": {},
            "c": {"status": "cancelled"},
        }
        started = [one for one in pipe.heard[since:] if one.get("method") == "turn/started"]
        assert len(started) == 1  # the compaction's
        assert (await pipe.run_turn(thread_id, "four"))["turn"]["status"] == "completed"


@pytest.mark.rule("S5")
async def test_an_interrupt_that_names_the_compaction_leaves_the_start_behind_it(tmp_path: Path) -> None:
    async with open_thread(tmp_path, says("a"), says("b"), SILENT, says("c")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        await pipe.run_turn(thread_id, "two")
        since = len(pipe.heard)
        await pipe.send(
            {"id": "c", "method": "thread/compact", "params": {"threadId": thread_id}},
            start_of(thread_id, "three", "s"),
        )
        started = await pipe.until(is_compaction)
        named = {"threadId": thread_id, "turnId": started["params"]["turnId"]}
        await pipe.send({"id": "i", "method": "turn/interrupt", "params": named})
        await pipe.until_idle()
        answers = {one["id"]: one["result"] for one in pipe.heard[since:] if "result" in one}
        assert answers == {
            "i": {},
            "c": {"status": "cancelled"},
            "s": {"status": "started", "threadId": thread_id},
        }


async def test_a_full_context_is_compacted_before_the_next_run(tmp_path: Path) -> None:
    async with open_thread(tmp_path, says("a"), says("b", **FULL), SUMMARY, says("c")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        since = len(pipe.heard)
        await pipe.run_turn(thread_id, "two")
        # The reply itself says that the context is full, so room is made at the end of its turn.
        assert told(pipe, since)[-4:] == [
            "started compaction running",
            "completed compaction completed",
            "thread/tokenUsage/updated",
            "turn/completed completed",
        ]
        assert (await pipe.run_turn(thread_id, "three"))["turn"]["status"] == "completed"


@pytest.mark.proves("INTERRUPT-010", "INTERRUPT-012")
@pytest.mark.rule("S11", "S13", "S18")
async def test_an_interrupt_during_an_automatic_compaction_leaves_no_trace_of_it_and_asks_no_model(
    tmp_path: Path,
) -> None:
    replies = says("a"), says("b", **FULL), SILENT, says("never")
    async with open_thread(tmp_path, *replies) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        # At the end of the turn whose reply filled the context.
        await pipe.send(start_of(thread_id, "two"))
        await pipe.until(is_compaction)
        await pipe.send({"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})
        assert (await pipe.until_method("turn/completed"))["turn"]["status"] == "interrupted"
        await pipe.until_idle()
        # Before the run of the next prompt, because the context still is full.
        since = len(pipe.heard)
        await pipe.send(start_of(thread_id, "three", "s3"))
        await pipe.until(is_compaction)
        await pipe.send({"id": "i2", "method": "turn/interrupt", "params": {"threadId": thread_id}})
        await pipe.until_idle()
        assert told(pipe, since) == [
            "answer s3 started",
            "turn/started",
            "started compaction running",
            "answer i2",
            "completed compaction cancelled",
            "started userMessage",
            "completed userMessage",
            "thread/tokenUsage/updated",
            "turn/completed interrupted",
        ]
        page = await pipe.call("thread/read", threadId=thread_id)
        shown = [[item["type"] for item in turn["items"]] for turn in page["turns"]]
        assert shown == [["userMessage", "agentMessage"], ["userMessage", "agentMessage"], ["userMessage"]]


@pytest.mark.proves("TURN-014")
async def test_a_prompt_that_is_too_long_is_asked_again_once_after_a_compaction(tmp_path: Path) -> None:
    too_long = {"steps": [{"error": "prompt is too long: 300000 tokens > 100000 maximum"}]}
    async with open_thread(tmp_path, says("a"), too_long, SUMMARY, says("there"), too_long, too_long) as (
        pipe,
        thread_id,
    ):
        await pipe.run_turn(thread_id, "one")
        since = len(pipe.heard)
        assert (await pipe.run_turn(thread_id, "two"))["turn"]["status"] == "completed"
        shown = [one for one in told(pipe, since) if "compaction" in one or one.startswith("turn/")]
        assert shown == [
            "turn/started",
            "started compaction running",
            "completed compaction completed",
            "turn/completed completed",
        ]
        failed = await pipe.run_turn(thread_id, "three")
        assert (failed["turn"]["status"], failed["turn"]["error"]["kind"]) == ("failed", "contextOverflow")
        ends = [
            one["params"]["item"]
            for one in pipe.heard
            if one.get("method") == "item/completed" and one["params"]["item"]["type"] == "compaction"
        ]
        assert [item["status"] for item in ends] == ["completed", "completed", "failed"]


CALLS: Message = {"steps": [tool("bash", command="true")], "usage": FULL}


async def test_room_is_made_between_two_requests_of_a_run(tmp_path: Path) -> None:
    async with open_thread(tmp_path, says("a"), CALLS, SUMMARY, says("done")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        since = len(pipe.heard)
        await pipe.run_turn(thread_id, "two")
        page = await pipe.call("thread/read", threadId=thread_id)
        shown = {
            params["item"]["id"]: params["item"]
            for method, params in pipe.notifications()
            if method == "item/completed" and params["item"]["type"] == "compaction"
        }
        (stored,) = [item for turn in page["turns"] for item in turn["items"] if item["type"] == "compaction"]
        assert stored["reason"] == "threshold"
        assert shown[stored["id"]] == {**stored, "tokensAfter": shown[stored["id"]]["tokensAfter"]}
        order = [one for one in told(pipe, since) if one.startswith(("started", "completed"))]
        assert order[2:] == [
            "started toolCall running",
            "completed toolCall completed",
            "started compaction running",
            "completed compaction completed",
            "started agentMessage",
            "completed agentMessage",
        ]


@pytest.mark.rule("S18")
async def test_an_interrupt_between_two_requests_cancels_the_compaction_there(tmp_path: Path) -> None:
    async with open_thread(tmp_path, says("a"), CALLS, SILENT, says("never")) as (pipe, thread_id):
        await pipe.run_turn(thread_id, "one")
        since = len(pipe.heard)
        await pipe.send(start_of(thread_id, "two"))
        await pipe.until(is_compaction)
        await pipe.send({"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})
        await pipe.until_idle()
        assert [one for one in told(pipe, since) if "compaction" in one or one.startswith("turn/")] == [
            "turn/started",
            "started compaction running",
            "completed compaction cancelled",
            "turn/completed interrupted",
        ]
        page = await pipe.call("thread/read", threadId=thread_id)
        assert [item["type"] for item in page["turns"][1]["items"]] == ["userMessage", "toolCall"]


def is_compaction(one: Message) -> bool:
    return one.get("method") == "item/started" and one["params"]["item"]["type"] == "compaction"
