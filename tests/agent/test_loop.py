"""The loop with a model and tools of our own: order, batches, interrupts, hooks."""

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from knightcode.agent.calls import ABANDON_AFTER
from knightcode.agent.hooks import Blocked, FinishedCall, FinishedTurn, PendingCall
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.events import MessageEnd, ToolExecutionUpdate
from knightcode.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    StoredMessage,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.models.reply import ReplyBuilder
from knightcode.models.request import ModelRequest
from knightcode.sessions.entries import MessageEntry
from tests.agent.stage import OwnTool, Stage, now_ms, open_stage, says

PATIENCE = 10


async def done(_: dict[str, Any], __: ToolContext) -> ToolResult:
    await trio.lowlevel.checkpoint()
    return ToolResult.of_text("done")


async def silence(_: ModelRequest, reply: ReplyBuilder) -> None:
    reply.delta(reply.open_text(), "so far")
    await trio.sleep_forever()


def stored(stage: Stage) -> list[str]:
    """Role and text of every stored message but the prompt."""
    messages = [entry.message for entry in stage.log.entries if isinstance(entry, MessageEntry)]
    return [
        f"{type(one).__name__.removesuffix('Message')}: {text_of(one.content)}"
        for one in messages
        if isinstance(one, UserMessage | AssistantMessage | ToolResultMessage)
    ]


async def test_a_run_is_told_in_the_documented_order() -> None:
    """Session events: Typical sequences."""
    tool = OwnTool("t", done)
    async with open_stage([says("look", ("c1", "t", "{}")), says("end")], tool) as stage:
        with trio.fail_after(PATIENCE):
            reply = await stage.play()
    assert text_of(reply.content) == "end"
    assert stage.told() == [
        "agent_start", "turn_start", "message_start", "message_end",
        "message_start", "message_update", "message_update", "message_update",
        "message_update", "message_update", "message_update", "message_end",
        "tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end",
        "turn_start", "message_start", "message_update", "message_update", "message_update", "message_end",
        "turn_end", "agent_end",
    ]  # fmt: skip
    assert stored(stage) == ["User: go", "Assistant: look", "ToolResult: done", "Assistant: end"]
    first = stage.log.entries[0]
    assert isinstance(first, MessageEntry)
    assert isinstance(first.message, SystemMessage)
    assert stage.models.asked[0].system_prompt == "Be good."
    assert [tool.name for tool in stage.models.asked[0].tools] == ["t"]


