"""`server/diagnostics`: counters of the process, for whoever asks.

Source: App Server, "server/diagnostics".
"""

import json
import os
import threading
from pathlib import Path

import pytest
import trio

from knightcode.app_server.handlers.server import resident_bytes
from knightcode.client import AppServerClient
from knightcode.sessions.listing import ListingCost, list_sessions, listing_cost
from knightcode_protocol import params
from tests.app_server.pipe import PATIENCE, Message, Pipe, open_pipe, text, write_script
from tests.client.transports import no_session_files, open_clients, open_scripted_host

COUNTERS = {
    "rssBytes",
    "heapBytes",
    "loadedThreads",
    "loadingThreads",
    "payloadFiles",
    "payloadBytes",
    "inactiveFactories",
    "uptimeMs",
    "listingFilesOpened",
    "listingBytesScanned",
}


def put(path: Path, **header: str) -> Path:
    """A session file with one message of a user's."""
    session = {"type": "session", "version": 3, "id": path.stem, "timestamp": "2027-04-09T06:31:52.480Z"}
    said = {"role": "user", "content": "Hello", "timestamp": 1_807_338_731_000}
    entry = {"type": "message", "id": "a1b2c3d4", "parentId": None, "timestamp": session["timestamp"]}
    lines = {**session, "cwd": "/srv/app", **header}, {**entry, "message": said}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def size(*paths: Path) -> int:
    return sum(path.stat().st_size for path in paths)


async def cost(pipe: Pipe) -> tuple[int, int]:
    """Files and bytes of all listings so far."""
    counters = await pipe.call("server/diagnostics")
    return counters["listingFilesOpened"], counters["listingBytesScanned"]


async def listed(pipe: Pipe, **more: object) -> list[Message]:
    rows: list[Message] = (await pipe.call("thread/list", **more))["threads"]
    return rows


