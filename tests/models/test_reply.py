"""A reply while it is being made, thinking levels and prices."""

import pytest

from knightcode.events import TextDelta, TextEnd, TextStart, ToolCallDelta, ToolCallEnd, ToolCallStart
from knightcode.messages import Cost, TextBlock, ThinkingLevel, ToolCallBlock
from knightcode.models.model import CostTier, Prices
from tests.models.asking import Asked, make_model


def test_events_come_once_and_in_order() -> None:
    asked = Asked(make_model())
    reply = asked.reply
    text = reply.open_text()
    reply.delta(text, "a")
    reply.delta(text, "")
    call = reply.open_tool_call("c", "ls")
    reply.delta(call, "{}")
    reply.close(text)
    reply.close(text)
    reply.done("toolUse")
    assert asked.events == [
        TextStart(content_index=0),
        TextDelta(content_index=0, delta="a"),
        ToolCallStart(content_index=1, id="c", tool_name="ls"),
        ToolCallDelta(content_index=1, delta="{}"),
        TextEnd(content_index=0, content="a"),
        ToolCallEnd(content_index=1, tool_call=ToolCallBlock(id="c", name="ls", arguments={})),
    ]
    assert asked.starts == 1


def test_nothing_changes_a_reply_that_is_finished() -> None:
    asked = Asked(make_model())
    asked.reply.open_text()
    asked.reply.fail("500 oops")
    message, events = asked.message, list(asked.events)
    late = asked.reply.open_text()
    asked.reply.delta(late, "late")
    asked.reply.close(late)
    asked.reply.done("stop")
    asked.reply.abort()
    assert (asked.message, asked.events) == (message, events)


def test_a_failed_reply_leaves_out_calls_that_never_ended() -> None:
    asked = Asked(make_model())
    reply = asked.reply
    whole = reply.open_tool_call("a", "ls")
    reply.close(whole)
    reply.delta(reply.open_text(), "So")
    reply.delta(reply.open_tool_call("b", "ls"), '{"p')
    reply.abort()
    assert asked.message.content == [ToolCallBlock(id="a", name="ls", arguments={}), TextBlock(text="So")]


def test_a_reply_that_was_never_started_is_started_by_its_end() -> None:
    asked = Asked(make_model())
    assert asked.message.stop_reason == "pending"
    asked.reply.done("stop")
    assert (asked.starts, asked.outcome, asked.message.duration_ms) == (1, ("stop", None), 0)


def test_only_a_reply_that_failed_tells_a_wait() -> None:
    asked = Asked(make_model())
    waits = [asked.reply.retry_after_ms]
    asked.reply.fail("429", retry_after_ms=5000)
    asked.reply.fail("500", retry_after_ms=1)
    waits.append(asked.reply.retry_after_ms)
    assert (asked.outcome, waits) == (("error", "429"), [None, 5000])


@pytest.mark.parametrize(
    ("wanted", "levels", "got"),
    [
        ("medium", {}, "medium"),
        ("xhigh", {}, "high"),
        ("max", {"xhigh": "x"}, "xhigh"),
        ("off", {"off": None}, "minimal"),
        ("low", {"low": None, "medium": None}, "high"),
        ("high", {"high": None}, "medium"),
    ],
)
def test_a_level_is_clamped_upwards_first(
    wanted: ThinkingLevel, levels: dict[ThinkingLevel, str | None], got: ThinkingLevel
) -> None:
    """Models and providers, "Thinking levels"."""
    assert make_model(reasoning=True, thinking_level_map=levels).clamp(wanted) == got


def test_a_model_that_does_not_reason_has_one_level() -> None:
    assert make_model().thinking_levels() == ("off",)
    assert make_model().clamp("high") == "off"


def test_the_highest_tier_that_the_prompt_exceeds_prices_the_whole_request() -> None:
    tiers = (CostTier(200, input=3.0, output=4.0), CostTier(100, input=2.0, output=2.0))
    prices = Prices(input=1, output=1, cache_write=1, tiers=tiers)
    million = 1_000_000

    def cost(prompt: int) -> float:
        return prices.cost_of(input=prompt, output=0, cache_read=0, cache_write=0).input * million

    assert [cost(100), cost(101), cost(201)] == pytest.approx([100, 202, 603])


def test_one_hour_writes_cost_twice_the_input_rate() -> None:
    prices = Prices(input=1, cache_write=1.25)
    cost = prices.cost_of(input=0, output=0, cache_read=0, cache_write=3_000_000, cache_write_1h=1_000_000)
    assert cost == Cost(cache_write=4.5, total=4.5)
