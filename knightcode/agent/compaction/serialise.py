"""A conversation as one text, for a model that is to read it instead of taking part in it. Pure.

Source: Compaction, "Serialising the conversation".
"""

from collections.abc import Iterable, Iterator
from typing import Final

from knightcode.agent.compaction.estimate import compact_json
from knightcode.agent.request import in_call_order
from knightcode.messages import (
    AssistantMessage,
    Message,
    ModelMessage,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    text_of,
)
from knightcode.sessions.context import to_model_messages

RESULT_CHARS: Final = 2_000
"""How much of a tool's result is quoted."""


def serialise(messages: Iterable[Message]) -> str:
    """The messages as paragraphs, in order, the results of one reply in the order of its calls.

    Images, system messages and what the model was not shown are left out, and so is what has no text.
    """
    model_messages = in_call_order(to_model_messages(messages))
    return "\n\n".join(paragraph for message in model_messages for paragraph in _paragraphs(message))


def _paragraphs(message: ModelMessage) -> Iterator[str]:
    text = text_of(message.content)
    if isinstance(message, AssistantMessage):
        thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingBlock)]
        calls = [_call(block) for block in message.content if isinstance(block, ToolCallBlock)]
        yield from _paragraph("Assistant thinking", "\n".join(filter(None, thoughts)))
        yield from _paragraph("Assistant", text)
        yield from _paragraph("Assistant tool calls", "; ".join(calls))
    elif isinstance(message, ToolResultMessage):
        yield from _paragraph("Tool result", _shortened(text))
    else:
        yield from _paragraph("User", text)


def _paragraph(who: str, text: str) -> Iterator[str]:
    if text:
        yield f"[{who}]: {text}"


def _call(call: ToolCallBlock) -> str:
    arguments = ", ".join(f"{name}={compact_json(value)}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _shortened(text: str) -> str:
    dropped = len(text) - RESULT_CHARS
    return text if dropped <= 0 else f"{text[:RESULT_CHARS]}\n[{dropped} more characters are left out here]"
