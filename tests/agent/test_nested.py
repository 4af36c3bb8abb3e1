"""Tools that call tools: the same way as a call of the model, and over before their caller is."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.agent.calls import ABANDON_AFTER, UPDATE_INTERVAL
from knightcode.agent.hooks import Blocked, FinishedCall, PendingCall
from knightcode.agent.tools.base import ToolContext, ToolError, ToolResult
from knightcode.events import SessionEvent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate
from knightcode.messages import Cost, Usage, text_of
from tests.agent.stage import OwnTool, Play, Stage, open_stage, says

PATIENCE = 10

Work = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]

ONE_CALL: list[Play] = [says("", ("a", "outer", "{}")), says("end")]


async def done(_: dict[str, Any], __: ToolContext) -> ToolResult:
    await trio.lowlevel.checkpoint()
    return ToolResult.of_text("done")


async def forever(_: dict[str, Any], __: ToolContext) -> ToolResult:
    await trio.sleep_forever()
    raise AssertionError


def calling(name: str, arguments: dict[str, Any] | None = None) -> Work:
    """A tool whose result is that of one call which it makes."""

    async def work(_: dict[str, Any], context: ToolContext) -> ToolResult:
        return await context.call(name, arguments or {})

    return work


def nested(events: list[SessionEvent]) -> list[tuple[str, str, str | None, str | None]]:
    """Of all events of calls: what, the call, its parent, and what came of it."""
    told: list[tuple[str, str, str | None, str | None]] = []
    for one in events:
        if isinstance(one, ToolExecutionStart):
            told.append(("start", one.tool_call_id, one.parent_tool_call_id, None))
        elif isinstance(one, ToolExecutionUpdate):
            text = text_of(one.partial_result.content)
            told.append(("update", one.tool_call_id, one.parent_tool_call_id, text))
        elif isinstance(one, ToolExecutionEnd):
            text = ("! " if one.is_error else "") + text_of(one.result.content)
            told.append(("end", one.tool_call_id, one.parent_tool_call_id, text))
    return told


async def play(stage: Stage) -> None:
    with trio.fail_after(PATIENCE):
        await stage.play()


async def test_a_nested_call_goes_the_way_of_a_models_call_and_is_not_stored() -> None:
    """Extensions: Nested calls."""
    judged: list[tuple[str, dict[str, Any]]] = []
    given_to_tool: list[dict[str, Any]] = []

    async def add(arguments: dict[str, Any], _: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        given_to_tool.append(arguments)
        return ToolResult.of_text("sum")

    async def judge(call: PendingCall | Blocked) -> PendingCall | None:
        await trio.lowlevel.checkpoint()
        assert isinstance(call, PendingCall)
        judged.append((call.call_id, dict(call.arguments)))
        return attrs.evolve(call, arguments={"n": 6}) if call.call_id == "a/1" else None

    async def louder(call: FinishedCall) -> FinishedCall:
        await trio.lowlevel.checkpoint()
        return attrs.evolve(call, result=ToolResult.of_text(text_of(list(call.result.content)).upper()))

    adder = OwnTool("add", add)
    adder.parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with open_stage(ONE_CALL, OwnTool("outer", calling("add", {"n": "5"})), adder) as stage:
        stage.hooks.tool_call.add(judge)
        stage.hooks.tool_result.add(louder)
        await play(stage)
    assert judged == [("a", {}), ("a/1", {"n": 5})]
    assert given_to_tool == [{"n": 6}]
    assert nested(stage.events) == [
        ("start", "a", None, None),
        ("start", "a/1", "a", None),
        ("end", "a/1", "a", "SUM"),
        ("end", "a", None, "SUM"),
    ]
    starts = [one.args for one in stage.events if isinstance(one, ToolExecutionStart)]
    assert starts == [{}, {"n": "5"}]
    assert [one.tool_call_id for one in stage.results] == ["a"]
    assert len(stage.models.asked[1].messages) == 3


async def test_calls_are_numbered_for_each_caller_at_any_depth() -> None:
    """App Server notes: Item ids."""

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        await context.call("middle", {})
        return await context.call("middle", {})

    tools = OwnTool("outer", outer), OwnTool("middle", calling("inner")), OwnTool("inner", done)
    async with open_stage(ONE_CALL, *tools) as stage:
        await play(stage)
    assert [(call, parent) for what, call, parent, _ in nested(stage.events) if what == "start"] == [
        ("a", None),
        ("a/1", "a"),
        ("a/1/1", "a/1"),
        ("a/2", "a"),
        ("a/2/1", "a/2"),
    ]


async def test_a_nested_call_that_cannot_run_gives_its_caller_an_error_result() -> None:
    """Extensions: Nested calls; failures of tools are not raised."""
    outcomes: dict[str, ToolResult] = {}

    async def fails(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        raise ToolError("no luck", details={"why": 1})

    async def block(call: PendingCall | Blocked) -> Blocked | None:
        await trio.lowlevel.checkpoint()
        assert isinstance(call, PendingCall)
        if call.tool.name == "crashed":
            raise LookupError("the check broke")
        return Blocked("not this one") if call.tool.name == "blocked" else None

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        for name in ("missing", "strict", "fails", "blocked", "crashed", "odd"):
            outcomes[name] = await context.call(name, {})
        return ToolResult.of_text("all tried")

    class Odd(OwnTool):
        def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
            raise KeyError("prepare")

    strict = OwnTool("strict", done)
    strict.parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [OwnTool(name, forever) for name in ("blocked", "crashed")]
    tools += [OwnTool("outer", outer), strict, OwnTool("fails", fails), Odd("odd", forever)]
    async with open_stage(ONE_CALL, *tools) as stage:
        stage.hooks.tool_call.add(block)
        await play(stage)
    assert all(one.is_error for one in outcomes.values())
    assert "n" in text_of(list(outcomes.pop("strict").content))
    assert {name: (text_of(list(one.content)), one.details) for name, one in outcomes.items()} == {
        "missing": ("Tool missing not found", {}),
        "fails": ("no luck", {"why": 1}),
        "blocked": ("not this one", {"blocked": True}),
        "crashed": ("the check broke", {"blocked": True}),
        "odd": ("'prepare'", {}),
    }
    assert [call for what, call, _, _ in nested(stage.events) if what == "end"] == [
        "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [{"x": object()}, ["x"], None], ids=["no JSON", "a list", "nothing"])
async def test_arguments_that_are_no_json_object_are_refused_before_anything_is_shown(arguments: Any) -> None:
    """Extensions: Nested calls."""

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        with pytest.raises(TypeError):
            await context.call("inner", arguments)
        return ToolResult.of_text("refused")

    async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("inner", forever)) as stage:
        await play(stage)
    assert nested(stage.events) == [("start", "a", None, None), ("end", "a", None, "refused")]


async def test_a_nested_call_has_its_arguments_for_itself() -> None:
    """What a client was shown must not change afterwards."""
    shared: dict[str, Any] = {"list": [1], "text": "lone \ud800"}

    async def spoil(arguments: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        arguments["list"].append(2)
        return ToolResult.of_text("spoilt")

    async with open_stage(
        ONE_CALL, OwnTool("outer", calling("spoil", shared)), OwnTool("spoil", spoil)
    ) as stage:
        await play(stage)
    assert shared["list"] == [1]
    shown = [one.args for one in stage.events if isinstance(one, ToolExecutionStart)]
    assert shown[1]["text"] == "lone \ufffd"


async def test_nested_calls_of_one_caller_run_side_by_side_and_wait_for_their_gates_together() -> None:
    """App Server notes: The gate, several at once."""
    waiting: list[str] = []
    go_on = trio.Event()

    async def gate(call: PendingCall | Blocked) -> None:
        assert isinstance(call, PendingCall)
        if call.call_id != "a":
            waiting.append(call.call_id)
            await go_on.wait()

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(context.call, "inner", {})
            nursery.start_soon(context.call, "inner", {})
        return ToolResult.of_text("both")

    async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("inner", done)) as stage:
        stage.hooks.tool_call.add(gate)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                assert sorted(waiting) == ["a/1", "a/2"]
                assert [what for what, *_ in nested(stage.events)] == ["start"] * 3
                go_on.set()
    told = nested(stage.events)
    assert sorted(told[3:5]) == [("end", "a/1", "a", "done"), ("end", "a/2", "a", "done")]
    assert told[5:] == [("end", "a", None, "both")]


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.rule("S25")
async def test_an_interrupt_cancels_nested_calls_with_their_caller_and_they_end_first() -> None:
    """App Server notes: Interrupts."""

    async def half(_: dict[str, Any], context: ToolContext) -> ToolResult:
        context.aborted = lambda: ToolResult.of_text("half of it", is_error=True)
        return await forever(_, context)

    async def middle(_: dict[str, Any], context: ToolContext) -> ToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(context.call, "half", {})
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    tools = OwnTool("outer", calling("middle")), OwnTool("middle", middle), OwnTool("half", half)
    async with open_stage(ONE_CALL, *tools) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                stage.interrupt.throw("test")
    assert nested(stage.events)[3:] == [
        ("end", "a/1/1", "a/1", "! half of it"),
        ("end", "a/1", "a", "! Operation aborted"),
        ("end", "a", None, "! Operation aborted"),
    ]
    assert stage.outcomes() == {"a": (True, "Operation aborted")}


@pytest.mark.rule("S15", "S25")
async def test_a_deaf_nested_call_ends_first_when_its_caller_is_abandoned_and_shows_nothing_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """App Server notes: Interrupts; what an abandoned call does later appears nowhere."""
    released = trio.Event()
    contexts: list[ToolContext] = []
    late: list[ToolResult] = []

    async def deaf(_: dict[str, Any], context: ToolContext) -> ToolResult:
        contexts.append(context)
        with trio.CancelScope(shield=True):
            await released.wait()
            context.update(ToolResult.of_text("late"))
            late.append(await context.call("inner", {}))
        return ToolResult.of_text("too late")

    tools = OwnTool("outer", calling("deaf")), OwnTool("deaf", deaf), OwnTool("inner", forever)
    async with open_stage(ONE_CALL, *tools) as stage:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.play)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            stage.interrupt.throw("test")
        assert trio.current_time() - began == ABANDON_AFTER
        before = list(stage.events)
        released.set()
        await trio.testing.wait_all_tasks_blocked()
        assert stage.events == before
        assert len(stage.results) == 1
    (first, second) = nested(before)[2:]
    assert first == ("end", "a/1", "a", "! Operation aborted")
    assert second[1] == "a" and (second[3] or "").startswith("! Operation aborted: outer did not stop")
    assert [text_of(list(one.content)) for one in late] == ["Operation aborted"]


async def test_calls_that_still_run_when_their_caller_returns_are_cancelled_and_end_first() -> None:
    """Extensions: Nested calls; they can outlive the tool only in a task of somebody else."""
    results: list[ToolResult] = []
    cleaned_up: list[str] = []

    async def slow(_: dict[str, Any], __: ToolContext) -> ToolResult:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.lowlevel.checkpoint()
                cleaned_up.append("slow")
        raise AssertionError

    async def call_slow(context: ToolContext) -> None:
        results.append(await context.call("slow", {}))

    async with trio.open_nursery() as elsewhere:

        async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
            elsewhere.start_soon(call_slow, context)
            await trio.testing.wait_all_tasks_blocked()
            return ToolResult.of_text("returned")

        async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("slow", slow)) as stage:
            await play(stage)
    assert nested(stage.events)[2:] == [
        ("end", "a/1", "a", "! Operation aborted"),
        ("end", "a", None, "returned"),
    ]
    assert cleaned_up == ["slow"]
    assert [one.is_error for one in results] == [True]


async def test_a_deaf_call_keeps_its_returned_caller_for_five_seconds_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Architecture: cleanup has a deadline."""
    released = trio.Event()

    async def deaf(_: dict[str, Any], context: ToolContext) -> ToolResult:
        with trio.CancelScope(shield=True):
            await released.wait()
        context.update(ToolResult.of_text("late"))
        return ToolResult.of_text("too late")

    async with trio.open_nursery() as elsewhere:

        async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
            elsewhere.start_soon(context.call, "deaf", {})
            await trio.testing.wait_all_tasks_blocked()
            return ToolResult.of_text("returned")

        async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("deaf", deaf)) as stage:
            began = trio.current_time()
            await stage.play()
            took = trio.current_time() - began
            released.set()
            await trio.testing.wait_all_tasks_blocked()
    assert took == ABANDON_AFTER
    assert nested(stage.events)[2:] == [
        ("end", "a/1", "a", "! Operation aborted"),
        ("end", "a", None, "returned"),
    ]


