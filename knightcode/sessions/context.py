"""What a model is told of a branch: messages, prompt, tools, model and thinking level. Pure.

Source: Session files, "Rebuilding context", "Messages", "Conversion for the model".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import attrs

from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    InputBlock,
    Message,
    ModelMessage,
    SystemMessage,
    TextBlock,
    ThinkingLevel,
    ToolDeclaration,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from knightcode.sessions.entries import (
    CompactionEntry,
    ContextEditEntry,
    Entry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
)
from knightcode.sessions.projection import message_of, milliseconds, project

_COMPACTED = "The earlier part of this conversation was compacted. This is a summary of it:"
_BRANCH_LEFT = "The conversation came back from another branch. This is a summary of what happened there:"
_MODEL_ROLES = (UserMessage, AssistantMessage, ToolResultMessage)


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
    return GrowingContext.of(path).context()


def replay_system(messages: Iterable[SystemMessage]) -> SystemState:
    """Prompt and tools after the given system messages, oldest first."""
    replay = _SystemReplay()
    for message in messages:
        replay.add(message)
    return replay.state()


@attrs.define(eq=False)
class _SystemReplay:
    """Prompt and tools while system messages come in."""

    _contents: list[str] = attrs.field(factory=list, init=False)
    _sections: dict[str, str] = attrs.field(factory=dict, init=False)
    _tools: dict[str, ToolDeclaration] = attrs.field(factory=dict, init=False)
    _state: SystemState | None = attrs.field(default=None, init=False)

    def add(self, message: SystemMessage) -> None:
        if message.replace:
            self._contents, self._sections, self._tools = [], {}, {}
        if content := text_of(message.content):
            self._contents.append(content)
        for name, text in message.sections.items():
            if text is None:
                self._sections.pop(name, None)
            else:
                self._sections[name] = text
        for removed in message.tools_removed:
            self._tools.pop(removed.name, None)
        for added in message.tools_added:
            self._tools[added.name] = added
        self._state = None

    def state(self) -> SystemState:
        if self._state is None:
            self._state = SystemState(
                "\n\n".join(self._contents), dict(self._sections), tuple(self._tools.values())
            )
        return self._state


@attrs.define(eq=False)
class GrowingContext:
    """The context at the end of a branch that grows. Made by `of`.

    A further entry costs the same on a long branch as on a short one, but for the two kinds that
    change what came before them: see `add`.
    """

    _edits: dict[str, ContextEditEntry]
    _messages: list[Message]
    _system: _SystemReplay = attrs.field(factory=_SystemReplay, init=False)
    _model: tuple[str, str] | None = attrs.field(default=None, init=False)
    _level: ThinkingLevel = attrs.field(default="off", init=False)
    _context: SessionContext | None = attrs.field(default=None, init=False)  # good until the next entry

    @classmethod
    def of(cls, path: Sequence[Entry]) -> Self:
        """The context at the end of a branch, root first."""
        # Here and in `project` types are compared: `isinstance` asks the structs' metaclass and takes
        # five times as long, which counts when a long branch is gone through.
        edits = {entry.target_id: entry for entry in path if type(entry) is ContextEditEntry}
        compacted_at = next(
            (at for at in range(len(path) - 1, -1, -1) if type(path[at]) is CompactionEntry), None
        )
        if compacted_at is None:
            messages = project(path, edits)
        else:
            messages = _compacted(path, compacted_at, edits) + project(path[compacted_at + 1 :], edits)
        growing = cls(edits, messages)
        for message in messages:
            if type(message) is SystemMessage:
                growing._system.add(message)
        growing._model = next((model for entry in reversed(path) if (model := _model_of(entry))), None)
        growing._level = next(
            (entry.thinking_level for entry in reversed(path) if type(entry) is ThinkingLevelChangeEntry),
            "off",
        )
        return growing

    def add(self, entry: Entry) -> bool:
        """Take in the entry that continues the branch.

        Returns:
            Whether that was possible. A compaction or an edit changes what earlier entries mean: then
            nothing has changed here, and the context has to be made anew.
        """
        if isinstance(entry, CompactionEntry | ContextEditEntry):
            return False
        message = message_of(entry, self._edits)
        if message is not None:
            self._messages.append(message)
        if isinstance(message, SystemMessage):
            self._system.add(message)
        self._model = _model_of(entry) or self._model
        if isinstance(entry, ThinkingLevelChangeEntry):
            self._level = entry.thinking_level
        self._context = None
        return True

    def context(self) -> SessionContext:
        """The context as it stands; what was handed out does not change later."""
        if self._context is None:
            self._context = SessionContext(
                messages=tuple(self._messages),
                system=self._system.state(),
                model=self._model,
                thinking_level=self._level,
            )
        return self._context


def to_model_messages(messages: Iterable[Message]) -> tuple[ModelMessage, ...]:
    """The messages in the three roles that an adapter knows; system messages are left to the replay."""
    return tuple(message for one in messages if (message := _to_model_message(one)) is not None)


def _compacted(path: Sequence[Entry], at: int, edits: Mapping[str, ContextEditEntry]) -> list[Message]:
    """What the last compaction leaves of the branch up to and with itself."""
    compaction = path[at]
    assert isinstance(compaction, CompactionEntry)
    time = milliseconds(compaction)
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
    kept = project(path[kept_from:at], edits)
    return messages + [message for message in kept if not isinstance(message, SystemMessage)]


def _model_of(entry: Entry) -> tuple[str, str] | None:
    """The model that is the branch's own after an entry which says so: a choice, or a reply."""
    if isinstance(entry, MessageEntry):
        message = entry.message
        if isinstance(message, AssistantMessage) and message.provider and message.model:
            return message.provider, message.model
    elif isinstance(entry, ModelChangeEntry):
        return entry.provider, entry.model_id
    return None


# --- from messages to the model's roles -------------------------------------------------------------


def _to_model_message(message: Message) -> ModelMessage | None:
    if isinstance(message, _MODEL_ROLES):
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
