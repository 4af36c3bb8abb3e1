"""A removal, or an interrupt, that meets the start of a queued input: one of the two happens.

Source: App Server notes, "Steers and queue".
"""

from pathlib import Path

import pytest
import trio

from tests.app_server.held import Gate
from tests.app_server.memory import MemoryClient, open_memory
from tests.app_server.pipe import text

SAYS = {"when": {"user": ""}, "steps": [text("said")]}
STEPS = 24
"""Steps of the scheduler: more than there are from the end of one turn to the next one's."""


def said(client: MemoryClient) -> list[str]:
    """What users said, as it was shown."""
    return [item["text"] for item in client.items(kind="userMessage")]


async def queued_at_the_end(client: MemoryClient, gate: Gate, thread_id: str, words: str) -> str:
    """A turn that is about to be over, with an input behind it; the input's id."""
    await client.start_turn(thread_id)
    await gate.until_visited()
    result = await client.request("turn/queue/add", threadId=thread_id, text=words)
    queue_id: str = result["queueId"]
    return queue_id


@pytest.mark.proves("QUEUE-015", "QUEUE-016")
@pytest.mark.rule("S33", "S31")
async def test_an_input_is_removed_or_it_starts_whenever_the_removal_comes(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SAYS) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        settled, started = server.thread(thread_id).hooks.agent_settled, set()
        for steps in range(STEPS):
            gate, words, since = Gate(), f"queued {steps}", len(client.heard)
            take_out = settled.add(gate.handler)
            queue_id = await queued_at_the_end(client, gate, thread_id, words)
            take_out()
            gate.open()
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            removals = [
                client.begin("turn/queue/remove", threadId=thread_id, queueId=queue_id) for _ in range(2)
            ]
            await client.until_idle(thread_id, since=since)
            answers = [(await client.response(one))["result"]["removed"] for one in removals]
            assert answers == [words not in said(client), False], steps
            started.add(words in said(client))
        assert started == {True, False}  # the meeting lies in between


@pytest.mark.rule("S30", "S10", "S22")
async def test_an_interrupt_at_any_step_of_a_dispatch_leaves_nothing_behind(tmp_path: Path) -> None:
    async with open_memory(tmp_path, SAYS) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        settled, ends = server.thread(thread_id).hooks.agent_settled, set()
        for steps in range(STEPS):
            gate, words, since = Gate(), f"queued {steps}", len(client.heard)
            take_out = settled.add(gate.handler)
            await queued_at_the_end(client, gate, thread_id, words)
            await client.request("turn/queue/add", threadId=thread_id, text=f"behind {steps}")
            take_out()
            gate.open()
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            assert await client.request("turn/interrupt", threadId=thread_id) == {}
            await client.until_idle(thread_id, since=since)
            assert client.notifications("turn/queue/updated", since=since)[-1]["followUp"] == []
            begun = [one["turn"]["id"] for one in client.notifications("turn/started", since=since)]
            over = client.notifications("turn/completed", since=since)
            assert [one["turn"]["id"] for one in over] == begun
            ends.add(tuple(one["turn"]["status"] for one in over))
            assert client.notifications("error", since=since) == []
        assert ("completed",) in ends  # before its start was accepted
        assert ("completed", "interrupted") in ends
