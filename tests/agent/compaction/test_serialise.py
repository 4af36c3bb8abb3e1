"""The conversation as the summarising model reads it."""

from hypothesis import example, given
from hypothesis import strategies as st

from knightcode.agent.compaction.serialise import RESULT_CHARS, serialise
from knightcode.messages import (
    AssistantMessage,
    BranchSummaryMessage,
    CustomMessage,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from tests.agent.compaction.pieces import bash

IMAGE = ImageBlock(data="AAAA", mime_type="image/png")


def answer(call_id: str, text: str) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=0, tool_call_id=call_id, tool_name="read", content=[TextBlock(text=text), IMAGE]
    )


def test_every_item_is_a_paragraph_with_its_speaker() -> None:
    """Compaction: Serialising the conversation."""
    calls = [
        ToolCallBlock(
            id="1", name="read", arguments={"path": "ä.py", "limit": 3, "deep": {"a": [None, True]}}
        ),
        ToolCallBlock(id="2", name="ls", arguments={}),
    ]
    messages: list[Message] = [
        UserMessage(timestamp=0, content=[TextBlock(text="Fix it"), IMAGE, TextBlock(text="please")]),
        AssistantMessage(
            timestamp=0,
            content=[
                calls[0],
                TextBlock(text="I look."),
                ThinkingBlock(thinking="Hm."),
                calls[1],
                ThinkingBlock(thinking="", redacted=True),
                ThinkingBlock(thinking="Well."),
                TextBlock(text="And list."),
            ],
        ),
        answer("1", "x = 1"),
        answer("2", "a.py"),
    ]
    assert serialise(messages) == (
        "[User]: Fix it\nplease\n\n"
        "[Assistant thinking]: Hm.\nWell.\n\n"
        "[Assistant]: I look.\nAnd list.\n\n"
        '[Assistant tool calls]: read(path="ä.py", limit=3, deep={"a":[null,true]}); ls()\n\n'
        "[Tool result]: x = 1\n\n"
        "[Tool result]: a.py"
    )


def test_what_is_shown_to_the_model_as_the_users_words_is_quoted_as_such() -> None:
    """Compaction: Serialising the conversation."""
    messages: list[Message] = [
        bash(1),
        CustomMessage(timestamp=0, custom_type="note", content="A note."),
        BranchSummaryMessage(timestamp=0, summary="Tried caching."),
    ]
    ran, note, branch = serialise(messages).split("\n\n", 2)
    assert (ran, note) == ("[User]: Ran ``\n```\nxxxx\n```", "[User]: A note.")
    assert branch.startswith("[User]: ") and branch.endswith("<summary>\nTried caching.\n</summary>")


def test_what_the_model_never_saw_and_what_has_no_text_is_left_out() -> None:
    """Compaction: Serialising the conversation."""
    messages: list[Message] = [
        SystemMessage(timestamp=0, content="Be good."),
        bash(1, excluded=True),
        UserMessage(timestamp=0, content=[IMAGE]),
        UserMessage(timestamp=0, content=""),
        AssistantMessage(timestamp=0),
        answer("1", ""),
    ]
    assert serialise(messages) == ""


def test_results_follow_in_the_order_of_their_calls() -> None:
    """Compaction: Serialising the conversation."""
    calls = [ToolCallBlock(id=call_id, name="ls", arguments={}) for call_id in ("1", "2")]
    text = serialise([AssistantMessage(timestamp=0, content=[*calls]), answer("2", "B"), answer("1", "A")])
    assert text == "[Assistant tool calls]: ls(); ls()\n\n[Tool result]: A\n\n[Tool result]: B"


@given(st.integers(0, 2 * RESULT_CHARS + 10))
@example(RESULT_CHARS)
@example(RESULT_CHARS + 1)
def test_a_result_is_quoted_up_to_a_limit_and_says_what_is_missing(length: int) -> None:
    """Compaction: Serialising the conversation."""
    quoted = serialise([answer("1", "é" * length)]).removeprefix("[Tool result]: ")
    if length <= RESULT_CHARS:
        assert quoted == "é" * length
    else:
        note = f"\n[{length - RESULT_CHARS} more characters are left out here]"
        assert quoted == "é" * RESULT_CHARS + note
