"""What a model is told of a branch: messages, prompt, tools, model and thinking level. Pure.

Source: Session files, "Rebuilding context", "Messages", "Conversion for the model".
"""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from msgspec.structs import replace

from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageBlock,
    InputBlock,
    Message,
    ModelMessage,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ThinkingLevel,
    ToolCallBlock,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.sessions.clock import parse_iso
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomMessageEntry,
    Entry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
)

_COMPACTED = "The earlier part of this conversation was compacted. This is a summary of it:"
_BRANCH_LEFT = "The conversation came back from another branch. This is a summary of what happened there:"


@attrs.frozen
class SystemState:
    """Prompt and tools after all system messages so far.

    Attributes:
        content: the texts outside sections, joined by blank lines.
        sections: texts under their names, in the order of insertion.
        tools: declarations, in the order of insertion.
    """

    content: str = ""
    sections: dict[str, str] = attrs.field(factory=dict)
    tools: tuple[ToolDeclaration, ...] = ()

    @property
    def prompt(self) -> str:
        """The whole prompt text."""
        return "\n\n".join(text for text in (self.content, *self.sections.values()) if text)

    def message(self, timestamp: int) -> SystemMessage:
        """One system message that says all of it."""
        return SystemMessage(
            timestamp=timestamp,
            content=self.content,
            sections=dict(self.sections),
            tools_added=list(self.tools),
        )


@attrs.frozen
class SessionContext:
    """What one model request is made from.

    Attributes:
        messages: of every role, in order; `to_model_messages` makes a request's messages of them.
        system: the replay of the system messages among them.
        model: provider and model id, None when the branch names none.
    """

    messages: tuple[Message, ...]
    system: SystemState
    model: tuple[str, str] | None
    thinking_level: ThinkingLevel


def build_context(path: Sequence[Entry]) -> SessionContext:
    """The context at the end of a branch.

    Args:
        path: the branch, root first.
    """
    model: tuple[str, str] | None = None
    level: ThinkingLevel = "off"
    edits: dict[str, ContextEditEntry] = {}
    compacted_at: int | None = None
    for index, entry in enumerate(path):
        if isinstance(entry, MessageEntry):
            message = entry.message
            if isinstance(message, AssistantMessage) and message.provider and message.model:
                model = (message.provider, message.model)
        elif isinstance(entry, ModelChangeEntry):
            model = (entry.provider, entry.model_id)
        elif isinstance(entry, ThinkingLevelChangeEntry):
            level = entry.thinking_level
        elif isinstance(entry, CompactionEntry):
            compacted_at = index
        elif isinstance(entry, ContextEditEntry):
            edits[entry.target_id] = entry

    messages: list[Message] = []
    rest = path
    if compacted_at is not None:
        messages += _compacted(path, compacted_at, edits)
        rest = path[compacted_at + 1 :]
    messages += _projected(rest, edits)
    return SessionContext(
        messages=tuple(messages),
        system=replay_system(message for message in messages if isinstance(message, SystemMessage)),
        model=model,
        thinking_level=level,
    )


def replay_system(messages: Iterable[SystemMessage]) -> SystemState:
    """Prompt and tools after the given system messages, oldest first."""
    contents: list[str] = []
    sections: dict[str, str] = {}
    tools: dict[str, ToolDeclaration] = {}
    for message in messages:
        if message.replace:
            contents, sections, tools = [], {}, {}
        if content := text_of(message.content):
            contents.append(content)
        for name, text in message.sections.items():
            if text is None:
                sections.pop(name, None)
            else:
                sections[name] = text
        for removed in message.tools_removed:
            tools.pop(removed.name, None)
        for added in message.tools_added:
            tools[added.name] = added
    return SystemState("\n\n".join(contents), sections, tuple(tools.values()))


def to_model_messages(messages: Iterable[Message]) -> tuple[ModelMessage, ...]:
    """The messages in the three roles that an adapter knows; system messages are left to the replay."""
    converted = (_to_model_message(message) for message in messages)
    return tuple(message for message in converted if message is not None)


# --- from entries to messages ---------------------------------------------------------------------


