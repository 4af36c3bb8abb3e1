"""How large messages, usage records and contexts are taken to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knightcode.agent.compaction import context_tokens, message_tokens
from knightcode.agent.compaction.estimate import list_tokens
from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolDeclaration,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from knightcode.sessions.context import build_context
from knightcode.sessions.entries import BranchSummaryEntry, ContextEditEntry, Entry, LabelEntry
from tests.agent.compaction.pieces import bash, compacted, hide, replied, result, sized, user
from tests.sessions.samples import chain, said

IMAGE = ImageBlock(data="AAAA", mime_type="image/png")


def tokens_of(path: list[Entry]) -> int:
    return context_tokens(path, build_context(path))


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (UserMessage(timestamp=0, content=""), 0),
        (UserMessage(timestamp=0, content="x"), 1),
        (UserMessage(timestamp=0, content="xxxx"), 1),
        (UserMessage(timestamp=0, content="xxxxx"), 2),
        (UserMessage(timestamp=0, content="äöü日"), 1),
        (UserMessage(timestamp=0, content=[TextBlock(text="xx"), TextBlock(text="xx")]), 1),
        (UserMessage(timestamp=0, content=[IMAGE, TextBlock(text="x"), IMAGE]), 2401),
        (ToolResultMessage(timestamp=0, tool_call_id="long id", tool_name="read", content=[IMAGE]), 1200),
        (CustomMessage(timestamp=0, custom_type="note", content="xxxx", details={"not": "counted"}), 1),
        (AssistantMessage(timestamp=0), 0),
        (
            AssistantMessage(
                timestamp=0,
                content=[
                    ThinkingBlock(thinking="xx", thinking_signature="not counted"),
                    TextBlock(text="xx"),
                    ToolCallBlock(id="not counted", name="ls", arguments={"a": ["é", 1], "b": None}),
                ],
            ),
            7,  # 2 + 2 + 2 and the 22 of {"a":["é",1],"b":null}
        ),
        (SystemMessage(timestamp=0), 0),
        (SystemMessage(timestamp=0, content="xx", sections={"name": "xx", "gone": None}), 1),
        (SystemMessage(timestamp=0, content=[TextBlock(text="xx"), TextBlock(text="xx")]), 1),
        (SystemMessage(timestamp=0, tools_added=[ToolDeclaration(name="ls")]), 4),  # [{"name":"ls"}]
        (BashExecutionMessage(timestamp=0, command="ls", output="xx", full_output_path="/tmp/x"), 1),
        (BranchSummaryMessage(timestamp=0, summary="xxxx"), 1),
        (CompactionSummaryMessage(timestamp=0, summary="xxxx", tokens_before=9), 1),
    ],
)
def test_four_characters_are_a_token(message: Message, tokens: int) -> None:
    """Compaction: Estimate of one message."""
    assert message_tokens(message) == tokens


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=4))
def test_an_estimate_is_never_negative_and_never_fails(text: str, arguments: dict[str, str]) -> None:
    """Compaction: Estimate of one message."""
    call = ToolCallBlock(id="c", name=text, arguments=arguments)
    assert message_tokens(UserMessage(timestamp=0, content=text)) == (len(text) + 3) // 4
    assert message_tokens(AssistantMessage(timestamp=0, content=[call])) >= (len(text) + 2) // 4


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(), 0),
        (Usage(input=1, output=2, cache_read=4, cache_write=8), 15),
        (Usage(input=1, output=2, cache_read=4, cache_write=8, total_tokens=99), 99),
    ],
)
def test_usage_is_its_total_or_the_sum_of_its_counts(usage: Usage, tokens: int) -> None:
    """Compaction: Tokens of a usage record."""
    assert usage.tokens == tokens


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([], 0),
        ([user(5), replied(10)], 15),
        ([user(5), replied(10, usage=300), user(7)], 307),
        ([user(5), replied(10, usage=300), user(7), replied(2, usage=400)], 400),
        ([replied(10, usage=300), user(7), replied(2, usage=400, stop="error")], 309),
        ([replied(10, usage=300), user(7), replied(2, usage=400, stop="aborted")], 309),
        ([user(5), replied(3, usage=400, stop="error")], 8),
    ],
)
def test_a_list_is_as_large_as_was_reported_last_and_what_came_after(
    messages: list[Message], tokens: int
) -> None:
    """Compaction: Estimate of a message list."""
    assert list_tokens(messages) == tokens


def test_reported_usage_counts_for_the_context_when_nothing_changed_since() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(said(user(5)), said(replied(10, usage=300)), said(user(7)), LabelEntry(target_id="e0"))
    assert tokens_of(path) == 307


def test_usage_from_before_an_edit_is_not_trusted() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(said(user(5)), said(replied(10, usage=300)), said(user(7)), hide("e2"))
    assert tokens_of(path) == 15


def test_usage_from_before_a_compaction_is_not_trusted_though_the_reply_is_kept() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(said(user(90)), said(replied(10, usage=300)), compacted("e1", sized(3)), said(user(7)))
    assert tokens_of(path) == 20


def test_usage_from_after_the_last_change_is_trusted() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(said(user(5)), compacted("e0"), hide("e0"), said(replied(usage=80)), said(result("c", 4)))
    assert tokens_of(path) == 84


def test_an_estimate_counts_the_prompt_once_as_it_stands() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(
        said(SystemMessage(timestamp=0, sections={"a": sized(20), "b": sized(30)})),
        said(user(5)),
        said(SystemMessage(timestamp=0, sections={"a": sized(2)})),
        BranchSummaryEntry(from_id="root", summary=sized(1)),
        said(bash(1)),
    )
    assert tokens_of(path) == 2 + 30 + 5 + 1 + 1


def test_what_an_edit_put_in_place_is_what_counts() -> None:
    """Compaction: Estimate of the active context."""
    path = chain(said(user(500)), ContextEditEntry(target_id="e0", replacement=sized(2)))
    assert tokens_of(path) == 2


def test_an_empty_branch_has_no_tokens() -> None:
    """Compaction: Estimate of the active context."""
    assert tokens_of([]) == 0
