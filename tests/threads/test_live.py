"""The running turn: what its subscribers are told, and that all of it reads back the same."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.events import (
    AutoRetryEnd,
    AutoRetryStart,
    CompactionEnd,
    CompactionResult,
    CompactionStart,
    MessageUpdate,
    PartialResult,
    ReplyEvent,
    TextDelta,
    TextStart,
    ThinkingStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    InputBlock,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from knightcode.sessions.entries import CompactionEntry
from knightcode.sessions.log import SessionLog
from knightcode.sessions.turns import stored_turns
from knightcode.threads.items import (
    AgentItem,
    AnyItem,
    CallItem,
    CompactionItem,
    Turn,
    UserItem,
    stored_turn,
)
from knightcode.threads.live import DELTA_LIMIT, LiveTurn, split_delta
from knightcode.threads.notices import (
    ItemCompleted,
    ItemRemoved,
    ItemStarted,
    Notice,
    OutputDelta,
    RetryEnded,
    RetryWaiting,
)

NOW = 1_700_000_000_000


@attrs.define(eq=False)
class Scene:
    """A turn that runs in a session in memory; `told` is what its subscribers hear."""

    log: SessionLog = attrs.field(
        factory=lambda: SessionLog.create(cwd="/w", folder=None, now_ms=lambda: NOW), init=False
    )
    told: list[Notice] = attrs.field(factory=list, init=False)
    live: LiveTurn = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        marker = self.log.append_turn_start()
        self.live = LiveTurn(
            id=marker.id,
            thread_id="T",
            cwd="/w",
            started_at_ms=NOW,
            publish=self.told.append,
            now_ms=lambda: NOW,
        )

    def says(self, text: str) -> None:
        self.live.input_stored(self.log.append_message(UserMessage(timestamp=NOW, content=text)))

    def grows(self, *events: ReplyEvent) -> None:
        self.live.reply_started()
        for event in events:
            self.live.reply_grew(MessageUpdate(usage=Usage(), assistant_message_event=event))

    def replies(self, *content: ReplyBlock) -> None:
        message = AssistantMessage(timestamp=NOW, content=list(content), duration_ms=5)
        self.log.append_message(message)
        self.live.reply_stored(message)

    def call(self, name: str, parent: str | None = None, **arguments: Any) -> None:
        start = ToolExecutionStart(
            tool_call_id=name, tool_name="t", args=arguments, parent_tool_call_id=parent
        )
        self.live.call_started(start)

    def output(self, name: str, *content: InputBlock) -> None:
        update = ToolExecutionUpdate(
            tool_call_id=name, tool_name="t", args={}, partial_result=PartialResult(content=list(content))
        )
        self.live.call_grew(update)

    def result(self, name: str, text: str = "done") -> None:
        message = ToolResultMessage(
            timestamp=NOW, tool_call_id=name, tool_name="t", content=[TextBlock(text=text)], duration_ms=0
        )
        self.log.append_message(message)
        self.live.call_ended(message)

    def nested_result(self, name: str, parent: str, *, details: Any = None, is_error: bool = False) -> None:
        end = ToolExecutionEnd(
            tool_call_id=name,
            tool_name="t",
            result=PartialResult(content=[TextBlock(text="n")], details=details),
            is_error=is_error,
            parent_tool_call_id=parent,
        )
        self.live.nested_ended(end)

    def compacts(self, summary: str, reason: Any = "threshold") -> None:
        self.live.compaction_started(CompactionStart(reason=reason))
        entry = self.log.append_entry(CompactionEntry(summary=summary, tokens_before=900))
        done = CompactionResult(
            summary=summary, first_kept_entry_id="k", tokens_before=900, estimated_tokens_after=90
        )
        self.live.compaction_ended(CompactionEnd(reason=reason, result=done), entry)

    def since(self, mark: int) -> list[Notice]:
        return self.told[mark:]

    def read_back(self) -> tuple[AnyItem, ...]:
        (turn,) = stored_turns(self.log.branch())
        return stored_turn(turn, "T", "/w").items

    def shown(self) -> list[AnyItem]:
        """Every item as it was completed last, in the order of the indices."""
        final = {one.item.id: one.item for one in self.told if isinstance(one, ItemCompleted)}
        for one in self.told:
            if isinstance(one, ItemRemoved):
                final.pop(one.item_id, None)
        return sorted(final.values(), key=lambda item: -1 if item.index is None else item.index)


def ids(items: Sequence[AnyItem]) -> list[str]:
    return [item.id for item in items]


def snapshot(scene: Scene) -> Turn:
    return scene.live.snapshot()


# --- compaction ---------------------------------------------------------------------------------


def test_a_compaction_is_an_item_that_runs_and_then_holds_its_summary() -> None:
    """App Server notes: Session events to notifications; only the completion has a time."""
    scene = Scene()
    scene.says("go")
    mark = len(scene.told)
    scene.compacts("so far")
    turn = scene.live.id
    running = CompactionItem(
        id=f"{turn}:1:c", index=1, summary="", reason="threshold", status="running", started_at_ms=NOW
    )
    completed = CompactionItem(
        id=f"{turn}:1:c",
        index=1,
        summary="so far",
        reason="threshold",
        status="completed",
        tokens_before=900,
        tokens_after=90,
        completed_at_ms=NOW,
    )
    assert scene.since(mark) == [ItemStarted("T", turn, running), ItemCompleted("T", turn, completed)]
    read = scene.read_back()[1]
    assert isinstance(read, CompactionItem)
    assert (read.id, read.index, read.summary, read.tokens_before) == (f"{turn}:1:c", 1, "so far", 900)


@pytest.mark.parametrize(
    ("end", "status", "error"),
    [
        (CompactionEnd(reason="threshold", aborted=True), "cancelled", None),
        (CompactionEnd(reason="threshold", error_message="no model"), "failed", "no model"),
        (CompactionEnd(reason="threshold"), "failed", None),
    ],
)
def test_a_compaction_without_an_entry_says_why_and_takes_no_id_of_what_comes_next(
    end: CompactionEnd, status: Any, error: str | None
) -> None:
    """App Server notes: Item ids; it is shown now, and nothing of it reads back."""
    scene = Scene()
    mark = len(scene.told)
    scene.live.compaction_started(CompactionStart(reason="threshold"))
    scene.live.compaction_ended(end, None)
    turn = scene.live.id
    ended = CompactionItem(
        id=f"{turn}:0:c",
        index=0,
        summary="",
        reason="threshold",
        status=status,
        error=error,
        completed_at_ms=NOW,
    )
    assert scene.since(mark)[1:] == [ItemCompleted("T", turn, ended)]
    scene.says("go")
    scene.compacts("at last")
    scene.replies(TextBlock(text="hi"))
    shown = ids(scene.shown())
    assert shown == [f"{turn}:0:c", f"{turn}:0", f"{turn}:1:c", f"{turn}:2:t0"]
    assert ids(scene.read_back()) == shown[1:]


def test_an_end_without_a_start_is_a_failed_item() -> None:
    """App Server notes: Session events to notifications."""
    scene = Scene()
    scene.live.compaction_ended(CompactionEnd(reason="overflow", error_message="too long"), None)
    failed = CompactionItem(
        id=f"{scene.live.id}:0:c",
        index=0,
        summary="",
        reason="overflow",
        status="failed",
        error="too long",
        completed_at_ms=NOW,
    )
    assert scene.told == [ItemCompleted("T", scene.live.id, failed)]


def test_a_retry_tells_how_long_it_waits_and_how_the_chain_ended() -> None:
    """App Server notes: Steering, queue, interrupt."""
    scene = Scene()
    scene.live.retry(AutoRetryStart(attempt=1, max_attempts=3, delay_ms=2000, error_message="busy"))
    scene.live.retry(AutoRetryEnd(success=True, attempt=1))
    scene.live.retry(AutoRetryEnd(success=False, attempt=3, final_error="still busy"))
    turn = scene.live.id
    assert scene.told == [
        RetryWaiting("T", turn, 1, 3, 2000, "busy"),
        RetryEnded("T", turn, 1, True, None),
        RetryEnded("T", turn, 3, False, "still busy"),
    ]


# --- nested calls -------------------------------------------------------------------------------


def test_a_nested_call_is_an_item_with_a_parent_and_without_a_place() -> None:
    """App Server notes: Item; it comes in no history."""
    scene = Scene()
    scene.replies(ToolCallBlock(id="a", name="t", arguments={}))
    scene.call("a")
    mark = len(scene.told)
    scene.call("a/1", "a", x=1)
    scene.output("a/1", TextBlock(text="some"))
    scene.nested_result("a/1", "a")
    scene.result("a")
    turn = scene.live.id
    running = CallItem(id="a/1", parent_id="a", tool="t", input={"x": 1}, status="running", started_at_ms=NOW)
    ended = attrs.evolve(
        running, status="completed", output=(TextBlock(text="n"),), completed_at_ms=NOW, started_at_ms=NOW
    )
    assert scene.since(mark)[:3] == [
        ItemStarted("T", turn, running),
        OutputDelta("T", turn, "a/1", "some"),
        ItemCompleted("T", turn, ended),
    ]
    assert ids(scene.read_back()) == ["a"]


@pytest.mark.parametrize(
    ("details", "is_error", "status"),
    [(None, False, "completed"), ({}, True, "failed"), ({"blocked": True}, True, "declined")],
)
def test_the_status_of_a_nested_call_is_told_by_its_own_end(
    details: Any, is_error: bool, status: str
) -> None:
    """App Server notes: Item, `declined`."""
    scene = Scene()
    scene.replies(ToolCallBlock(id="a", name="t", arguments={}))
    scene.call("a")
    scene.call("a/1", "a")
    scene.nested_result("a/1", "a", details=details, is_error=is_error)
    last = scene.told[-1]
    assert isinstance(last, ItemCompleted) and isinstance(last.item, CallItem)
    assert last.item.status == status


def test_a_snapshot_shows_nested_calls_right_behind_the_call_they_belong_to() -> None:
    """App Server notes: Item; a client that comes late sorts by index and parent."""
    scene = Scene()
    scene.says("go")
    scene.replies(
        ToolCallBlock(id="a", name="t", arguments={}), ToolCallBlock(id="b", name="t", arguments={})
    )
    for name, parent in (("a", None), ("b", None), ("b/1", "b"), ("a/1", "a"), ("a/1/1", "a/1")):
        scene.call(name, parent)
    scene.says("steer")
    turn = scene.live.id
    assert ids(snapshot(scene).items) == [f"{turn}:0", "a", "a/1", "a/1/1", "b", "b/1", f"{turn}:2"]


def test_an_end_of_a_nested_call_that_is_not_open_tells_nothing() -> None:
    """An item ends once."""
    scene = Scene()
    scene.nested_result("a/1", "a")
    scene.output("a/1", TextBlock(text="late"))
    assert scene.told == []


def test_a_turn_that_breaks_off_ends_nested_items_before_their_callers() -> None:
    """App Server notes: Interrupts."""
    scene = Scene()
    scene.replies(
        ToolCallBlock(id="a", name="t", arguments={}), ToolCallBlock(id="b", name="t", arguments={})
    )
    for name, parent in (("a", None), ("a/1", "a"), ("a/1/1", "a/1")):
        scene.call(name, parent)
    mark = len(scene.told)
    scene.live.close()
    ended = [
        (one.item.id, one.item.status)
        for one in scene.since(mark)
        if isinstance(one, ItemCompleted) and isinstance(one.item, CallItem)
    ]
    assert ended == [("a/1/1", "failed"), ("a/1", "failed"), ("a", "failed"), ("b", "failed")]


# --- output -------------------------------------------------------------------------------------


def test_output_that_goes_on_is_told_as_what_was_added_and_other_output_replaces_it() -> None:
    """App Server notes: Session events to notifications, `outputDelta`."""
    scene = Scene()
    scene.replies(ToolCallBlock(id="a", name="t", arguments={}))
    scene.call("a")
    mark = len(scene.told)
    picture = ImageBlock(data="", mime_type="image/png")
    for text in ("one", "one two", "one two", "two", "two three"):
        scene.output("a", TextBlock(text=text), picture)
    scene.output("a")
    turn = scene.live.id
    assert scene.since(mark) == [
        OutputDelta("T", turn, "a", "one"),
        OutputDelta("T", turn, "a", " two"),
        OutputDelta("T", turn, "a", "two", replace=True),
        OutputDelta("T", turn, "a", " three"),
        OutputDelta("T", turn, "a", "", replace=True),
    ]


def test_output_longer_than_a_delta_may_be_comes_in_parts_of_which_the_first_alone_replaces() -> None:
    """App Server notes: Session events to notifications."""
    scene = Scene()
    scene.replies(ToolCallBlock(id="a", name="t", arguments={}))
    scene.call("a")
    scene.output("a", TextBlock(text="short"))
    mark = len(scene.told)
    long = "é" * DELTA_LIMIT
    scene.output("a", TextBlock(text=long))
    parts = [one for one in scene.since(mark) if isinstance(one, OutputDelta)]
    assert [one.replace for one in parts] == [True] + [False] * (len(parts) - 1)
    assert "".join(one.delta for one in parts) == long
    assert len(parts) > 1 and max(len(one.delta.encode()) for one in parts) <= DELTA_LIMIT


@given(st.text(), st.integers(4, 40))
def test_a_delta_is_cut_between_characters_and_nothing_of_it_is_lost(delta: str, limit: int) -> None:
    """App Server notes: Session events to notifications."""
    parts = split_delta(delta, limit)
    assert "".join(parts) == delta
    assert all(len(part.encode()) <= limit for part in parts)
    assert delta == "" or all(parts)


# --- replies ------------------------------------------------------------------------------------


def test_the_stored_reply_decides_text_times_and_places_and_what_it_lacks_is_removed() -> None:
    """App Server notes: Session events to notifications; Item ids."""
    scene = Scene()
    scene.grows(
        ThinkingStart(content_index=0),
        TextStart(content_index=1),
        TextDelta(content_index=1, delta="draft"),
        TextStart(content_index=2),
    )
    mark = len(scene.told)
    scene.replies(TextBlock(text="final"), ToolCallBlock(id="a", name="t", arguments={}))
    turn = scene.live.id
    final = AgentItem(id=f"{turn}:0:t0", index=0, text="final", started_at_ms=NOW, completed_at_ms=NOW + 5)
    assert scene.since(mark) == [
        ItemCompleted("T", turn, final),
        ItemRemoved("T", turn, f"{turn}:0:r0"),
        ItemRemoved("T", turn, f"{turn}:0:t1"),
    ]
    assert scene.read_back()[0] == final


def test_a_reply_that_breaks_off_unstored_takes_its_items_back() -> None:
    """Final messages decide: nothing was stored."""
    scene = Scene()
    scene.grows(TextStart(content_index=0), TextDelta(content_index=0, delta="never"))
    scene.live.close()
    assert scene.told[-1] == ItemRemoved("T", scene.live.id, f"{scene.live.id}:0:t0")
    assert snapshot(scene).items == ()


def test_a_snapshot_holds_the_whole_text_of_what_is_still_growing() -> None:
    """App Server: Subscriptions and replacement."""
    scene = Scene()
    scene.says("go")
    scene.grows(
        TextStart(content_index=0),
        TextDelta(content_index=0, delta="so "),
        TextDelta(content_index=0, delta="far"),
    )
    turn = scene.live.id
    assert snapshot(scene).items == (
        UserItem(id=f"{turn}:0", index=0, text="go", completed_at_ms=NOW),
        AgentItem(id=f"{turn}:1:t0", index=1, text="so far", started_at_ms=NOW),
    )
    assert snapshot(scene) == snapshot(scene)


BLOCKS: st.SearchStrategy[ReplyBlock] = st.one_of(
    st.builds(TextBlock, text=st.sampled_from(["", "text"])),
    st.builds(ThinkingBlock, thinking=st.sampled_from(["", "thought"]), redacted=st.booleans()),
)
STEPS = st.lists(
    st.one_of(
        st.just("user"),
        st.just("compacted"),
        st.just("not compacted"),
        st.lists(BLOCKS, max_size=4),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(STEPS)
def test_whatever_a_turn_does_its_items_read_back_with_the_ids_and_in_the_order_in_which_they_were_shown(
    steps: list[Any],
) -> None:
    """App Server notes: Durable turns and read-back."""
    scene = Scene()
    calls = 0
    for step in steps:
        if step == "user":
            scene.says("u")
        elif step == "compacted":
            scene.compacts("s")
        elif step == "not compacted":
            scene.live.compaction_started(CompactionStart(reason="threshold"))
            scene.live.compaction_ended(CompactionEnd(reason="threshold", aborted=True), None)
        elif isinstance(step, int):
            names = [f"c{calls + place}" for place in range(step)]
            calls += step
            scene.replies(*(ToolCallBlock(id=name, name="t", arguments={}) for name in names))
            for name in names:
                scene.call(name)
                scene.call(f"{name}/1", name)
                scene.nested_result(f"{name}/1", name)
            for name in reversed(names):
                scene.result(name)
        else:
            scene.grows(
                *(
                    ThinkingStart(content_index=place)
                    if isinstance(block, ThinkingBlock)
                    else TextStart(content_index=place)
                    for place, block in enumerate(step)
                )
            )
            scene.replies(*step)
    shown = [
        item
        for item in scene.shown()
        if item.parent_id is None and not (isinstance(item, CompactionItem) and item.status != "completed")
    ]
    read = scene.read_back()
    assert ids(shown) == ids(read)
    assert len(set(ids(scene.shown()))) == len(scene.shown())
    unplaced = [attrs.evolve(item, index=None) for item in shown if not isinstance(item, CompactionItem)]
    assert unplaced == [
        attrs.evolve(item, index=None) for item in read if not isinstance(item, CompactionItem)
    ]
