"""What a model is told of a branch."""

import pytest

from knightcode.messages import (
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageBlock,
    Message,
    SystemMessage,
    TextBlock,
    ToolDeclaration,
    ToolName,
    UserMessage,
)
from knightcode.sessions.context import (
    SessionContext,
    SystemState,
    build_context,
    replay_system,
    to_model_messages,
)
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    ModelChangeEntry,
    ThinkingLevelChangeEntry,
    TurnStartEntry,
    UnknownEntry,
)
from tests.sessions.samples import START_MS, chain, reply, result, said, user

READ, EDIT = ToolDeclaration(name="read"), ToolDeclaration(name="edit")
PROMPT = SystemMessage(timestamp=1, content="Be brief.", sections={"rules": "No."}, tools_added=[READ])
HIDDEN = UnknownEntry(type="hologram", id="", parent_id=None, timestamp="", raw=b"{}")


def test_an_empty_branch_has_no_messages_no_model_and_no_thinking() -> None:
    """Session files: Rebuilding context."""
    assert build_context([]) == SessionContext((), SystemState(), None, "off")


def test_without_a_compaction_all_messages_of_the_branch_are_there() -> None:
    path = chain(
        ModelChangeEntry(provider="acme", model_id="m0"),
        ThinkingLevelChangeEntry(thinking_level="high"),
        TurnStartEntry(),
        said(PROMPT),
        said(user("hi")),
        said(reply(calls=("c",))),
        said(result("c")),
        HIDDEN,
        CustomEntry(custom_type="x"),
        LabelEntry(target_id="e4", label="x"),
    )
    assert build_context(path) == SessionContext(
        messages=(PROMPT, user("hi"), reply(calls=("c",)), result("c")),
        system=SystemState("Be brief.", {"rules": "No."}, (READ,)),
        model=("acme", "m1"),
        thinking_level="high",
    )


def test_the_model_is_the_later_of_the_last_choice_and_the_last_reply() -> None:
    choice = ModelChangeEntry(provider="other", model_id="m9")
    assert build_context(chain(choice, said(reply()))).model == ("acme", "m1")
    assert build_context(chain(said(reply()), choice)).model == ("other", "m9")


def test_derived_messages_have_the_time_of_their_entry() -> None:
    path = chain(
        CustomMessageEntry(custom_type="note", content="look", display=False, details={"a": 1}),
        BranchSummaryEntry(from_id="e9", summary="tried"),
        BranchSummaryEntry(from_id="e9", summary=""),
    )
    assert build_context(path).messages == (
        CustomMessage(
            timestamp=START_MS, custom_type="note", content="look", display=False, details={"a": 1}
        ),
        BranchSummaryMessage(timestamp=START_MS + 1000, summary="tried", from_id="e9"),
    )


# --- compaction ---------------------------------------------------------------------------------------


def summary(text: str, at: int) -> CompactionSummaryMessage:
    return CompactionSummaryMessage(timestamp=START_MS + 1000 * at, summary=text, tokens_before=9)


def test_a_compaction_comes_first_then_what_it_kept_then_what_followed() -> None:
    path = chain(
        said(PROMPT),
        said(user("old")),
        said(user("kept")),
        said(SystemMessage(timestamp=2, sections={"rules": "Yes."})),
        CompactionEntry(
            summary="S", first_kept_entry_id="e2", tokens_before=9, system_message=SystemMessage(timestamp=5)
        ),
        said(reply("after")),
    )
    context = build_context(path)
    assert context.messages == (SystemMessage(timestamp=5), summary("S", 4), user("kept"), reply("after"))
    assert context.system == SystemState()


