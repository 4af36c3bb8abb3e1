"""From the stored branch to one model request.

Source: agent loop, "System prompt", "Building the provider request"; Session files, "system".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from knightcode.agent.tools.base import Tool
from knightcode.messages import (
    AssistantMessage,
    Message,
    ModelMessage,
    SystemMessage,
    ThinkingLevel,
    ToolCallBlock,
    ToolDeclaration,
    ToolName,
    ToolResultMessage,
)
from knightcode.models.model import Model
from knightcode.models.request import ModelRequest, RequestInspector, ToolSpec
from knightcode.sessions.context import SessionContext, to_model_messages


def system_change(
    context: SessionContext, sections: Mapping[str, str], tools: Sequence[Tool], now_ms: int
) -> SystemMessage | None:
    """What must be declared so that the transcript says `sections` and `tools`; None when it does."""
    declared = context.system
    known = {tool.name: tool for tool in declared.tools}
    patch: dict[str, str | None] = {name: None for name in declared.sections if name not in sections}
    patch.update({name: text for name, text in sections.items() if declared.sections.get(name) != text})
    wanted = {
        tool.name: ToolDeclaration(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in tools
    }
    added = [tool for name, tool in wanted.items() if known.get(name) != tool]
    removed = [ToolName(name=name) for name, tool in known.items() if wanted.get(name) != tool]
    if not (patch or added or removed):
        return None
    return SystemMessage(timestamp=now_ms, sections=patch, tools_added=added, tools_removed=removed)


def build_request(
    context: SessionContext,
    messages: Sequence[Message],
    *,
    model: Model,
    thinking_level: ThinkingLevel,
    session_id: str,
    exact_prompt: str | None = None,
    inspector: RequestInspector | None = None,
) -> ModelRequest:
    """The request that continues the conversation."""
    system = context.system
    return ModelRequest(
        model=model,
        system_prompt=system.prompt if exact_prompt is None else exact_prompt,
        messages=tuple(in_call_order(to_model_messages(messages))),
        tools=tuple(ToolSpec(tool.name, tool.description, tool.parameters) for tool in system.tools),
        thinking_level=thinking_level,
        session_id=session_id,
        inspector=inspector,
    )


def in_call_order(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """The messages, with the results of one reply in the order of its calls.

    They are stored in the order in which they came; the model reads them as it asked for them, so
    that the same conversation makes the same request.
    """
    order: dict[str, int] = {}
    results: list[ToolResultMessage] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            results.append(message)
            continue
        yield from sorted(results, key=lambda one: order.get(one.tool_call_id, len(order)))
        results = []
        yield message
        if isinstance(message, AssistantMessage):
            calls = (block.id for block in message.content if isinstance(block, ToolCallBlock))
            order = {call_id: place for place, call_id in enumerate(calls)}
    yield from sorted(results, key=lambda one: order.get(one.tool_call_id, len(order)))