async def test_a_call_after_its_caller_has_ended_neither_runs_nor_shows() -> None:
    """Extensions: Nested calls."""
    kept: list[ToolContext] = []

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        kept.append(context)
        return ToolResult.of_text("returned")

    async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("inner", forever)) as stage:
        await play(stage)
        before = list(stage.events)
        with trio.fail_after(PATIENCE):
            late = await kept[0].call("inner", {})
    assert (late.is_error, text_of(list(late.content))) == (True, "Operation aborted")
    assert stage.events == before


async def test_while_the_hooks_look_at_a_result_its_call_neither_grows_nor_calls() -> None:
    """Extensions: Tools; updates after the tool returned are dropped."""
    kept: list[ToolContext] = []

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        kept.append(context)
        return ToolResult.of_text("returned")

    async def look(_: FinishedCall) -> None:
        kept[0].update(ToolResult.of_text("late"))
        await kept[0].call("inner", {})

    async with open_stage(ONE_CALL, OwnTool("outer", outer), OwnTool("inner", forever)) as stage:
        stage.hooks.tool_result.add(look)
        await play(stage)
    assert nested(stage.events) == [("start", "a", None, None), ("end", "a", None, "returned")]


async def test_a_caller_may_give_up_a_nested_call_and_go_on(autojump_clock: trio.testing.MockClock) -> None:
    """Extensions: Nested calls; cancellation passes through them as through any await."""

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        with trio.move_on_after(3) as patience:
            await context.call("slow", {})
        second = await context.call("quick", {})
        return ToolResult.of_text(f"{patience.cancelled_caught} {text_of(list(second.content))}")

    tools = OwnTool("outer", outer), OwnTool("slow", forever), OwnTool("quick", done)
    async with open_stage(ONE_CALL, *tools) as stage:
        await stage.play()
    assert nested(stage.events)[1:] == [
        ("start", "a/1", "a", None),
        ("end", "a/1", "a", "! Operation aborted"),
        ("start", "a/2", "a", None),
        ("end", "a/2", "a", "done"),
        ("end", "a", None, "True done"),
    ]


