"""What clients see of a turn's items: final contents, hooks, nested calls, file changes, output."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing

from knightcode.agent.hooks import Handled, Input
from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    StoredMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultMessage,
)
from tests.app_server.memory import call, done, open_memory
from tests.app_server.pipe import text, tool

Rewrite = Callable[[AssistantMessage], AssistantMessage]


def rewriting(rewrite: Rewrite) -> Callable[[StoredMessage | CustomMessage], Awaitable[Any]]:
    """A `message_end` handler that changes replies."""

    async def handler(message: StoredMessage | CustomMessage) -> StoredMessage | None:
        await trio.lowlevel.checkpoint()
        return rewrite(message) if isinstance(message, AssistantMessage) else None

    return handler


# --- the user's message -------------------------------------------------------------------------


@pytest.mark.proves("ITEM-001", "ITEM-002", "ITEM-003")
async def test_the_first_user_message_of_a_turn_repeats_the_clients_id_whatever_hooks_make_of_its_text(
    tmp_path: Path,
) -> None:
    """App Server: Threads and turns."""

    async def louder(given: Input | Handled) -> Input:
        await trio.lowlevel.checkpoint()
        assert isinstance(given, Input)
        return attrs.evolve(given, text=given.text.upper())

    async with open_memory(tmp_path, [tool("wait")], [text("Hi")], [text("again")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.thread(thread_id).hooks.input.add(louder)
        may_end = trio.Event()

        async def wait(_: dict[str, Any], __: ToolContext) -> ToolResult:
            await may_end.wait()
            return ToolResult()

        server.give(thread_id, "wait", wait)
        turn_id = await client.start_turn(thread_id, "hello", clientMessageId="draft-7")
        await client.until_item("item/started", "call_1_1")
        await client.request("turn/steer", threadId=thread_id, expectedTurnId=turn_id, text="more")
        may_end.set()
        await client.until_completed(turn_id)
        await client.until_idle(thread_id)
        await client.run_turn(thread_id, "later")
        turns = (await client.request("thread/read", threadId=thread_id))["turns"]
    told = [
        [(one["text"], one.get("clientMessageId")) for one in client.items(method) if "images" in one]
        for method in ("item/started", "item/completed")
    ]
    assert told == [[("HELLO", "draft-7"), ("MORE", None), ("LATER", None)]] * 2
    read = [item for turn in turns for item in turn["items"] if item["type"] == "userMessage"]
    assert [(one["text"], "clientMessageId" in one) for one in read] == [
        ("HELLO", False),
        ("MORE", False),
        ("LATER", False),
    ]


@pytest.mark.proves("ITEM-004")
async def test_an_input_that_a_handler_took_shows_no_item(tmp_path: Path) -> None:
    """App Server: Threads and turns."""

    async def take(given: Input | Handled) -> Handled | None:
        await trio.lowlevel.checkpoint()
        return Handled() if isinstance(given, Input) and given.text == "/mine" else None

    async with open_memory(tmp_path, [text("Hi")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.thread(thread_id).hooks.input.add(take)
        answer = await client.request(
            "turn/start", threadId=thread_id, text="/mine", clientMessageId="draft-1"
        )
        assert answer["status"] == "handled"
        await client.until_idle(thread_id)
        await client.run_turn(thread_id, "other")
    shown = [one.get("clientMessageId") for one in client.items("item/started") if "images" in one]
    assert shown == [None]
    assert "draft-1" not in str(client.heard)


# --- final messages decide ----------------------------------------------------------------------


@pytest.mark.proves("ITEM-011", "ITEM-017", "ITEM-018")
async def test_a_reply_that_a_handler_rewrote_is_completed_and_read_back_as_rewritten(tmp_path: Path) -> None:
    """App Server: Threads and turns; what streams is provisional."""

    def rewrite(message: AssistantMessage) -> AssistantMessage:
        return msgspec.structs.replace(
            message, content=[TextBlock(text="final")], timestamp=1_000, duration_ms=23
        )

    async with open_memory(tmp_path, [text("draft", chunk=3)]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.thread(thread_id).hooks.message_end.add(rewriting(rewrite))
        turn = await client.run_turn(thread_id)
        read = await client.read_items(thread_id)
    (started,) = client.items("item/started", kind="agentMessage")
    (completed,) = client.items(kind="agentMessage")
    deltas = [one["delta"] for one in client.notifications("item/agentMessage/delta")]
    assert (started["text"], deltas, "completedAt" in started) == ("", ["dra", "ft"], False)
    assert completed == {
        "id": f"{turn['id']}:1:t0",
        "type": "agentMessage",
        "index": 1,
        "text": "final",
        "startedAt": 1_000,
        "completedAt": 1_023,
    }
    assert read[1] == completed


@pytest.mark.proves("ITEM-018", "ITEM-020", "ITEM-021")
async def test_a_block_that_a_handler_dropped_is_removed_and_those_behind_it_move_up(tmp_path: Path) -> None:
    """App Server: Threads and turns."""

    def rewrite(message: AssistantMessage) -> AssistantMessage:
        kept = [block for block in message.content if not isinstance(block, ThinkingBlock)]
        return msgspec.structs.replace(message, content=kept)

    async with open_memory(
        tmp_path, [{"thinking": "hm"}, text("Hi"), call("t", "c1")], [text("end")]
    ) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "t", done)
        server.thread(thread_id).hooks.message_end.add(rewriting(rewrite))
        turn_id = (await client.run_turn(thread_id))["id"]
        read = await client.read_items(thread_id)
    places = [
        [(one["id"], one["index"]) for one in client.items(method)]
        for method in ("item/started", "item/completed")
    ]
    reasoning, said = f"{turn_id}:1:r0", f"{turn_id}:1:t0"
    assert places[0] == [
        (f"{turn_id}:0", 0), (reasoning, 1), (said, 2), ("c1", 2), (f"{turn_id}:2:t0", 3),
    ]  # fmt: skip
    assert places[1] == [(f"{turn_id}:0", 0), (said, 1), ("c1", 2), (f"{turn_id}:2:t0", 3)]
    assert client.notifications("item/removed") == [
        {"threadId": thread_id, "turnId": turn_id, "itemId": reasoning}
    ]
    assert read == client.items()


async def test_a_result_that_a_handler_rewrote_is_completed_and_read_back_as_rewritten(
    tmp_path: Path,
) -> None:
    """App Server: Threads and turns; final messages decide the status too."""

    async def rewrite(message: StoredMessage | CustomMessage) -> StoredMessage | None:
        await trio.lowlevel.checkpoint()
        if not isinstance(message, ToolResultMessage):
            return None
        return msgspec.structs.replace(message, content=[TextBlock(text="hidden")], is_error=True)

    async with open_memory(tmp_path, [call("t", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "t", done)
        server.thread(thread_id).hooks.message_end.add(rewrite)
        await client.run_turn(thread_id)
        read = await client.read_items(thread_id)
    (completed,) = [one for one in client.items() if one["id"] == "c1"]
    assert (completed["status"], completed["output"]) == ("failed", [{"type": "text", "text": "hidden"}])
    assert read[1] == completed


# --- file changes -------------------------------------------------------------------------------

GOOD = [
    {"path": "new.txt", "kind": "add"},
    {"path": "/else/where.txt", "kind": "modify", "diff": "--- a\n+++ b\n"},
    {"path": "old.txt", "kind": "delete", "diff": ""},
]


@pytest.mark.proves("ITEM-025", "ITEM-026", "ITEM-027")
async def test_a_tool_may_report_which_files_it_added_modified_and_deleted(tmp_path: Path) -> None:
    """App Server: Threads and turns; paths become absolute, an empty patch is no diff."""

    async def report(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(details={"fileChanges": GOOD})

    written = [tool("write", path="a.txt", content="1\n")]
    edited = [tool("edit", path="a.txt", edits=[{"oldText": "1", "newText": "2"}])]
    async with open_memory(tmp_path, written, edited, [tool("report")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "report", report)
        await client.run_turn(thread_id)
        read = await client.read_items(thread_id)
    told = [one["fileChanges"] for one in client.items(kind="toolCall")]
    assert [change["kind"] for changes in told[:2] for change in changes] == ["add", "modify"]
    assert told[2] == [
        {"path": str(tmp_path / "new.txt"), "kind": "add"},
        {"path": "/else/where.txt", "kind": "modify", "diff": "--- a\n+++ b\n"},
        {"path": str(tmp_path / "old.txt"), "kind": "delete"},
    ]
    assert [one["fileChanges"] for one in read if one["type"] == "toolCall"] == told


@pytest.mark.proves("ITEM-028")
@pytest.mark.parametrize(
    "bad",
    [
        {"path": "a", "kind": "rename"},
        {"path": "", "kind": "add"},
        {"path": "a\0b", "kind": "add"},
        {"kind": "add"},
        {"path": "a", "kind": ["add"]},
        {"path": "a", "kind": "add", "diff": 1},
        "a",
        None,
    ],
    ids=str,
)
async def test_a_report_with_one_bad_entry_is_ignored_as_a_whole(tmp_path: Path, bad: Any) -> None:
    """App Server: Threads and turns; the call itself is as good as ever."""

    async def report(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(details={"fileChanges": [*GOOD, bad]})

    async with open_memory(tmp_path, [call("report", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "report", report)
        await client.run_turn(thread_id)
        read = await client.read_items(thread_id)
    (ended,) = [one for one in client.items() if one["id"] == "c1"]
    assert (ended["status"], "fileChanges" in ended) == ("completed", False)
    assert read[1] == ended


@pytest.mark.proves("ITEM-029")
async def test_a_failed_call_reports_no_file_changes(tmp_path: Path) -> None:
    """App Server: Threads and turns; neither the built-in tools nor others."""

    async def report(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(details={"fileChanges": GOOD}, is_error=True)

    edit = tool("edit", path="none.txt", edits=[{"oldText": "1", "newText": "2"}])
    async with open_memory(tmp_path, [edit, tool("report")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "report", report)
        await client.run_turn(thread_id)
        read = await client.read_items(thread_id)
    for ended in (client.items(kind="toolCall"), read[1:3]):
        assert [(one["status"], "fileChanges" in one) for one in ended] == [("failed", False)] * 2


# --- output while it grows ----------------------------------------------------------------------


async def test_output_comes_as_what_was_added_or_replaces_what_was_there(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """App Server notes: Session events to notifications, `outputDelta`."""
    mock_clock.rate = 1
    may_go_on = trio.lowlevel.ParkingLot()
    long = "é" * 40_000

    async def work(_: dict[str, Any], context: ToolContext) -> ToolResult:
        for output in ("one", "one two", "two", "two" + long):
            context.update(ToolResult.of_text(output))
            await may_go_on.park()
        return ToolResult.of_text("end")

    async with open_memory(tmp_path, [call("t", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "t", work)
        turn_id = await client.start_turn(thread_id)
        for count in (1, 2, 3, 5):
            await client.until_all(lambda one: one.get("method") == "item/toolCall/outputDelta", count)
            mock_clock.jump(0.2)
            may_go_on.unpark()
        await client.until_completed(turn_id)
    told = client.notifications("item/toolCall/outputDelta")
    place = {"threadId": thread_id, "turnId": turn_id, "itemId": "c1"}
    assert told[:3] == [
        {**place, "delta": "one"},
        {**place, "delta": " two"},
        {**place, "delta": "two", "replace": True},
    ]
    rest = told[3:]
    assert "".join(one["delta"] for one in rest) == long
    assert all(one.keys() == {*place, "delta"} and len(one["delta"].encode()) <= 65_536 for one in rest)


async def test_a_tool_that_reports_all_the_time_is_heard_ten_times_a_second_at_most(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """App Server notes: Session events to notifications, `outputDelta`."""
    mock_clock.rate = 1
    seconds = 0.0

    async def work(_: dict[str, Any], context: ToolContext) -> ToolResult:
        nonlocal seconds
        began = trio.current_time()
        for count in range(200):
            context.update(ToolResult.of_text(f"{count} of 200"))
            mock_clock.jump(0.01)
            await trio.lowlevel.checkpoint()
        seconds = trio.current_time() - began
        return ToolResult.of_text("end")

    async with open_memory(tmp_path, [call("t", "c1")], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        server.give(thread_id, "t", work)
        await client.run_turn(thread_id)
    assert 10 <= len(client.notifications("item/toolCall/outputDelta")) <= 1 + seconds / 0.1


async def test_a_character_that_a_command_prints_in_two_halves_arrives_whole(tmp_path: Path) -> None:
    """Agent loop: bash; the second half comes when the test has seen what came before the first."""
    command = (
        "printf 'a\\303'; while [ ! -e go ]; do sleep 0.02; done; printf '\\251b'; "
        "while [ ! -e end ]; do sleep 0.02; done"
    )
    async with open_memory(tmp_path, [call("bash", "c1", command=command)], [text("end")]) as server:
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await client.start_turn(thread_id)
        await client.until(lambda one: one.get("params", {}).get("delta") == "a")
        (tmp_path / "go").touch()
        await client.until(lambda one: one.get("params", {}).get("delta") == "éb")
        (tmp_path / "end").touch()
        await client.until_completed(turn_id)
    (ended,) = [one for one in client.items() if one["id"] == "c1"]
    assert ended["output"] == [{"type": "text", "text": "aéb"}]
    deltas = [one["delta"] for one in client.notifications("item/toolCall/outputDelta") if one["delta"]]
    assert deltas == ["a", "éb"]