def test_a_compaction_without_a_system_message_starts_with_the_replay_of_all_before_it() -> None:
    path = chain(
        said(PROMPT),
        said(SystemMessage(timestamp=2, sections={"rules": None}, tools_added=[EDIT])),
        CompactionEntry(summary="S", first_kept_entry_id="e2", tokens_before=9),
        said(user("next")),
    )
    replayed = SystemMessage(timestamp=START_MS + 2000, content="Be brief.", tools_added=[READ, EDIT])
    context = build_context(path)
    assert context.messages == (replayed, summary("S", 2), user("next"))
    assert context.system == SystemState("Be brief.", {}, (READ, EDIT))


def test_a_compaction_in_a_branch_without_system_messages_adds_none() -> None:
    path = chain(said(user("old")), CompactionEntry(summary="S", first_kept_entry_id="e1", tokens_before=9))
    assert build_context(path).messages == (summary("S", 1),)


@pytest.mark.parametrize("first", ["e2", "nobody", "e3", None])
def test_a_compaction_that_names_itself_or_nothing_before_it_keeps_nothing(first: str | None) -> None:
    path = chain(
        said(user("old")),
        said(reply()),
        CompactionEntry(summary="S", first_kept_entry_id=first, tokens_before=9),
        said(user("next")),
    )
    assert build_context(path).messages == (summary("S", 2), user("next"))


def test_only_the_last_compaction_counts_and_an_older_one_is_not_repeated() -> None:
    path = chain(
        said(user("one")),
        CompactionEntry(summary="old", first_kept_entry_id="e0", tokens_before=9),
        said(user("two")),
        CompactionEntry(summary="new", first_kept_entry_id="e0", tokens_before=9),
    )
    assert build_context(path).messages == (summary("new", 3), user("one"), user("two"))


def test_an_older_file_s_compaction_brings_its_kept_messages_along() -> None:
    """Session files: `compaction`."""
    path = chain(
        said(user("old")),
        CompactionEntry(summary="S", tokens_before=9, retained_tail=[user("tail")]),
        said(user("next")),
    )
    assert build_context(path).messages == (summary("S", 1), user("tail"), user("next"))


# --- edits --------------------------------------------------------------------------------------------


def test_the_last_edit_of_a_target_wins() -> None:
    """Session files: `context_edit`."""
    path = chain(
        said(user("secret")),
        ContextEditEntry(target_id="e0", replacement=None),
        ContextEditEntry(target_id="e0", replacement="shown"),
    )
    assert build_context(path).messages == (UserMessage(timestamp=1, content="shown"),)
    assert build_context(path[:2]).messages == ()
    assert build_context(path[:1]).messages == (user("secret"),)


def test_a_text_becomes_a_block_where_only_blocks_are_allowed() -> None:
    path = chain(
        said(reply("a")),
        said(result("c")),
        CustomMessageEntry(custom_type="n", content=[]),
        *(ContextEditEntry(target_id=f"e{at}", replacement="new") for at in range(3)),
    )
    contents = [message.content for message in build_context(path).messages]  # type: ignore[union-attr]
    assert contents == [[TextBlock(text="new")], [TextBlock(text="new")], "new"]


def test_blocks_that_a_role_cannot_hold_are_left_out_of_an_edit() -> None:
    image, text = ImageBlock(data="aa", mime_type="image/png"), TextBlock(text="t")
    path = chain(
        said(reply("a")),
        said(user("b")),
        ContextEditEntry(target_id="e0", replacement=[image, text]),
        ContextEditEntry(target_id="e1", replacement=[image, text]),
    )
    contents = [message.content for message in build_context(path).messages]  # type: ignore[union-attr]
    assert contents == [[text], [image, text]]


def test_an_edit_of_what_cannot_be_edited_changes_nothing() -> None:
    path = chain(
        said(PROMPT),
        BranchSummaryEntry(from_id="root", summary="s"),
        *(ContextEditEntry(target_id=target, replacement=None) for target in ("e0", "e1", "nobody")),
    )
    assert build_context(path).messages == (
        PROMPT,
        BranchSummaryMessage(timestamp=START_MS + 1000, summary="s", from_id="root"),
    )


