"""What the server says, as text for a person: pure functions and one object that remembers what is open.

Text from models, tools and files is untrusted: nothing in it may move the cursor or hide a part of
what a person is asked to accept.

Source: app server notes, "Session events to notifications"; app server, "Approvals".
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from knightcode.demo.screen import Style
from knightcode_protocol.notifications import (
    AgentMessageDelta,
    ErrorNotification,
    ItemCompleted,
    ItemRemoved,
    ItemStarted,
    ReasoningDelta,
    TokenUsageUpdated,
    TurnCompleted,
    WarningNotification,
)
from knightcode_protocol.objects import (
    AgentMessage,
    Compaction,
    Reasoning,
    TextOutput,
    TokenUsage,
    ToolCall,
    TurnError,
    TurnSummary,
    UserMessage,
)
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams
from knightcode_protocol.wire import Wire

OUTPUT_LINES = 8
"""Of a tool's output its last lines are shown; the session file has all of it."""
INPUT_LINES = 40
"""Of what a person is asked to accept; an input that is longer says so."""
DIFF_LINES = 200
_HEADING_CHARS = 100

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"  # unseen, or turn the writing round
)
_MARKS = {"completed": "ok", "failed": "failed", "declined": "did not run", "pending": "", "running": ""}


def printable(text: str) -> str:
    """`text` without terminal escapes, control characters and changes of writing direction."""
    return _UNPRINTABLE.sub("", _ESCAPES.sub("", text))


