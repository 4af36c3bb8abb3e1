"""A conversation made fit for one model, whatever models it was held with. Pure.

Source: models and providers, "Common"; agent loop, "Building the provider request".
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from knightcode.messages import (
    AssistantMessage,
    ImageBlock,
    InputBlock,
    ModelMessage,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
)
from knightcode.models.model import Model

IMAGE_OMITTED: Final = "(image omitted: not supported by this model)"
NO_RESULT: Final = "No result available"


def prepare_messages(
    messages: Sequence[ModelMessage], model: Model, normalise_id: Callable[[str], str]
) -> list[ModelMessage]:
    """What can be sent to `model` of a conversation.

    Failed and aborted replies are left out, with their results. Calls without a result get one that
    says so, results without a call go. Images become a line of text for a model that takes none, and
    what only another model can read (signatures, its thinking) is turned into text or dropped.

    Args:
        normalise_id: makes another model's tool-call id one that the api accepts; results follow.
    """
    sent: list[ModelMessage] = []
    open_calls: dict[str, tuple[str, str]] = {}  # id as stored -> id as sent, tool
    takes_images = "image" in model.input

    def close_calls(timestamp: int) -> None:
        for call_id, name in open_calls.values():
            sent.append(_missing_result(call_id, name, timestamp))
        open_calls.clear()

    for message in messages:
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id in open_calls:
                call_id, _ = open_calls.pop(message.tool_call_id)
                content = message.content if takes_images else _without_images(message.content)
                sent.append(replace(message, tool_call_id=call_id, content=content))
            continue
        close_calls(message.timestamp)
        if isinstance(message, UserMessage):
            if not takes_images and not isinstance(message.content, str):
                message = replace(message, content=_without_images(message.content))  # noqa: PLW2901
            sent.append(message)
        elif message.stop_reason not in ("error", "aborted"):
            reply, open_calls = _reply(message, model, normalise_id)
            sent.append(reply)
    close_calls(messages[-1].timestamp if messages else 0)
    return sent


def is_same_model(message: AssistantMessage, model: Model) -> bool:
    """Whether the reply was made by this very model."""
    return (message.provider, message.api, message.model) == (model.provider, model.api, model.id)


def _reply(
    message: AssistantMessage, model: Model, normalise_id: Callable[[str], str]
) -> tuple[AssistantMessage, dict[str, tuple[str, str]]]:
    same = is_same_model(message, model)
    content: list[ReplyBlock] = []
    calls: dict[str, tuple[str, str]] = {}
    for block in message.content:
        match block:
            case ThinkingBlock():
                content += _thinking(block, same)
            case TextBlock():
                content.append(block if same else TextBlock(text=block.text))
            case ToolCallBlock():
                call_id = block.id if same else normalise_id(block.id)
                calls[block.id] = (call_id, block.name)
                signature = block.thought_signature if same else None
                content.append(replace(block, id=call_id, thought_signature=signature))
    return replace(message, content=content), calls


def _thinking(block: ThinkingBlock, same: bool) -> list[ReplyBlock]:
    if same and (block.redacted or block.thinking_signature or block.thinking.strip()):
        return [block]
    if block.redacted or not block.thinking.strip():
        return []
    return [TextBlock(text=block.thinking)]


def _without_images(content: Sequence[InputBlock]) -> list[InputBlock]:
    """The content with one line of text for every run of images."""
    kept: list[InputBlock] = []
    after_image = False
    for block in content:
        if not isinstance(block, ImageBlock):
            kept.append(block)
        elif not after_image:
            kept.append(TextBlock(text=IMAGE_OMITTED))
        after_image = isinstance(block, ImageBlock)
    return kept


def _missing_result(call_id: str, name: str, timestamp: int) -> ToolResultMessage:
    return ToolResultMessage(
        timestamp=timestamp,
        tool_call_id=call_id,
        tool_name=name,
        content=[TextBlock(text=NO_RESULT)],
        is_error=True,
    )
