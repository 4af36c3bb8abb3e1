"""Ten minutes without a subscriber and without work: then a thread leaves memory, and not before.

Source: App Server, "Ownership, unloading, and shutdown"; App Server notes, "Ownership, loading,
unloading", "Subscriptions, unload, replacement".
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from tests.app_server.held import Gate, crawl, pass_time
from tests.app_server.memory import MemoryClient, MemoryServer, call, open_memory
from tests.app_server.pipe import text

MINUTE = 60.0
JUST_BEFORE = 9 * MINUTE + 59.0
"""After it, a crawling clock needs seconds of real time for the second that is left."""
REST = 1.0
SAYS = {"when": {"user": ""}, "steps": [text("said")]}


@attrs.define(eq=False)
class Left:
    """A saved thread that nobody follows since this moment.

    Attributes:
        client: subscribed once, and not any more.
        other: never was.
    """

    server: MemoryServer
    clock: MockClock
    client: MemoryClient
    other: MemoryClient
    thread_id: str

    @property
    def loaded(self) -> bool:
        return self.server.host.manager.counts()[0] == 1

    async def wait(self, seconds: float) -> bool:
        """Let time pass; whether the thread is still in memory."""
        await pass_time(self.clock, seconds)
        self.server.drain()
        return self.loaded

    def status(self) -> str:
        """What everyone was told last of the thread."""
        self.server.drain()
        told: str = self.other.notifications("thread/status/changed")[-1]["status"]["type"]
        return told

    async def unsubscribe(self, client: MemoryClient) -> None:
        result = await client.request("thread/unsubscribe", threadId=self.thread_id)
        assert result == {"status": "unsubscribed"}


@asynccontextmanager
async def open_left(folder: Path, clock: MockClock, *replies: Any) -> AsyncIterator[Left]:
    """A thread whose only subscriber leaves; the `replies` are for later turns."""
    crawl(clock)
    async with open_memory(folder, *replies, SAYS) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(folder)
        await client.run_turn(thread_id)
        left = Left(server, clock, client, other, thread_id)
        await left.unsubscribe(client)
        yield left


@pytest.mark.proves("UNLOAD-001")
@pytest.mark.rule("S44")
async def test_a_thread_is_unloaded_ten_minutes_after_its_last_subscriber_left(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        since = len(left.client.heard)
        assert await left.wait(JUST_BEFORE)
        assert not await left.wait(REST)
        gone = {"threadId": left.thread_id, "status": {"type": "notLoaded"}}
        for client in (left.client, left.other):
            assert client.heard[-1] == {"method": "thread/status/changed", "params": gone}
        assert len(left.client.heard) == since + 1
        row = (await left.other.request("thread/list"))["threads"][0]
        assert (row["id"], row["status"]) == (left.thread_id, {"type": "notLoaded"})
        assert (await left.client.run_turn(left.thread_id, "again"))["status"] == "completed"


@pytest.mark.proves("UNLOAD-001")
@pytest.mark.rule("S44")
async def test_a_lost_connection_counts_as_having_left(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        await left.client.request("thread/resume", threadId=left.thread_id)
        assert await left.wait(60 * MINUTE)
        left.client.disconnect()
        assert await left.wait(JUST_BEFORE)
        assert not await left.wait(REST)
        assert left.status() == "notLoaded"


@pytest.mark.proves("UNLOAD-002")
async def test_a_thread_that_somebody_follows_stays(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        await left.client.request("thread/resume", threadId=left.thread_id)
        await left.other.request("thread/resume", threadId=left.thread_id)
        assert await left.wait(60 * MINUTE)
        await left.unsubscribe(left.client)  # one of two
        assert await left.wait(60 * MINUTE)
        assert left.status() == "idle"


async def subscribe(left: Left) -> None:
    """Follow the thread for a moment."""
    await left.other.request("thread/resume", threadId=left.thread_id)
    await left.unsubscribe(left.other)


async def run_a_turn(left: Left) -> None:
    """A start subscribes, and its turn is work."""
    await left.other.run_turn(left.thread_id, "once more")
    await left.unsubscribe(left.other)


async def queue_an_input(left: Left) -> None:
    """It begins a turn at once, and subscribes nobody."""
    since = len(left.other.heard)
    await left.other.request("turn/queue/add", threadId=left.thread_id, text="queued")
    await left.other.until_idle(left.thread_id, since=since)


@pytest.mark.rule("S44", "S35")
@pytest.mark.parametrize("what", [subscribe, run_a_turn, queue_an_input])
async def test_whoever_comes_in_the_last_second_begins_the_ten_minutes_anew(
    tmp_path: Path, mock_clock: MockClock, what: Callable[[Left], Awaitable[None]]
) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        assert await left.wait(JUST_BEFORE)
        await what(left)
        assert await left.wait(JUST_BEFORE)
        assert left.status() == "idle"
        assert not await left.wait(REST)
        assert left.status() == "notLoaded"


@pytest.mark.rule("S44")
async def test_reading_and_listing_a_thread_does_not_keep_it(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        assert await left.wait(JUST_BEFORE)
        await left.other.request("thread/read", threadId=left.thread_id)
        await left.other.request("thread/list")
        await left.other.request("turn/interrupt", threadId=left.thread_id)
        result = await left.other.request("thread/unsubscribe", threadId=left.thread_id)
        assert result == {"status": "notSubscribed"}
        assert not await left.wait(REST)


@pytest.mark.proves("UNLOAD-003")
@pytest.mark.rule("S44", "S47")
async def test_a_turn_keeps_its_thread_and_the_ten_minutes_begin_at_its_end(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    asks = {"when": {"user": "work"}, "steps": [call("gate", "c1")]}
    finds = {"when": {"toolResult": "gate"}, "steps": [text("found")]}
    async with open_left(tmp_path, mock_clock, asks, finds) as left:
        with Gate() as gate:
            left.server.give(left.thread_id, "gate", gate.tool)
            since = len(left.other.heard)
            await left.client.start_turn(left.thread_id, "work")
            await left.unsubscribe(left.client)
            await gate.until_visited()
            assert await left.wait(60 * MINUTE)
            assert left.status() == "active"
            gate.open()
            await left.other.until_idle(left.thread_id, since=since)
            outcome = left.other.notifications("thread/turn/completed")[-1]["turn"]["status"]
            assert outcome == "completed"
            assert await left.wait(JUST_BEFORE)
            assert not await left.wait(REST)


@pytest.mark.rule("S44")
@pytest.mark.parametrize("point", ["input", "agent_settled"])
async def test_handlers_of_a_start_keep_its_thread(tmp_path: Path, mock_clock: MockClock, point: str) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        with Gate() as gate:
            getattr(left.server.thread(left.thread_id).hooks, point).add(gate.handler)
            left.other.begin("turn/queue/add", threadId=left.thread_id, text="queued")
            await gate.until_visited()
            assert await left.wait(60 * MINUTE)
            since = len(left.other.heard)
            gate.open()
            await left.other.until_idle(left.thread_id, since=since)
            assert await left.wait(JUST_BEFORE)
            assert not await left.wait(REST)


@pytest.mark.rule("S35", "S44")
async def test_a_queued_input_that_must_wait_keeps_its_thread(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        since = len(left.other.heard)
        with left.server.host.manager.hold(left.thread_id, "revert"):
            await left.other.request("turn/queue/add", threadId=left.thread_id, text="one")
            await left.other.request("turn/queue/add", threadId=left.thread_id, text="two")
            assert await left.wait(60 * MINUTE)
            assert left.other.notifications("thread/turn/completed", since=since) == []
        await left.other.until_all(lambda one: one.get("method") == "thread/turn/completed", 2, since=since)
        assert await left.wait(JUST_BEFORE)
        assert not await left.wait(REST)


@pytest.mark.rule("S44")
async def test_what_holds_the_lane_alone_keeps_the_thread(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        assert await left.wait(JUST_BEFORE)
        with left.server.host.manager.hold(left.thread_id, "revert"):
            assert await left.wait(60 * MINUTE)
        assert await left.wait(JUST_BEFORE)
        assert not await left.wait(REST)


@pytest.mark.rule("S44")
async def test_a_thread_that_was_never_saved_is_discarded(tmp_path: Path, mock_clock: MockClock) -> None:
    crawl(mock_clock)
    async with open_memory(tmp_path, SAYS) as server:
        client, other = server.connect(), server.connect()
        thread_id = await client.start_thread(tmp_path)
        await client.request("thread/unsubscribe", threadId=thread_id)
        await pass_time(mock_clock, JUST_BEFORE)
        since = len(other.heard)
        assert (await other.request("thread/read", threadId=thread_id))["turns"] == []
        await pass_time(mock_clock, REST)
        server.drain()
        assert other.heard[since + 1 :] == [
            {
                "method": "thread/status/changed",
                "params": {"threadId": thread_id, "status": {"type": "notLoaded"}},
            },
            {"method": "thread/deleted", "params": {"threadId": thread_id}},
        ]
        for method in ("thread/read", "thread/resume"):
            assert (await other.refused(method, threadId=thread_id))["code"] == "threadNotFound"
        assert (await other.request("thread/list"))["threads"] == []
        assert list((tmp_path / "home").rglob("*.jsonl")) == []


@pytest.mark.rule("S44")
async def test_each_thread_has_its_own_ten_minutes(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_left(tmp_path, mock_clock) as left:
        assert await left.wait(5 * MINUTE)
        later = await left.client.start_thread(tmp_path)
        await left.client.run_turn(later)
        await left.client.request("thread/unsubscribe", threadId=later)
        await left.wait(5 * MINUTE)
        assert left.server.host.manager.loaded(left.thread_id) is None
        assert left.server.thread(later).id == later
        await left.wait(5 * MINUTE)
        assert left.server.host.manager.counts() == (0, 0)