def exposed(text: str) -> str:
    """`text` with such characters written out. For what will run: nothing of that may be left out."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def indented(text: str, margin: str = "  ") -> str:
    """Every line of `text` behind a margin."""
    return "\n".join(margin + line if line.strip() else margin.rstrip() for line in text.split("\n"))


def last_lines(text: str, count: int) -> str:
    """The end of a text, and how many lines before it are not shown."""
    lines = text.rstrip("\n").split("\n")
    hidden = len(lines) - count
    return "\n".join(lines if hidden <= 0 else [f"({_lines(hidden)} above)", *lines[hidden:]])


def first_lines(text: str, count: int, rest: str = "") -> str:
    """The beginning of a text, and how many lines after it are not shown; `rest` says where they are."""
    lines = text.rstrip("\n").split("\n")
    hidden = len(lines) - count
    return "\n".join(lines if hidden <= 0 else [*lines[:count], f"({_lines(hidden)} more{rest})"])


def diff_text(style: Style, diff: str, *, rest: str = "") -> str:
    """A unified diff, coloured, at most `DIFF_LINES` long."""
    return "\n".join(
        _diff_line(style, line) for line in first_lines(printable(diff), DIFF_LINES, rest).split("\n")
    )


def call_text(tool: str, arguments: Any) -> str:
    """A call in one line: the tool, and what tells this call from others."""
    known = arguments if isinstance(arguments, Mapping) else {}
    value = known.get("command") or known.get("path")
    about = value if isinstance(value, str) else _json(arguments)
    line, *more = exposed(about).split("\n")
    shortened = line[:_HEADING_CHARS] + ("…" if more or len(line) > _HEADING_CHARS else "")
    return f"{exposed(tool)} {shortened}"


def input_text(style: Style, arguments: Any) -> str:
    """What a call is about to do, in full as far as `INPUT_LINES` go: one member after the other."""
    if not isinstance(arguments, Mapping):
        return exposed(_json(arguments))
    parts = [_member_text(style, str(name), value) for name, value in arguments.items()]
    return first_lines("\n".join(parts), INPUT_LINES)


def approval_text(style: Style, asked: ToolCallRequestApprovalParams) -> str:
    """What a person is asked: the tool, its input, the reason and the choices."""
    lines = [
        style.asks(f"? May {exposed(asked.tool)} run?"),
        indented(input_text(style, asked.input), "    "),
    ]
    if isinstance(asked.reason, str):
        lines.append(indented(f"reason: {printable(asked.reason)}", "    "))
    lines.append(style.dim(f"    choices: {', '.join(asked.decisions)}"))
    return "\n".join(lines)


def usage_text(usage: TokenUsage | None) -> str:
    """Tokens and dollars of the thread."""
    if usage is None:
        return "no reply was finished, so nothing was counted"
    cached = f" and {usage.cache_read:,} from the cache" if usage.cache_read else ""
    return f"{usage.input:,} tokens in{cached}, {usage.output:,} out, ${usage.cost:.4f}"


def turn_text(style: Style, turn: TurnSummary) -> str:
    """How a turn ended, and after how long."""
    after = ""
    if isinstance(turn.completed_at, int):
        after = f" after {(turn.completed_at - turn.started_at) / 1000:.1f} s"
    why = f": {printable(turn.error.message)}" if isinstance(turn.error, TurnError) else ""
    look = style.good if turn.status == "completed" else style.bad
    return look(f"The turn is {turn.status}{after}{why}")


@attrs.define(eq=False)
class Transcript:
    """A turn as it is told: give it every notification, show what it gives back.

    Attributes:
        usage: the tokens counted so far; None before the first reply is complete.
    """

    style: Style
    usage: TokenUsage | None = attrs.field(default=None, init=False)
    _streaming: str | None = attrs.field(default=None, init=False)  # whose text the last line is
    _streamed: dict[str, str] = attrs.field(factory=dict, init=False)
    _heading: str | None = attrs.field(default=None, init=False)  # the call that was named last
    _running: set[str] = attrs.field(factory=set, init=False)  # calls that were named and have not ended

    def tell(self, notification: Wire) -> str:
        """The text to show for the params of a notification; empty for what is not shown."""
        teller = _TELLERS.get(type(notification))
        return "" if teller is None else teller(self, notification)

    def interject(self, text: str) -> str:
        """Other text between the turn's: it begins and ends on a line of its own."""
        return f"{self._end_line()}{text}\n"

    def warn(self, message: str) -> str:
        """A warning of the server's."""
        return self.interject(self.style.asks(f"warning: {printable(message)}"))

    def _started(self, news: ItemStarted) -> str:
        item = news.item
        if isinstance(item, (AgentMessage, Reasoning)):
            return self._grew(item.id, item.text, isinstance(item, Reasoning))
        if isinstance(item, ToolCall):
            self._heading = item.id
            self._running.add(item.id)
            return self.interject("\n" + self.style.bold(f"> {call_text(item.tool, item.input)}"))
        return ""

    def _text_delta(self, news: AgentMessageDelta) -> str:
        return self._grew(news.item_id, news.delta, False)

    def _reasoning_delta(self, news: ReasoningDelta) -> str:
        return self._grew(news.item_id, news.delta, True)

    def _grew(self, item_id: str, text: str, reasoning: bool) -> str:
        if not text:
            return ""
        self._streamed[item_id] = self._streamed.get(item_id, "") + text
        before = ""
        if self._streaming != item_id:
            label = self.style.dim("thinking: ") if reasoning else ""
            before = f"{self._end_line()}\n{label}"
            self._streaming, self._heading = item_id, None
        shown = printable(text)
        return before + (self.style.dim(shown) if reasoning else shown)

    def _completed(self, news: ItemCompleted) -> str:
        item = news.item
        if isinstance(item, (AgentMessage, Reasoning)):
            return self._text_completed(item)
        if isinstance(item, ToolCall):
            return self._call_completed(item)
        if isinstance(item, UserMessage):
            return self.interject(f"\n{self.style.bold('You:')} {printable(item.text)}")
        if isinstance(item, Compaction):
            return self.interject(self.style.dim(f"(the history was compacted: {item.status})"))
        return self.interject(f"{printable(item.extension)}: {printable(item.text)}")

    def _text_completed(self, item: AgentMessage | Reasoning) -> str:
        """The end of a text. What was streamed of it stands unless the final text is another one."""
        streamed = self._streamed.pop(item.id, "")
        reasoning = isinstance(item, Reasoning)
        if item.text.startswith(streamed):
            more = self._grew(item.id, item.text[len(streamed) :], reasoning)
        else:
            more = self.interject(self.style.dim("(replaced by)")) + self._grew(item.id, item.text, reasoning)
        self._streamed.pop(item.id, None)
        return more + (self._end_line() if self._streaming == item.id else "")

    def _call_completed(self, call: ToolCall) -> str:
        look = self.style.good if call.status == "completed" else self.style.bad
        mark = look(_MARKS[call.status])
        self._running.discard(call.id)
        if self._heading != call.id or self._running:  # calls that run side by side: say whose end this is
            mark = f"{self.style.bold(call_text(call.tool, call.input))}: {mark}"
        self._heading = None
        parts = [indented(mark)]
        changes = call.file_changes if isinstance(call.file_changes, tuple) else ()
        for change in changes:
            about = f"{change.kind} {printable(change.path)}"
            diff = f"\n{diff_text(self.style, change.diff)}" if isinstance(change.diff, str) else ""
            parts.append(indented(about + diff, "    "))
        if not changes:
            texts = [part.text if isinstance(part, TextOutput) else "(an image)" for part in call.output]
            output = last_lines(printable("\n".join(texts)), OUTPUT_LINES)
            if output:
                parts.append(self.style.dim(indented(output, "    ")))
        return self.interject("\n".join(parts))

    def _removed(self, news: ItemRemoved) -> str:
        self._running.discard(news.item_id)
        if self._streamed.pop(news.item_id, None) is None:
            return ""
        return self.interject(self.style.dim("(taken back)"))

    def _counted(self, news: TokenUsageUpdated) -> str:
        self.usage = news.usage
        return ""

    def _warned(self, news: WarningNotification) -> str:
        return self.warn(news.message)

    def _failed(self, news: ErrorNotification) -> str:
        return self.interject(self.style.bad(f"error: {printable(news.message)}"))

    def _turn_completed(self, news: TurnCompleted) -> str:
        return self.interject("\n" + turn_text(self.style, news.turn))

    def _end_line(self) -> str:
        open_line, self._streaming = self._streaming is not None, None
        return "\n" if open_line else ""


