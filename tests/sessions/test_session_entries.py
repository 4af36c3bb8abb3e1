"""Lines to values and back."""

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CustomMessage,
    SystemMessage,
    TextBlock,
    ToolCallBlock,
    ToolDeclaration,
    Usage,
    UserMessage,
)
from knightcode.sessions.clock import iso, new_entry_id, new_session_id, parse_iso
from knightcode.sessions.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionHeader,
    SessionInfoEntry,
    ThinkingLevelChangeEntry,
    TurnEndEntry,
    TurnError,
    TurnStartEntry,
    UnknownEntry,
    UsageEntry,
    decode_entry,
    encode_entry,
    encode_header,
)
from tests.sessions.samples import (
    START,
    START_MS,
    chain,
    header_on,
    json_line,
    kind_of,
    reply,
    result,
    said,
    user,
)

BASE: dict[str, Any] = {"id": "a1", "parentId": None, "timestamp": START}

ONE_OF_EACH = chain(
    said(user("List the routes")),
    said(reply(calls=("c1",))),
    said(result("c1")),
    said(SystemMessage(timestamp=1, sections={"rules": None}, tools_added=[ToolDeclaration(name="ls")])),
    said(BashExecutionMessage(timestamp=1, command="ls", exit_code=2)),
    said(CustomMessage(timestamp=1, custom_type="x", content="old form")),
    ModelChangeEntry(provider="openai", model_id="gpt-x"),
    ThinkingLevelChangeEntry(thinking_level="medium"),
    CompactionEntry(summary="s", first_kept_entry_id="e0", tokens_before=9, details={"readFiles": []}),
    BranchSummaryEntry(from_id="root", summary="left"),
    ContextEditEntry(target_id="e0"),
    ContextEditEntry(target_id="e1", replacement=[TextBlock(text="x")]),
    CustomEntry(custom_type="knightcode.approvalMode", data={"mode": "ask"}),
    CustomMessageEntry(custom_type="note", content=[TextBlock(text="hi")], display=False),
    LabelEntry(target_id="e0", label="here"),
    SessionInfoEntry(name="Shop"),
    UsageEntry(kind="cache_warm", provider="p", model="m", usage=Usage(cache_read=4, total_tokens=4)),
    TurnStartEntry(),
    TurnEndEntry(turn_id="e17", status="failed", error=TurnError(message="no", kind="network")),
)


def test_there_is_a_sample_of_each_type() -> None:
    assert {type(entry) for entry in ONE_OF_EACH} == set(get_args(KnownEntry))