async def test_a_nested_call_whose_gate_lets_it_pass_too_late_does_not_run() -> None:
    """App Server notes: Interrupts; prepared but unstarted calls get an error result."""
    asked, passes = trio.Event(), trio.Event()

    async def gate(call: PendingCall | Blocked) -> None:
        assert isinstance(call, PendingCall)
        if call.call_id == "a/1":
            asked.set()
            with trio.CancelScope(shield=True):
                await passes.wait()

    ran: list[str] = []

    async def inner(_: dict[str, Any], __: ToolContext) -> ToolResult:
        ran.append("inner")
        return await done(_, __)

    async with open_stage(ONE_CALL, OwnTool("outer", calling("inner")), OwnTool("inner", inner)) as stage:
        stage.hooks.tool_call.add(gate)
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await asked.wait()
                stage.interrupt.throw("test")
                await trio.testing.wait_all_tasks_blocked()
                passes.set()
    assert ran == []
    assert nested(stage.events)[2:] == [
        ("end", "a/1", "a", "! Operation aborted"),
        ("end", "a", None, "! Operation aborted"),
    ]


async def test_when_the_process_ends_every_nested_call_still_ends_before_its_caller() -> None:
    """Architecture: The cancellation model; the nursery of the calls is cancelled last of all."""
    async with open_stage(ONE_CALL, OwnTool("outer", calling("slow")), OwnTool("slow", forever)) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                stage.run.calls.cancel_scope.cancel()
    assert [call for what, call, _, _ in nested(stage.events) if what == "end"] == ["a/1", "a"]