# --- system messages ----------------------------------------------------------------------------------


def test_sections_are_patched_by_name_and_tools_removed_before_added() -> None:
    """Session files: Messages, `system`."""
    newer = ToolDeclaration(name="read", description="newer")
    state = replay_system(
        [
            SystemMessage(timestamp=1, content="A", sections={"x": "X", "y": "Y"}, tools_added=[READ, EDIT]),
            SystemMessage(
                timestamp=2, content=[TextBlock(text="B")], sections={"x": None, "z": "Z", "y": "Y2"}
            ),
            SystemMessage(timestamp=3, tools_removed=[ToolName(name="read")], tools_added=[newer]),
            SystemMessage(timestamp=4, tools_removed=[ToolName(name="nobody")]),
        ]
    )
    assert state == SystemState("A\n\nB", {"y": "Y2", "z": "Z"}, (EDIT, newer))
    assert state.prompt == "A\n\nB\n\nY2\n\nZ"


def test_a_replacing_system_message_discards_all_before_it() -> None:
    state = replay_system([PROMPT, SystemMessage(timestamp=2, sections={"only": "this"}, replace=True)])
    assert state == SystemState("", {"only": "this"}, ())


def test_a_state_written_as_one_message_replays_to_itself() -> None:
    state = replay_system([PROMPT, SystemMessage(timestamp=2, sections={"more": "text"})])
    assert replay_system([state.message(9)]) == state


# --- roles --------------------------------------------------------------------------------------------


def test_a_model_is_given_user_assistant_and_tool_result_messages_as_they_are() -> None:
    """Session files: Conversion for the model."""
    given: list[Message] = [PROMPT, user("a"), reply(calls=("c",)), result("c")]
    assert to_model_messages(given) == tuple(given[1:])


def test_other_roles_become_user_messages() -> None:
    image = ImageBlock(data="aa", mime_type="image/png")
    assert to_model_messages(
        [
            CustomMessage(timestamp=1, custom_type="n", content="text"),
            CustomMessage(timestamp=2, custom_type="n", content=[image], display=False),
            CompactionSummaryMessage(timestamp=3, summary="S"),
            BranchSummaryMessage(timestamp=4, summary="B"),
            BashExecutionMessage(timestamp=5, command="ls", exclude_from_context=True),
        ]
    ) == (
        user("text", 1),
        UserMessage(timestamp=2, content=[image]),
        user(
            "The earlier part of this conversation was compacted. This is a summary of it:"
            "\n\n<summary>\nS\n</summary>",
            3,
        ),
        user(
            "The conversation came back from another branch. This is a summary of what happened there:"
            "\n\n<summary>\nB\n</summary>",
            4,
        ),
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (BashExecutionMessage(timestamp=1, command="ls", output="a\nb"), "Ran `ls`\n```\na\nb\n```"),
        (BashExecutionMessage(timestamp=1, command="true", exit_code=0), "Ran `true`\n(no output)"),
        (
            BashExecutionMessage(timestamp=1, command="false", exit_code=1),
            "Ran `false`\n(no output)\n\nCommand exited with code 1",
        ),
        (
            BashExecutionMessage(timestamp=1, command="x", exit_code=130, cancelled=True),
            "Ran `x`\n(no output)\n\n(command cancelled)",
        ),
        (
            BashExecutionMessage(
                timestamp=1, command="x", output="o", truncated=True, full_output_path="/t/o"
            ),
            "Ran `x`\n```\no\n```\n\n[Output truncated. Full output: /t/o]",
        ),
        (BashExecutionMessage(timestamp=1, command="x", truncated=True), "Ran `x`\n(no output)"),
    ],
)
def test_a_command_of_the_user_is_told_with_its_output_and_its_end(
    message: BashExecutionMessage, text: str
) -> None:
    assert to_model_messages([message]) == (user(text),)