_TELLERS: Mapping[type[Wire], Callable[[Transcript, Any], str]] = {
    ItemStarted: Transcript._started,
    AgentMessageDelta: Transcript._text_delta,
    ReasoningDelta: Transcript._reasoning_delta,
    ItemCompleted: Transcript._completed,
    ItemRemoved: Transcript._removed,
    TokenUsageUpdated: Transcript._counted,
    WarningNotification: Transcript._warned,
    ErrorNotification: Transcript._failed,
    TurnCompleted: Transcript._turn_completed,
}


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _member_text(style: Style, name: str, value: Any) -> str:
    """One member of a call's input. Replacements look like a diff, long texts stand below their name."""
    label = exposed(name)
    if name == "edits" and isinstance(value, list) and all(isinstance(edit, Mapping) for edit in value):
        return "\n".join([f"{label}:", *(indented(_edit_text(style, edit)) for edit in value)])
    text = exposed(value if isinstance(value, str) else _json(value)).rstrip("\n")
    return f"{label}:\n{indented(text)}" if "\n" in text else f"{label}: {text}"


def _edit_text(style: Style, edit: Mapping[str, Any]) -> str:
    sides = (("oldText", "-", style.bad), ("newText", "+", style.good))
    return "\n".join(look(indented(exposed(str(edit.get(member, ""))), sign)) for member, sign, look in sides)


def _diff_line(style: Style, line: str) -> str:
    if line.startswith(("+++", "---", "@@", "diff ", "index ")):
        return style.place(line)
    if line.startswith("+"):
        return style.good(line)
    return style.bad(line) if line.startswith("-") else line