@pytest.mark.parametrize("entry", ONE_OF_EACH, ids=kind_of)
def test_an_entry_comes_back_from_its_line_as_it_was(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_a_line_has_the_members_that_the_format_names() -> None:
    """Session files: Entries."""
    entry = TurnEndEntry(id="b2", parent_id="a1", timestamp=START, turn_id="a1", status="completed")
    assert json.loads(encode_entry(entry)) == {
        "type": "turn_end",
        "id": "b2",
        "parentId": "a1",
        "timestamp": START,
        "turnId": "a1",
        "status": "completed",
    }


def test_a_root_and_a_removing_edit_write_their_nulls() -> None:
    line = json.loads(encode_entry(ContextEditEntry(id="b2", timestamp=START, target_id="a1")))
    assert line == {**BASE, "type": "context_edit", "id": "b2", "targetId": "a1", "replacement": None}


def test_null_members_read_as_absent_ones() -> None:
    line = json_line(
        **BASE,
        type="message",
        message={
            "role": "assistant",
            "timestamp": 7,
            "content": [{"type": "text", "text": "x", "textSignature": None}],
            "provider": None,
            "usage": {"input": 1, "output": None, "cost": None},
            "errorMessage": None,
        },
    )
    assert decode_entry(line) == MessageEntry(
        id="a1",
        timestamp=START,
        message=AssistantMessage(
            timestamp=7, content=[TextBlock(text="x")], usage=Usage(input=1, total_tokens=1)
        ),
    )


@pytest.mark.parametrize("role", ["user", "assistant", "toolResult"])
@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_a_message_without_content_has_none(role: str, content: dict[str, None]) -> None:
    """Session files: Rebuilding context."""
    message = {"role": role, "timestamp": 1, "toolCallId": "c", "toolName": "ls", **content}
    entry = decode_entry(json_line(**BASE, type="message", message=message))
    assert isinstance(entry, MessageEntry)
    assert entry.message.content == []  # type: ignore[union-attr]


def test_nulls_inside_arguments_and_sections_keep_their_meaning() -> None:
    call = {"type": "toolCall", "id": "c", "name": "ls", "arguments": {"path": None}, "namespace": None}
    entry = decode_entry(
        json_line(**BASE, type="message", message={"role": "assistant", "timestamp": 1, "content": [call]})
    )
    assert isinstance(entry, MessageEntry)
    assert entry.message.content == [ToolCallBlock(id="c", name="ls", arguments={"path": None})]  # type: ignore[union-attr]
    entry = decode_entry(
        json_line(
            **BASE,
            type="message",
            message={"role": "system", "timestamp": 1, "content": None, "sections": {"a": None}},
        )
    )
    assert isinstance(entry, MessageEntry)
    assert entry.message == SystemMessage(timestamp=1, sections={"a": None})


def test_blocks_of_unknown_types_are_left_out_and_the_message_stays() -> None:
    content = [{"type": "hologram", "data": "x"}, {"type": "text", "text": "hi"}, 5, {"type": ["text"]}]
    entry = decode_entry(
        json_line(**BASE, type="message", message={"role": "user", "timestamp": 1.0, "content": content})
    )
    assert isinstance(entry, MessageEntry)
    assert entry.message == UserMessage(timestamp=1, content=[TextBlock(text="hi")])


def test_a_reply_whose_content_is_a_text_has_one_block() -> None:
    entry = decode_entry(
        json_line(**BASE, type="message", message={"role": "assistant", "timestamp": START, "content": "hi"})
    )
    assert isinstance(entry, MessageEntry)
    assert entry.message == AssistantMessage(timestamp=START_MS, content=[TextBlock(text="hi")])


def test_the_kept_messages_of_an_older_compaction_are_put_right_like_others() -> None:
    """Session files: `compaction`."""
    tail = [
        {"role": "user", "timestamp": 1, "content": "a", "attachments": None},
        {"role": "oracle", "timestamp": 1},
        5,
    ]
    entry = decode_entry(
        json_line(
            **BASE,
            type="compaction",
            summary="s",
            firstKeptEntryId=None,
            tokensBefore=5,
            retainedTail=tail,
            systemMessage={
                "role": "system",
                "timestamp": 1,
                "toolsAdded": [{"name": "ls", "description": None}],
            },
            usage={"input": 1, "output": None},
        )
    )
    assert entry == CompactionEntry(
        id="a1",
        timestamp=START,
        summary="s",
        tokens_before=5,
        retained_tail=[UserMessage(timestamp=1, content="a")],
        system_message=SystemMessage(timestamp=1, tools_added=[ToolDeclaration(name="ls")]),
        usage=Usage(input=1, total_tokens=1),
    )


@pytest.mark.parametrize("time", [True, 1e300, "noon", [1]])
def test_a_time_that_is_none_gives_way_to_that_of_the_entry(time: object) -> None:
    entry = decode_entry(json_line(**BASE, type="message", message={"role": "user", "timestamp": time}))
    assert entry == MessageEntry(
        id="a1", timestamp=START, message=UserMessage(timestamp=START_MS, content=[])
    )


@pytest.mark.parametrize(
    "members",
    [
        {"type": "hologram", "data": [1]},
        {"type": "message", "message": {"role": "oracle", "timestamp": 1}},
        {"type": "message", "message": {"role": ["user"], "timestamp": 1}},
        {"type": "message", "message": "hello"},
        {"type": "message"},
        {"type": "model_change", "provider": 5, "modelId": "x"},
        {"type": "thinking_level_change", "thinkingLevel": "enormous"},
        {"type": "turn_end", "turnId": "t", "status": "exploded"},
        {"type": "compaction", "summary": None},
        {"type": "compaction", "summary": "s", "retainedTail": 5},
    ],
    ids=str,
)
def test_an_entry_that_is_not_understood_keeps_its_place_and_its_line(members: dict[str, Any]) -> None:
    """Session files: Entries."""
    line = json_line(**{**BASE, "parentId": "p0"}, **members).rstrip(b"\n")
    entry = decode_entry(line)
    assert entry == UnknownEntry(type=members["type"], id="a1", parent_id="p0", timestamp=START, raw=line)
    assert encode_entry(entry) == line


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \r",
        b"\0\0\0\0",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b'{"type":"label","id":"a","targetId":"b"',
        b'{"type":"label","targetId":"b"}',
        b'{"type":"label","id":"","targetId":"b"}',
        b'{"type":"label","id":7,"targetId":"b"}',
        b'{"type":7,"id":"a"}',
        b'{"id":"a"}',
        b'{"type":"session","id":"a","version":3}',
        b'{"type":"custom","id":"a","customType":"x","data":NaN}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe\x00",
    ],
    ids=lambda line: repr(line[:30]),
)
def test_a_line_without_a_whole_entry_holds_none(line: bytes) -> None:
    """Session files: Loading and damaged files."""
    assert decode_entry(line) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\\ud83d", "\ufffd"),
        (b"\\ud83d\\ude00", "\U0001f600"),
        (b"a\xffb", "a\ufffdb"),
        ("\u2028\u2029\u0085\u001e".replace("\u001e", "\\u001e").encode(), "\u2028\u2029\u0085\u001e"),
        (b"nul \\u0000", "nul \0"),
    ],
)
def test_text_that_no_line_may_hold_is_replaced_and_all_other_text_is_kept(raw: bytes, text: str) -> None:
    line = b'{"type":"session_info","id":"a1","parentId":null,"timestamp":"' + START.encode() + b'","name":"'
    assert decode_entry(line + raw + b'"}') == SessionInfoEntry(id="a1", timestamp=START, name=text)