async def test_a_tool_that_cannot_say_what_its_abortion_left_harms_nobody() -> None:
    """Agent loop: Tool calls."""

    def broken() -> ToolResult:
        raise LookupError

    async def work(_: dict[str, Any], context: ToolContext) -> ToolResult:
        context.aborted = broken
        return await forever(_, context)

    async with open_stage(ONE_CALL, OwnTool("outer", calling("slow")), OwnTool("slow", work)) as stage:
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stage.play)
                await trio.testing.wait_all_tasks_blocked()
                stage.interrupt.throw("test")
    assert nested(stage.events)[2:] == [
        ("end", "a/1", "a", "! Operation aborted"),
        ("end", "a", None, "! Operation aborted"),
    ]


async def test_a_tool_that_calls_itself_without_end_gets_an_error() -> None:
    """Extensions: Nested calls; any depth, but nothing takes the process with it."""
    async with open_stage(ONE_CALL, OwnTool("outer", calling("outer"))) as stage:
        await play(stage)
    starts = [call for what, call, _, _ in nested(stage.events) if what == "start"]
    ends = [call for what, call, _, _ in nested(stage.events) if what == "end"]
    assert ends == starts[::-1]
    assert stage.outcomes()["a"][0]


# --- what is reported ---------------------------------------------------------------------------