@pytest.mark.proves("DIAG-001")
async def test_a_server_tells_ten_numbers_about_itself(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        refused = await pipe.ask("server/diagnostics")
        assert refused["error"]["code"] == "notInitialized"
        await pipe.handshake()
        before = await pipe.call("server/diagnostics")
        statm = Path(f"/proc/{pipe.process.pid}/statm").read_text()
        resident = int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        await pipe.start_thread(tmp_path)
        after = await pipe.call("server/diagnostics")
    assert set(before) == COUNTERS and all(type(value) is int for value in before.values())
    assert resident / 2 < before["rssBytes"] < resident * 2
    assert 0 < before["heapBytes"] <= before["rssBytes"]
    assert before["uptimeMs"] <= after["uptimeMs"] < PATIENCE * 1000
    rest = COUNTERS - {"rssBytes", "heapBytes", "uptimeMs"}
    assert {name: before[name] for name in rest} == dict.fromkeys(rest, 0)
    assert {name: after[name] for name in rest} == {**dict.fromkeys(rest, 0), "loadedThreads": 1}


@pytest.mark.proves("DIAG-002", "DIAG-003")
async def test_a_listing_adds_the_transcripts_that_it_reads_and_their_sizes(tmp_path: Path) -> None:
    """A damaged transcript is one that was read; what is not named like one is not."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    first = put(sessions / "a.jsonl"), put(sessions / "b.jsonl", cwd="/elsewhere")
    damaged = sessions / "c.jsonl"
    damaged.write_text("garbage\n" * 1000)
    (sessions / "notes.txt").write_text("x" * 5000)
    (sessions / "d.jsonl").mkdir()
    async with open_pipe(tmp_path / "home", "--session-dir", str(sessions)) as pipe:
        await pipe.handshake()
        costs = [await cost(pipe)]
        assert len(await listed(pipe)) == 3
        costs.append(await cost(pipe))
        later = put(sessions / "e.jsonl")
        assert len(await listed(pipe)) == 4
        costs.append(await cost(pipe))
        page = await pipe.call("thread/list", limit=1)
        costs.append(await cost(pipe))
        await pipe.call("thread/list", limit=1, cursor=page["nextCursor"])
        costs.append(await cost(pipe))
    assert costs[:2] == [(0, 0), (3, size(*first, damaged))]
    assert costs[2][0] >= costs[1][0] + 1 and costs[2][1] >= costs[1][1] + size(later)
    assert costs == sorted(costs) and [held for _, held in costs] == sorted(held for _, held in costs)
    assert costs[4] == costs[3]  # a following page is cut from what the first one found


@pytest.mark.proves("DIAG-003", "DIAG-004")
async def test_a_look_into_a_parent_s_header_adds_an_open_and_no_bytes(tmp_path: Path) -> None:
    """Forks of one parent look once; a parent that is gone was never opened."""
    sessions, other = tmp_path / "sessions", tmp_path / "other"
    sessions.mkdir()
    other.mkdir()
    parent, gone = put(other / "parent.jsonl"), other / "gone.jsonl"
    forks = [
        put(sessions / "a.jsonl", parentSession=str(parent)),
        put(sessions / "b.jsonl", parentSession=str(parent)),
        put(sessions / "c.jsonl", parentSession=str(gone)),
        put(sessions / "d.jsonl", parentSession="relative.jsonl"),
    ]
    async with open_pipe(tmp_path / "home", "--session-dir", str(sessions)) as pipe:
        await pipe.handshake()
        rows = {row["id"]: row.get("forkedFromId") for row in await listed(pipe)}
        assert rows == {"a": "parent", "b": "parent", "c": None, "d": None}
        assert await cost(pipe) == (len(forks) + 1, size(*forks))


async def test_a_session_that_is_read_or_loaded_costs_no_listing(tmp_path: Path) -> None:
    """App Server: server/diagnostics, the listing counters."""
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    parent = put(tmp_path / "parent.jsonl")
    put(sessions / "a.jsonl", parentSession=str(parent), cwd=str(tmp_path))
    async with open_pipe(tmp_path / "home", "--session-dir", str(sessions)) as pipe:
        await pipe.handshake()
        for method in ("thread/read", "thread/resume"):
            thread = (await pipe.call(method, threadId="a"))["thread"]
            assert thread["forkedFromId"] == "parent"
        assert await cost(pipe) == (0, 0)


@pytest.mark.proves("DIAG-006")
async def test_the_counters_are_the_server_s_and_not_those_of_who_asks(tmp_path: Path) -> None:
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (ana, ben):
        assert await threads(ben.client) == (0, 0)
        thread_id = await ana.start_thread(tmp_path)
        assert await threads(ben.client) == (1, 0)
        before = listing_cost()
        await ana.run_turn(thread_id)
        with trio.fail_after(PATIENCE):
            rows = (await ana.client.thread_list(params.ThreadListParams())).threads
            told = await ben.client.server_diagnostics()
        assert [row.id for row in rows] == [thread_id]
        assert (told.listing_files_opened, told.listing_bytes_scanned) == (
            before.files_opened + 1,
            before.bytes_scanned + size(*tmp_path.glob("home/agent/sessions/*/*.jsonl")),
        )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (ana, ben):
        wanted = params.ThreadResumeParams(thread_id=thread_id)
        async with trio.open_nursery() as nursery:
            async with no_session_files():
                nursery.start_soon(ana.client.thread_resume, wanted)
                with trio.fail_after(PATIENCE):
                    while await threads(ben.client) != (0, 1):
                        pass
            await ana.until_method("thread/status/changed")
        assert await threads(ben.client) == (1, 0)


async def threads(client: AppServerClient) -> tuple[int, int]:
    """How many threads are loaded, and how many are being loaded."""
    with trio.fail_after(PATIENCE):
        told = await client.server_diagnostics()
    return told.loaded_threads, told.loading_threads


def test_listings_that_run_side_by_side_are_all_counted(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", parentSession=str(put(tmp_path / "b.jsonl")))
    before, rounds, workers = listing_cost(), 50, 4

    def work() -> None:
        for _ in range(rounds):
            list_sessions([tmp_path])

    running = [threading.Thread(target=work) for _ in range(workers)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(PATIENCE)
    scans = rounds * workers
    assert listing_cost() == ListingCost(
        before.files_opened + 3 * scans, before.bytes_scanned + scans * size(*tmp_path.iterdir())
    )


@pytest.mark.parametrize("content", [None, "", "1", "many pages"])
def test_memory_is_told_by_its_peak_where_the_pages_in_use_cannot_be_read(
    tmp_path: Path, content: str | None
) -> None:
    statm = tmp_path / "statm"
    if content is not None:
        statm.write_text(content)
    assert resident_bytes(str(statm)) >= resident_bytes() // 2 > 1 << 20