def test_half_a_surrogate_pair_is_written_as_a_replacement_character() -> None:
    entry = CustomEntry(id="a1", timestamp=START, custom_type="x", data={"k\ud83d": ["\ude00"]})
    assert decode_entry(encode_entry(entry)) == CustomEntry(
        id="a1", timestamp=START, custom_type="x", data={"k\ufffd": ["\ufffd"]}
    )


def test_an_entry_without_a_time_has_that_of_its_message() -> None:
    entry = decode_entry(
        json_line(type="message", id="a1", message={"role": "user", "timestamp": START_MS, "content": "x"})
    )
    assert entry == MessageEntry(
        id="a1", timestamp=START, message=UserMessage(timestamp=START_MS, content="x")
    )


def test_a_message_without_a_time_has_that_of_its_entry() -> None:
    entry = decode_entry(json_line(**BASE, type="message", message={"role": "user", "content": "x"}))
    assert isinstance(entry, MessageEntry)
    assert entry.message.timestamp == START_MS


def test_a_missing_total_is_the_sum_of_the_counts() -> None:
    """Session files: Usage."""
    usage = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4}
    entry = decode_entry(
        json_line(**BASE, type="usage", kind="cache_warm", provider="p", model="m", usage=usage)
    )
    assert isinstance(entry, UsageEntry)
    assert entry.usage.total_tokens == 10