def _compacted(path: Sequence[Entry], at: int, edits: dict[str, ContextEditEntry]) -> list[Message]:
    """What the last compaction leaves of the branch up to and with itself."""
    compaction = path[at]
    assert isinstance(compaction, CompactionEntry)
    time = _milliseconds(compaction)
    system = compaction.system_message
    if system is None:
        earlier = [
            entry.message
            for entry in path[:at]
            if isinstance(entry, MessageEntry) and isinstance(entry.message, SystemMessage)
        ]
        system = replay_system(earlier).message(time) if earlier else None
    summary = CompactionSummaryMessage(
        timestamp=time, summary=compaction.summary, tokens_before=compaction.tokens_before
    )
    messages: list[Message] = [summary] if system is None else [system, summary]
    first = compaction.first_kept_entry_id
    if first is None:
        return messages + (compaction.retained_tail or [])
    kept_from = next((index for index in range(at) if path[index].id == first), at)
    kept = _projected(path[kept_from:at], edits)
    return messages + [message for message in kept if not isinstance(message, SystemMessage)]


def _projected(path: Iterable[Entry], edits: dict[str, ContextEditEntry]) -> list[Message]:
    messages = []
    for entry in path:
        message = _message_of(entry)
        if message is not None and (edit := edits.get(entry.id)) is not None:
            message = _edited(message, edit.replacement)
        if message is not None:
            messages.append(message)
    return messages


def _message_of(entry: Entry) -> Message | None:
    if isinstance(entry, MessageEntry):
        return entry.message
    if isinstance(entry, CustomMessageEntry):
        return CustomMessage(
            timestamp=_milliseconds(entry),
            custom_type=entry.custom_type,
            content=entry.content,
            display=entry.display,
            details=entry.details,
        )
    if isinstance(entry, BranchSummaryEntry) and entry.summary:
        return BranchSummaryMessage(
            timestamp=_milliseconds(entry), summary=entry.summary, from_id=entry.from_id
        )
    return None


def _edited(message: Message, replacement: str | list[Any] | None) -> Message | None:
    """A message with other content; None when it is hidden. Only what an edit may target changes."""
    if not isinstance(message, UserMessage | AssistantMessage | ToolResultMessage | CustomMessage):
        return message
    if replacement is None:
        return None
    if isinstance(replacement, str):
        if isinstance(message, AssistantMessage | ToolResultMessage):
            return replace(message, content=[TextBlock(text=replacement)])
        return replace(message, content=replacement)
    fitting = (
        TextBlock | ThinkingBlock | ToolCallBlock
        if isinstance(message, AssistantMessage)
        else TextBlock | ImageBlock
    )
    return replace(message, content=[block for block in replacement if isinstance(block, fitting)])


def _milliseconds(entry: Entry) -> int:
    return parse_iso(entry.timestamp) or 0


# --- from messages to the model's roles -------------------------------------------------------------


def _to_model_message(message: Message) -> ModelMessage | None:
    if isinstance(message, UserMessage | AssistantMessage | ToolResultMessage):
        return message
    if isinstance(message, BashExecutionMessage):
        return None if message.exclude_from_context else _user(message.timestamp, _bash_text(message))
    if isinstance(message, CustomMessage):
        content = message.content
        blocks: list[InputBlock] = [TextBlock(text=content)] if isinstance(content, str) else content
        return UserMessage(timestamp=message.timestamp, content=blocks)
    if isinstance(message, CompactionSummaryMessage):
        return _user(message.timestamp, _summary_text(_COMPACTED, message.summary))
    if isinstance(message, BranchSummaryMessage):
        return _user(message.timestamp, _summary_text(_BRANCH_LEFT, message.summary))
    return None


def _user(timestamp: int, text: str) -> UserMessage:
    return UserMessage(timestamp=timestamp, content=[TextBlock(text=text)])


def _summary_text(lead_in: str, summary: str) -> str:
    return f"{lead_in}\n\n<summary>\n{summary}\n</summary>"


def _bash_text(message: BashExecutionMessage) -> str:
    output = f"```\n{message.output}\n```" if message.output else "(no output)"
    parts = [f"Ran `{message.command}`\n{output}"]
    if message.cancelled:
        parts.append("(command cancelled)")
    elif message.exit_code:
        parts.append(f"Command exited with code {message.exit_code}")
    if message.truncated and message.full_output_path:
        parts.append(f"[Output truncated. Full output: {message.full_output_path}]")
    return "\n\n".join(parts)
