"""What a person sees of a turn: values in, text out."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.demo.screen import Style
from knightcode.demo.show import (
    DIFF_LINES,
    INPUT_LINES,
    OUTPUT_LINES,
    Transcript,
    approval_text,
    call_text,
    diff_text,
    input_text,
    printable,
    turn_text,
    usage_text,
)
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
    ExtensionMessage,
    FileChange,
    ImageOutput,
    Item,
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

NO_LAYOUT = {ord(character): None for character in "\n\t"}
PLAIN, COLOURED = Style(), Style(colours=True)
USAGE = TokenUsage(input=1234, output=56, cache_read=0, cache_write=0, cost=0.5, context_window=0)


def started(item: Item) -> ItemStarted:
    return ItemStarted(thread_id="t", turn_id="u", item=item)


def completed(item: Item) -> ItemCompleted:
    return ItemCompleted(thread_id="t", turn_id="u", item=item)


def said(item_id: str, delta: str) -> AgentMessageDelta:
    return AgentMessageDelta(thread_id="t", turn_id="u", item_id=item_id, delta=delta)


def thought(item_id: str, delta: str) -> ReasoningDelta:
    return ReasoningDelta(thread_id="t", turn_id="u", item_id=item_id, delta=delta)


def running(item_id: str, tool: str = "bash", **arguments: object) -> ToolCall:
    return ToolCall(id=item_id, tool=tool, input=arguments, status="running", output=())


def told(*notifications: Wire, style: Style = PLAIN) -> str:
    transcript = Transcript(style)
    return "".join(map(transcript.tell, notifications))


def test_a_text_is_shown_as_it_arrives_and_not_once_more_at_its_end() -> None:
    text = told(
        started(AgentMessage(id="a", text="")),
        said("a", "one "),
        said("a", "two"),
        completed(AgentMessage(id="a", text="one two")),
    )
    assert text == "\none two\n"


def test_what_the_end_of_a_text_adds_is_shown() -> None:
    assert told(said("a", "one"), completed(AgentMessage(id="a", text="one two"))) == "\none two\n"


def test_a_text_that_was_never_streamed_is_shown_at_its_end() -> None:
    assert told(completed(AgentMessage(id="a", text="one"))) == "\none\n"


def test_a_text_that_ends_as_another_one_is_shown_anew() -> None:
    text = told(said("a", "draft"), completed(AgentMessage(id="a", text="final")))
    assert text == "\ndraft\n(replaced by)\n\nfinal\n"


def test_reasoning_is_dimmed_and_named() -> None:
    notifications = (
        started(Reasoning(id="r", text="")),
        thought("r", "hm"),
        completed(Reasoning(id="r", text="hm")),
    )
    assert told(*notifications) == "\nthinking: hm\n"
    assert told(*notifications, style=COLOURED) == "\n\x1b[2mthinking: \x1b[0m\x1b[2mhm\x1b[0m\n"


def test_reasoning_without_a_word_is_not_shown() -> None:
    assert told(started(Reasoning(id="r", text="")), completed(Reasoning(id="r", text=""))) == ""


def test_what_is_taken_back_is_said_to_be_gone() -> None:
    removed = ItemRemoved(thread_id="t", turn_id="u", item_id="a")
    assert told(said("a", "half"), removed) == "\nhalf\n(taken back)\n"
    assert told(removed) == ""


def test_a_call_shows_its_input_and_the_end_of_its_output() -> None:
    output = TextOutput(text="\n".join(f"line {number}" for number in range(OUTPUT_LINES + 2)) + "\n")
    call = ToolCall(id="c", tool="bash", input={"command": "run"}, status="completed", output=(output,))
    shown = "\n".join(f"    line {number}" for number in range(2, OUTPUT_LINES + 2))
    assert told(started(running("c", command="run")), completed(call)) == (
        f"\n> bash run\n  ok\n    (2 lines above)\n{shown}\n"
    )


@pytest.mark.parametrize(("status", "mark"), [("failed", "failed"), ("declined", "did not run")])
def test_a_call_that_did_not_succeed_says_so(status: str, mark: str) -> None:
    call = ToolCall(id="c", tool="bash", input={}, status=status, output=())  # type: ignore[arg-type]
    assert told(started(running("c")), completed(call)) == f"\n> bash {{}}\n  {mark}\n"


def test_calls_side_by_side_are_told_apart_when_they_end() -> None:
    def ended(item_id: str) -> ItemCompleted:
        return completed(
            ToolCall(id=item_id, tool="read", input={"path": item_id}, status="completed", output=())
        )

    text = told(
        started(running("a", "read", path="a")),
        started(running("b", "read", path="b")),
        ended("b"),
        ended("a"),
    )
    assert text == "\n> read a\n\n> read b\n  read b: ok\n  read a: ok\n"


def test_changed_files_are_shown_as_diffs_in_place_of_the_output() -> None:
    call = ToolCall(
        id="c",
        tool="edit",
        input={"path": "f"},
        status="completed",
        output=(TextOutput(text="Replaced"),),
        file_changes=(
            FileChange(path="/f", kind="modify", diff="--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n"),
            FileChange(path="/g", kind="delete"),
        ),
    )
    assert told(started(running("c", "edit", path="f")), completed(call)) == (
        "\n> edit f\n  ok\n    modify /f\n"
        "    --- f\n    +++ f\n    @@ -1 +1 @@\n    -a\n    +b\n    delete /g\n"
    )


def test_an_image_is_named_and_not_printed() -> None:
    call = ToolCall(
        id="c",
        tool="read",
        input={},
        status="completed",
        output=(ImageOutput(mime_type="image/png", data="AA=="),),
    )
    assert told(completed(call)) == "  read {}: ok\n    (an image)\n"


def test_a_line_that_is_open_is_ended_before_anything_else() -> None:
    transcript = Transcript(PLAIN)
    assert transcript.tell(said("a", "half")) == "\nhalf"
    assert transcript.interject("a question") == "\na question\n"
    assert transcript.tell(said("a", " more")) == "\n more"


def test_the_rest_of_a_turn_is_told_in_a_line_each() -> None:
    turn = TurnSummary(id="u", thread_id="t", status="completed", started_at=1000, completed_at=2500)
    text = told(
        completed(UserMessage(id="m", text="do it", images=())),
        completed(Compaction(id="k", summary="s", reason="manual", status="completed")),
        completed(ExtensionMessage(id="e", extension="ext", text="note")),
        WarningNotification(thread_id="t", message="careful", source="server"),
        ErrorNotification(code="internal", message="broken"),
        TurnCompleted(thread_id="t", turn=turn),
    )
    assert text == (
        "\nYou: do it\n(the history was compacted: completed)\next: note\nwarning: careful\nerror: broken\n"
        "\nThe turn is completed after 1.5 s\n"
    )


def test_the_usage_is_kept_for_the_end() -> None:
    transcript = Transcript(PLAIN)
    assert transcript.tell(TokenUsageUpdated(thread_id="t", turn_id="u", usage=USAGE)) == ""
    assert usage_text(transcript.usage) == "1,234 tokens in, 56 out, $0.5000"
    assert usage_text(None) == "no reply was finished, so nothing was counted"


def test_a_failed_turn_says_why() -> None:
    turn = TurnSummary(
        id="u",
        thread_id="t",
        status="failed",
        started_at=0,
        error=TurnError(message="no\x1b[2J", kind="other"),
    )
    assert turn_text(PLAIN, turn) == "The turn is failed: no"


def question(tool: str, arguments: object, **more: str) -> ToolCallRequestApprovalParams:
    return ToolCallRequestApprovalParams(
        thread_id="t",
        turn_id="u",
        item_id="c",
        tool=tool,
        input=arguments,
        decisions=("accept", "decline", "cancel"),
        **more,
    )


def test_a_question_shows_tool_input_reason_and_choices() -> None:
    assert approval_text(PLAIN, question("bash", {"command": "a\nb\n", "timeout": 5}, reason="new")) == (
        "? May bash run?\n    command:\n      a\n      b\n    timeout: 5\n    reason: new\n"
        "    choices: accept, decline, cancel"
    )


def test_a_question_shows_replacements_like_a_diff() -> None:
    edits = [{"oldText": "a\nb", "newText": "c"}, {"oldText": "d"}]
    assert input_text(PLAIN, {"path": "f", "edits": edits}) == (
        "path: f\nedits:\n  -a\n  -b\n  +c\n  -d\n  +"
    )
    assert "\x1b[31m-a\x1b[0m" in input_text(COLOURED, {"edits": edits})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([1, "é"], '[1, "é"]'),
        (None, "null"),
        ({"edits": "no list"}, "edits: no list"),
        ({"edits": ["no mapping"]}, 'edits: ["no mapping"]'),
        ({}, ""),
    ],
)
def test_an_input_of_any_shape_is_shown(arguments: object, text: str) -> None:
    assert input_text(PLAIN, arguments) == text


def test_a_question_with_a_long_input_says_how_much_is_not_shown() -> None:
    shown = input_text(PLAIN, {"content": "x\n" * (INPUT_LINES + 1)})
    assert shown.splitlines()[-1] == "(2 lines more)"
    assert len(shown.splitlines()) == INPUT_LINES + 1


def test_nothing_in_a_command_can_hide_a_part_of_it_from_the_person_who_is_asked() -> None:
    hidden = "rm -rf ~\r\x1b[2K\x1b]0;reboot\x07echo ok\u202e\x9b1A"
    written_out = r"rm -rf ~\r\x1b[2K\x1b]0;reboot\x07echo ok\u202e\x9b1A"
    assert input_text(PLAIN, {"command": hidden}) == f"command: {written_out}"
    assert call_text("bash", {"command": hidden}) == f"bash {written_out}"


def test_output_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2J\rb\x1b]0;title\x07c\u202ed\n\te") == "abcd\n\te"


def test_a_heading_is_one_line_and_shortened() -> None:
    assert call_text("bash", {"command": "one\ntwo"}) == "bash one…"
    assert call_text("bash", {"command": "x" * 200}) == f"bash {'x' * 100}…"
    assert call_text("grep", {"pattern": "x"}) == 'grep {"pattern": "x"}'


def test_a_diff_is_coloured_by_line_and_cut_with_a_word_about_the_rest() -> None:
    assert diff_text(COLOURED, "+++ f\n+a\n-b\n c\n") == (
        "\x1b[36m+++ f\x1b[0m\n\x1b[32m+a\x1b[0m\n\x1b[31m-b\x1b[0m\n c"
    )
    cut = diff_text(PLAIN, "+a\n" * (DIFF_LINES + 1), rest="; see git")
    assert cut.splitlines()[-1] == "(1 line more; see git)"


@given(st.text(alphabet=st.characters(max_codepoint=0x2100, exclude_categories=["Cs"])))
@settings(max_examples=50)
def test_printable_text_holds_no_control_character_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(character) == "Cc" for character in shown.translate(NO_LAYOUT))
    assert printable(shown) == shown


@given(st.lists(st.text(alphabet="ab \n", max_size=6), max_size=6))
@settings(max_examples=50)
def test_any_cut_of_a_text_is_shown_as_the_text(pieces: list[str]) -> None:
    whole = "".join(pieces)
    text = told(*(said("a", piece) for piece in pieces), completed(AgentMessage(id="a", text=whole)))
    assert text == (f"\n{whole}\n" if whole else "")