async def test_updates_of_a_nested_call_name_its_parent_keep_their_pace_and_stop_at_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """App Server notes: Session events to notifications; at most one update in 100 ms and call."""

    async def chatty(_: dict[str, Any], context: ToolContext) -> ToolResult:
        for count in range(1, 8):
            context.update(ToolResult.of_text("x" * count))
            await trio.sleep(0.3 * UPDATE_INTERVAL)
        context.update(ToolResult.of_text("too near the end"))
        return ToolResult.of_text("quiet")

    async with open_stage(ONE_CALL, OwnTool("outer", calling("chatty")), OwnTool("chatty", chatty)) as stage:
        await stage.play()
        await trio.sleep(1)
    assert nested(stage.events) == [
        ("start", "a", None, None),
        ("start", "a/1", "a", None),
        ("update", "a/1", "a", "x"),
        ("update", "a/1", "a", "xxxx"),
        ("update", "a/1", "a", "xxxxxxx"),
        ("end", "a/1", "a", "quiet"),
        ("end", "a", None, "quiet"),
    ]


async def test_what_nested_calls_cost_is_added_to_the_result_of_the_outermost() -> None:
    """Extensions: Nested calls."""
    spent = Usage(
        input=1, output=2, cache_read=3, cache_write=4, total_tokens=10, cost=Cost(input=0.5, total=0.5)
    )

    async def inner(_: dict[str, Any], __: ToolContext) -> ToolResult:
        await trio.lowlevel.checkpoint()
        return ToolResult(usage=spent)

    async def middle(_: dict[str, Any], context: ToolContext) -> ToolResult:
        await context.call("inner", {})
        await context.call("inner", {})
        return ToolResult(usage=spent)

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        await context.call("middle", {})
        return ToolResult()

    tools = OwnTool("outer", outer), OwnTool("middle", middle), OwnTool("inner", inner)
    async with open_stage(ONE_CALL, *tools) as stage:
        await play(stage)
    assert [one.usage for one in stage.results] == [
        Usage(
            input=3, output=6, cache_read=9, cache_write=12, total_tokens=30, cost=Cost(input=1.5, total=1.5)
        )
    ]