@given(st.binary(max_size=80))
@settings(max_examples=150)
def test_no_bytes_make_the_decoder_fail(line: bytes) -> None:
    decode_entry(line)
    header_on(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from([kind_of(entry) for entry in ONE_OF_EACH] + ["other"])


@given(JSON)
@settings(max_examples=60)
def test_any_data_of_an_extension_comes_back(data: Any) -> None:
    entry = CustomEntry(id="a1", timestamp=START, custom_type="x", data=data)
    line = encode_entry(entry)
    assert b"\n" not in line
    assert decode_entry(line) == entry


@given(
    TYPES,
    st.dictionaries(
        st.sampled_from(["parentId", "timestamp", "message", "content", "usage", "summary", "replacement"]),
        JSON
        | st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "system"]) | JSON, "content": JSON, "usage": JSON}
        ),
    ),
)
@settings(max_examples=150)
def test_an_object_with_type_and_id_is_always_an_entry(kind: str, members: dict[str, Any]) -> None:
    entry = decode_entry(json_line(**{**members, "type": kind, "id": "a1"}))
    assert entry is not None
    assert (entry.id, kind_of(entry)) == ("a1", kind)
    assert decode_entry(encode_entry(entry)) == entry


# --- header, times, ids -----------------------------------------------------------------------------


def test_a_header_is_written_with_all_that_readers_need() -> None:
    header = SessionHeader(version=3, id="s1", timestamp=START, cwd="/srv")
    assert encode_header(header) == (
        b'{"type":"session","version":3,"id":"s1","timestamp":"2027-04-09T06:31:52.480Z","cwd":"/srv"}'
    )
    assert header_on(encode_header(header)) == header


def test_an_old_header_has_version_one_and_may_lack_everything_but_its_id() -> None:
    assert header_on(b'{"type":"session","id":"s1","cwd":null}') == SessionHeader(version=1, id="s1")


@pytest.mark.parametrize("version", ["3", True, 2.5, [], {}])
def test_a_version_that_is_no_number_counts_as_the_present_one(version: object) -> None:
    header = header_on(json_line(type="session", id="s1", version=version))
    assert header == SessionHeader(version=3, id="s1")


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"type":"session"}', b'{"type":"session","id":5}', b'{"id":"a"}']
)
def test_what_has_no_type_and_id_of_a_session_is_no_header(line: bytes) -> None:
    assert header_on(line) is None


def test_a_header_after_a_byte_order_mark_is_read() -> None:
    assert header_on(b'\xef\xbb\xbf{"type":"session","id":"s1"}') == SessionHeader(version=1, id="s1")


@given(st.integers(min_value=-(10**12), max_value=10**14))
@settings(max_examples=60)
def test_a_time_comes_back_from_its_text(ms: int) -> None:
    assert parse_iso(iso(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (START, START_MS),
        ("2027-04-09T08:31:52.480+02:00", START_MS),
        ("2027-04-09T06:31:52.480", START_MS),
        ("2027-04-09T06:31:52Z", START_MS - 480),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_are_read_in_any_zone_and_nonsense_is_none(text: str, ms: int | None) -> None:
    assert parse_iso(text) == ms


def test_an_entry_id_that_is_taken_is_drawn_again() -> None:
    drawn = iter(["aaaaaaaa", "aaaaaaaa", "bbbbbbbb"])
    assert new_entry_id({"aaaaaaaa"}, lambda: next(drawn)) == "bbbbbbbb"


def test_after_a_hundred_draws_an_entry_id_is_a_whole_uuid() -> None:
    draws: list[str] = []

    def draw() -> str:
        draws.append("aaaaaaaa")
        return "aaaaaaaa"

    assert (len(new_entry_id({"aaaaaaaa"}, draw)), len(draws)) == (36, 100)


def test_an_entry_id_is_eight_hex_digits() -> None:
    assert re.fullmatch("[0-9a-f]{8}", new_entry_id(()))


def test_session_ids_are_uuids_of_version_seven_that_sort_by_time() -> None:
    first, second = new_session_id(START_MS), new_session_id(START_MS + 1)
    assert first < second
    assert (first[14], first[19] in "89ab", int(first[:8] + first[9:13], 16)) == ("7", True, START_MS)