async def test_calls_of_one_reply_run_side_by_side_and_their_results_keep_the_calls_order() -> None:
    """Agent loop: Tool calls."""
    first_may_end = trio.Event()

    async def first(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await first_may_end.wait()
        return ToolResult.of_text("first")

    async def second(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        first_may_end.set()
        return ToolResult.of_text("second")

    tools = OwnTool("one", first), OwnTool("two", second)
    plays = [says("", ("a", "one", "{}"), ("b", "two", "{}")), says("end")]
    async with open_stage(plays, *tools) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert [one.tool_call_id for one in stage.results] == ["b", "a"]
    ends = [event.message for event in stage.events if isinstance(event, MessageEnd)]
    told = [message.tool_call_id for message in ends if isinstance(message, ToolResultMessage)]
    assert told == ["a", "b"]


async def test_a_sequential_tool_makes_its_whole_batch_sequential() -> None:
    """Agent loop: Tool calls."""
    running: list[str] = []
    most = 0

    async def work(_: dict[str, Any], __: ToolContext) -> ToolResult:
        nonlocal most
        running.append("x")
        most = max(most, len(running))
        await trio.lowlevel.checkpoint()
        running.pop()
        return ToolResult.of_text("done")

    tools = OwnTool("one", work, sequential=True), OwnTool("two", work)
    plays = [says("", ("a", "two", "{}"), ("b", "one", "{}"), ("c", "two", "{}")), says("end")]
    async with open_stage(plays, *tools) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert most == 1
    assert [one.tool_call_id for one in stage.results] == ["a", "b", "c"]


async def test_calls_that_cannot_run_get_an_error_result_and_the_run_goes_on() -> None:
    """Agent loop: Tool calls."""

    async def fails(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        raise ToolError("no luck", details={"why": 1})

    async def breaks(_: dict[str, Any], __: ToolContext) -> ToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ZeroDivisionError("by zero")

    strict = OwnTool("strict", done)
    strict.parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    plays = [
        says("", ("a", "none", "{}"), ("b", "fails", "{}"), ("c", "breaks", "{}"), ("d", "strict", "{}")),
        says("end"),
    ]
    async with open_stage(plays, OwnTool("fails", fails), OwnTool("breaks", breaks), strict) as stage:
        with trio.fail_after(PATIENCE):
            reply = await stage.play()
    outcomes = stage.outcomes()
    assert outcomes["a"] == (True, "Tool none not found")
    assert outcomes["b"] == (True, "no luck")
    assert outcomes["c"] == (True, "by zero")
    assert outcomes["d"][0] and "n" in outcomes["d"][1]
    assert {one.tool_call_id: one.details for one in stage.results}["b"] == {"why": 1}
    assert text_of(reply.content) == "end"


async def test_a_reply_cut_off_by_its_limit_runs_no_call() -> None:
    """Agent loop: Tool calls."""
    ran = []

    async def work(_: dict[str, Any], __: ToolContext) -> ToolResult:
        ran.append(1)
        return await done(_, __)

    plays = [says("", ("a", "t", '{"x": 1'), stop="length"), says("end")]
    async with open_stage(plays, OwnTool("t", work)) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert ran == []
    failed, text = stage.outcomes()["a"]
    assert failed and "send the call again" in text


async def test_call_ids_that_repeat_or_are_missing_become_distinct() -> None:
    """App Server notes: Item ids; some servers count their ids from one in every reply."""
    plays = [
        says("", ("1", "t", "{}"), ("1", "t", "{}"), ("", "t", "{}")),
        says("", ("1", "t", "{}")),
        says("end"),
    ]
    async with open_stage(plays, OwnTool("t", done)) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert sorted(one.tool_call_id for one in stage.results) == ["1", "1-2", "1-3", "call"]
    replies = [
        entry.message.content
        for entry in stage.log.entries
        if isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage)
    ]
    named = [block.id for content in replies for block in content if isinstance(block, ToolCallBlock)]
    assert named == ["1", "1-2", "call", "1-3"]


async def test_the_run_ends_when_every_result_of_a_batch_asks_for_it() -> None:
    """Agent loop: The loop."""

    async def last(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return attrs.evolve(ToolResult.of_text("that was it"), terminate=True)

    one_of_two = says("", ("a", "last", "{}"), ("b", "t", "{}"))
    both = says("", ("c", "last", "{}"), ("d", "last", "{}"))
    async with open_stage([one_of_two, both], OwnTool("last", last), OwnTool("t", done)) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert len(stage.models.asked) == 2


# --- interrupts ---------------------------------------------------------------------------------


async def test_an_interrupt_before_the_request_asks_nobody() -> None:
    """Agent loop: Abort; the message is kept."""
    async with open_stage([]) as stage:
        stage.interrupt.throw("test")
        with trio.fail_after(PATIENCE):
            reply = await stage.play()
    assert stage.models.asked == []
    assert (reply.stop_reason, reply.content) == ("aborted", [])
    assert stored(stage) == ["User: go", "Assistant: "]


@pytest.mark.rule("S14")
async def test_an_interrupt_while_streaming_stores_what_arrived() -> None:
    """Agent loop: Abort."""
    async with open_stage([silence]) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                stage.interrupt.throw("test")
    assert stored(stage) == ["User: go", "Assistant: so far"]
    assert stage.told()[-3:] == ["message_end", "turn_end", "agent_end"]


async def test_a_cancelled_run_stores_what_arrived_and_the_cancellation_goes_on() -> None:
    """Architecture: cleanup has a deadline; the thread itself is being ended."""
    async with open_stage([silence]) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            assert nursery.cancel_scope.cancelled_caught
    assert stored(stage) == ["User: go", "Assistant: so far"]


@pytest.mark.rule("S16")
async def test_an_interrupted_batch_runs_nothing_that_had_not_started() -> None:
    """App Server notes: Interrupts, during a parallel batch."""
    ran: list[str] = []

    async def judge(call: PendingCall | Blocked) -> None:
        if isinstance(call, PendingCall) and call.call_id == "b":
            stage.interrupt.throw("test")
        await trio.lowlevel.checkpoint()

    async def work(_: dict[str, Any], __: ToolContext) -> ToolResult:
        ran.append("x")
        return await done(_, __)

    plays = [says("", ("a", "t", "{}"), ("b", "t", "{}"), ("c", "t", "{}"))]
    async with open_stage(plays, OwnTool("t", work)) as stage:
        stage.hooks.tool_call.add(judge)
        with trio.fail_after(PATIENCE):
            reply = await stage.play()
    assert ran == []
    assert stage.outcomes() == {"a": (True, "Operation aborted"), "b": (True, "Operation aborted")}
    assert reply.stop_reason == "aborted"
    assert stage.told().count("tool_execution_start") == 2


@pytest.mark.rule("S15")
async def test_an_interrupted_tool_gives_the_result_that_it_left_for_this() -> None:
    """App Server notes: Interrupts, during a tool."""

    async def work(_: dict[str, Any], context: ToolContext) -> ToolResult:
        context.aborted = lambda: ToolResult.of_text("half of it", is_error=True)
        await trio.sleep_forever()
        raise AssertionError

    async with open_stage([says("", ("a", "t", "{}"))], OwnTool("t", work)) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                stage.interrupt.throw("test")
    assert stage.outcomes() == {"a": (True, "half of it")}


@pytest.mark.rule("S15")
async def test_a_tool_that_ignores_its_cancellation_is_abandoned_after_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """App Server notes: Interrupts; what the tool does later appears nowhere."""
    released = trio.Event()
    contexts: list[ToolContext] = []

    async def deaf(_: dict[str, Any], context: ToolContext) -> ToolResult:
        contexts.append(context)
        with trio.CancelScope(shield=True):
            await released.wait()
        context.update(ToolResult.of_text("late"))
        return ToolResult.of_text("too late")

    async with open_stage([says("", ("a", "deaf", "{}"))], OwnTool("deaf", deaf)) as stage:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.play)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            stage.interrupt.throw("test")
        assert trio.current_time() - began == ABANDON_AFTER == 5.0
        failed, text = stage.outcomes()["a"]
        assert failed and text.startswith("Operation aborted: deaf did not stop in 5 seconds")
        before = list(stage.events)
        released.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.events == before
        assert len(stage.results) == 1


# --- hooks --------------------------------------------------------------------------------------


async def test_a_tool_call_hook_may_change_arguments_or_block_and_a_failing_one_blocks() -> None:
    """Agent loop: Hooks around a run."""
    given: list[dict[str, Any]] = []

    async def work(arguments: dict[str, Any], _: ToolContext) -> ToolResult:
        given.append(arguments)
        return await done(arguments, _)

    async def judge(call: PendingCall | Blocked) -> PendingCall | Blocked | None:
        await trio.lowlevel.checkpoint()
        assert isinstance(call, PendingCall)
        if call.call_id == "a":
            return attrs.evolve(call, arguments={"x": 2})
        if call.call_id == "b":
            return Blocked("not this one")
        raise LookupError("the check broke")

    asked_last: list[str] = []

    async def gate(call: PendingCall | Blocked) -> None:
        await trio.lowlevel.checkpoint()
        assert isinstance(call, PendingCall)
        asked_last.append(call.call_id)

    plays = [says("", ("a", "t", "{}"), ("b", "t", "{}"), ("c", "t", "{}")), says("end")]
    async with open_stage(plays, OwnTool("t", work)) as stage:
        stage.hooks.tool_call.add(gate, last=True)
        stage.hooks.tool_call.add(judge)
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert given == [{"x": 2}]
    assert asked_last == ["a"]
    assert stage.outcomes() == {
        "a": (False, "done"),
        "b": (True, "not this one"),
        "c": (True, "the check broke"),
    }
    assert {one.tool_call_id: one.details for one in stage.results}["b"] == {"blocked": True}


async def test_results_messages_and_requests_pass_their_hooks_and_a_failing_hook_changes_nothing() -> None:
    """Agent loop: Hooks around a run."""

    async def better(call: FinishedCall) -> FinishedCall:
        await trio.lowlevel.checkpoint()
        return attrs.evolve(call, result=ToolResult.of_text("better"))

    async def broken(_: FinishedCall) -> FinishedCall:
        await trio.lowlevel.checkpoint()
        raise LookupError

    async def louder(message: StoredMessage | CustomMessage) -> StoredMessage | CustomMessage | None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, UserMessage):
            return UserMessage(timestamp=message.timestamp, content="GO")
        return UserMessage(timestamp=0, content="of another role")

    async def shorter(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        await trio.lowlevel.checkpoint()
        return messages[-1:]

    plays = [says("look", ("a", "t", "{}")), says("end")]
    async with open_stage(plays, OwnTool("t", done)) as stage:
        stage.hooks.tool_result.add(better)
        stage.hooks.tool_result.add(broken)
        stage.hooks.message_end.add(louder)
        stage.hooks.context.add(shorter)
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert stored(stage) == ["User: GO", "Assistant: look", "ToolResult: better", "Assistant: end"]
    assert [len(request.messages) for request in stage.models.asked] == [1, 1]


async def test_a_turn_end_hook_may_end_the_run_or_ask_for_one_more_reply() -> None:
    """Agent loop: The loop."""

    async def once_more(turn: FinishedTurn) -> FinishedTurn | None:
        await trio.lowlevel.checkpoint()
        said = text_of(turn.message.content)
        return attrs.evolve(turn, go_on=said == "one", end=said == "two")

    plays = [says("one"), says("two", ("a", "t", "{}"))]
    async with open_stage(plays, OwnTool("t", done)) as stage:
        stage.hooks.turn_end.add(once_more)
        with trio.fail_after(PATIENCE):
            reply = await stage.play()
    assert text_of(reply.content) == "two"
    assert len(stage.models.asked) == 2


async def test_observers_see_every_event_first_and_a_failing_one_harms_nobody() -> None:
    """Agent loop: Hooks around a run."""
    seen: list[str] = []

    def fail(_: object) -> None:
        raise LookupError

    async with open_stage([says("end")]) as stage:
        stage.hooks.observers.append(fail)
        stage.hooks.observers.append(lambda event: seen.append(f"{type(event).__name__} {len(stage.events)}"))
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert seen == [f"{type(event).__name__} {place}" for place, event in enumerate(stage.events)]


async def test_a_run_goes_on_without_a_new_prompt() -> None:
    """Agent loop: The loop, continuation."""
    async with open_stage([says("one"), says("two")]) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
            assert not stage.run.can_go_on()
            stage.log.append_message(UserMessage(timestamp=now_ms(), content="and?"))
            assert stage.run.can_go_on()
            reply = await stage.run.run([])
    assert text_of(reply.content) == "two"
    assert [type(block) for block in reply.content] == [TextBlock]


async def test_what_cannot_be_stored_is_never_announced() -> None:
    """Architecture: state first; a full disk fails the run and shows nothing that is not in the file."""

    async with open_stage([says("end")]) as stage:
        stage.memory.full = True
        with trio.fail_after(PATIENCE), pytest.raises(OSError, match="disk full"):
            await stage.play()
    assert stage.told() == ["agent_start", "turn_start"]


async def test_partial_results_are_shown_at_most_every_tenth_of_a_second_and_the_last_one_is_not_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """App Server notes: Session events to notifications; Session events: Update rate."""
    shown: list[tuple[float, str]] = []

    async def chatty(_: dict[str, Any], context: ToolContext) -> ToolResult:
        context.update(ToolResult())
        for number in range(25):
            context.update(ToolResult.of_text(str(number)))
            await trio.sleep(0.01)
        await trio.sleep(60)
        return ToolResult.of_text("done")

    async with open_stage([says("", ("a", "t", "{}")), says("end")], OwnTool("t", chatty)) as stage:

        def watch(event: object) -> None:
            if isinstance(event, ToolExecutionUpdate):
                shown.append((round(trio.current_time(), 2), text_of(event.partial_result.content)))

        stage.hooks.observers.append(watch)
        await stage.play()
    assert [when for when, _ in shown] == [0.0, 0.0, 0.1, 0.2, 0.3]
    assert [what for _, what in shown][:2] == ["", "0"]
    assert shown[-1] == (0.3, "24")
    assert stage.told().count("tool_execution_update") == len(shown)


@pytest.mark.parametrize(
    "arguments",
    ['{"x": "rm -rf /tmp/a', '{"x": 1} and more', '{"x": 1', "x", '{"x": 1e999}', "[1]"],
)
async def test_a_call_whose_arguments_are_no_whole_json_is_shown_and_never_run(arguments: str) -> None:
    """Models and providers: Common; what was cut must not be carried out as far as it goes."""
    ran: list[dict[str, Any]] = []

    async def work(given: dict[str, Any], _: ToolContext) -> ToolResult:
        ran.append(given)
        return await done(given, _)

    plays = [says("", ("a", "t", arguments), ("b", "t", '{"x": "raw\nline \\q"}')), says("end")]
    async with open_stage(plays, OwnTool("t", work)) as stage:
        with trio.fail_after(PATIENCE):
            await stage.play()
    assert ran == [{"x": "raw\nline \\q"}]
    failed, text = stage.outcomes()["a"]
    assert failed and "not valid JSON" in text


async def test_a_result_is_stored_when_its_call_ends_not_when_the_batch_does() -> None:
    """Users' reports: what was shown as done is there after a crash."""
    release = trio.Event()

    async def slow(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await release.wait()
        return ToolResult.of_text("slow")

    plays = [says("", ("a", "slow", "{}"), ("b", "t", "{}")), says("end")]
    async with open_stage(plays, OwnTool("slow", slow), OwnTool("t", done)) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                assert stored(stage)[-1] == "ToolResult: done"
                assert stage.told()[-1] == "tool_execution_end"
                release.set()
    ends = [event.message for event in stage.events if isinstance(event, MessageEnd)]
    results = [message.tool_call_id for message in ends if isinstance(message, ToolResultMessage)]
    assert results == ["a", "b"]


async def test_a_result_that_cannot_be_stored_fails_the_run() -> None:
    """Architecture: state first; the call's siblings end first."""

    async def fill(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        stage.memory.full = True
        return ToolResult.of_text("done")

    async with open_stage([says("", ("a", "fill", "{}"))], OwnTool("fill", fill)) as stage:
        with trio.fail_after(PATIENCE), pytest.raises(OSError, match="disk full"):
            await stage.play()
    assert "tool_execution_end" not in stage.told()


@pytest.mark.parametrize("gives", ["nothing", "a text", "what cannot be stored"])
async def test_a_tool_that_gives_no_result_fails_its_call_alone(gives: str) -> None:
    """Agent loop: Tool calls; a mistake of one tool is one failed call."""

    async def work(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        if gives == "what cannot be stored":
            deep: list[Any] = []
            for _level in range(5_000):
                deep = [deep]
            return ToolResult.of_text("deep", details=deep)
        return None if gives == "nothing" else "text"  # type: ignore[return-value]

    plays = [says("", ("c1", "odd", "{}")), says("done")]
    async with open_stage(plays, OwnTool("odd", work)) as stage:
        reply = await stage.play()
        assert text_of(reply.content) == "done"
        assert [one.is_error for one in stage.results] == [True]