async def test_nested_calls_of_sequential_tools_run_one_after_the_other() -> None:
    """Extensions: Nested calls; two callers share the queue, and who has his turn calls on freely."""
    running: list[str] = []
    most = 0

    async def once(_: dict[str, Any], context: ToolContext) -> ToolResult:
        nonlocal most
        running.append("x")
        most = max(most, len(running))
        await context.call("deeper", {})
        running.pop()
        return ToolResult.of_text("done")

    async def outer(_: dict[str, Any], context: ToolContext) -> ToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(context.call, "once", {})
            nursery.start_soon(context.call, "once", {})
        return ToolResult.of_text("both")

    plays = [says("", ("a", "outer", "{}"), ("b", "outer", "{}")), says("end")]
    tools = (
        OwnTool("outer", outer),
        OwnTool("once", once, sequential=True),
        OwnTool("deeper", done, sequential=True),
    )
    async with open_stage(plays, *tools) as stage:
        await play(stage)
    assert most == 1
    assert len([what for what, *_ in nested(stage.events) if what == "end"]) == 10


# --- any tree, any moment -----------------------------------------------------------------------

TREES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.builds(dict, steps=st.integers(0, 2)),
    lambda below: st.builds(
        dict, steps=st.integers(0, 2), parallel=st.booleans(), children=st.lists(below, max_size=3)
    ),
    max_leaves=6,
)


async def node(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """A node of a tree of calls: some steps, then the calls below it."""
    for _ in range(arguments["steps"]):
        await trio.lowlevel.checkpoint()
        context.update(ToolResult.of_text("x"))
    if arguments.get("parallel"):
        async with trio.open_nursery() as nursery:
            for below in arguments["children"]:
                nursery.start_soon(context.call, "node", below)
    else:
        for below in arguments.get("children", ()):
            await context.call("node", below)
    await trio.lowlevel.checkpoint()
    return ToolResult.of_text("done")


class _ThrowAt(trio.abc.Instrument):
    """Interrupts the stage at the n-th step of the scheduler."""

    def __init__(self, stage: Stage, at: int) -> None:
        self.stage, self.left = stage, at

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.stage.interrupt.throw("test")


@settings(max_examples=60, deadline=None)
@given(tree=TREES, at=st.integers(1, 80))
@pytest.mark.rule("S25")
def test_whenever_the_interrupt_comes_every_call_ends_once_after_all_of_its_own(
    tree: dict[str, Any], at: int
) -> None:
    """App Server notes: Interrupts."""

    async def run() -> list[SessionEvent]:
        plays = [says("", ("a", "outer", "{}")), says("end")]
        async with open_stage(plays, OwnTool("outer", calling("node", tree)), OwnTool("node", node)) as stage:
            thrower = _ThrowAt(stage, at)
            trio.lowlevel.add_instrument(thrower)
            try:
                await play(stage)
            finally:
                trio.lowlevel.remove_instrument(thrower)
            await trio.testing.wait_all_tasks_blocked()
        return stage.events

    open_calls: list[str] = []
    ended: set[str] = set()
    for what, call, parent, _ in nested(trio.run(run)):
        assert call not in ended
        assert parent is None or parent in open_calls
        if what == "start":
            open_calls.append(call)
        elif what == "end":
            open_calls.remove(call)
            ended.add(call)
            assert not [other for other in open_calls if other.startswith(f"{call}/")]
    assert open_calls == []
