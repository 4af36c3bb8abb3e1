"""Turns against a provider on the loopback interface: what it is sent, and what becomes of its stream."""

import json
import time
from pathlib import Path

import pytest

from tests.app_server.pipe import Message, Pipe
from tests.app_server.provider import (
    CONTEXT_WINDOW,
    DIALECTS,
    KEY,
    MAX_TOKENS,
    AnthropicMessages,
    ChatCompletions,
    Dialect,
    Tokens,
    calls,
    name_of,
    open_provided,
    reply,
    says,
    thinks,
)

both = pytest.mark.parametrize("dialect", DIALECTS, ids=name_of)
CACHED = {"cache_control": {"type": "ephemeral"}}


async def stored(pipe: Pipe, thread_id: str) -> list[Message]:
    """The messages of the thread's session file, in order."""
    thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
    entries = [json.loads(line) for line in Path(thread["sessionFile"]).read_bytes().splitlines()]
    return [entry["message"] for entry in entries if entry["type"] == "message"]


async def items_of(pipe: Pipe, thread_id: str) -> list[Message]:
    """The items of the thread's last turn, as read back."""
    page = await pipe.call("thread/read", threadId=thread_id)
    items: list[Message] = page["turns"][-1]["items"]
    return items


def declared(messages: list[Message]) -> tuple[str, list[Message]]:
    """The prompt and the tools that a session file says its first request was made with."""
    system = messages[0]
    assert system["role"] == "system"
    return "\n\n".join(system["sections"].values()), system["toolsAdded"]


def results_in(dialect: Dialect, body: Message) -> list[tuple[str, str]]:
    """Call id and text of each tool result in a request."""
    messages = dialect.conversation(body)
    if dialect.api == "openai-completions":
        return [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"]
    blocks = [block for one in messages if isinstance(one["content"], list) for block in one["content"]]
    return [(one["tool_use_id"], one["content"]) for one in blocks if one["type"] == "tool_result"]


# --- what the provider is sent -------------------------------------------------------------------

TALK = (thinks("Which ", "file?"), says("I ", "look."), calls("c1", "read", '{"path": ', '"a.txt"}'))


async def test_anthropic_messages_gets_exactly_the_documented_bodies(tmp_path: Path) -> None:
    """Models and providers: Anthropic Messages; agent loop: Building the provider request."""
    dialect = AnthropicMessages()
    (tmp_path / "a.txt").write_text("hello")
    answers = reply(dialect, *TALK), reply(dialect, says("Done."))
    async with open_provided(tmp_path, dialect, *answers, model={"reasoning": True}) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path, thinkingLevel="low")
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        prompt, tools = declared(await stored(pipe, thread_id))
    assert prompt.startswith("You are KnightCode") and f"<cwd>\n{tmp_path}\n</cwd>" in prompt
    first, second = provider.requests
    assert (first.path, first.headers["x-api-key"]) == (dialect.path, "sk-loopback")
    assert first.headers["anthropic-version"] == "2023-06-01"
    listed = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["parameters"],
            "eager_input_streaming": True,
        }
        for tool in tools
    ]
    body = {
        "model": "m-1",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "summarized"},
        "system": [{"type": "text", "text": prompt, **CACHED}],
        "tools": [*listed[:-1], {**listed[-1], **CACHED}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go", **CACHED}]}],
    }
    assert first.json() == body
    assert second.json() == {
        **body,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Which file?", "signature": "signed"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.txt"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": "hello",
                        "is_error": False,
                        **CACHED,
                    }
                ],
            },
        ],
    }


async def test_chat_completions_gets_exactly_the_documented_bodies(tmp_path: Path) -> None:
    """Models and providers: OpenAI Chat Completions; agent loop: Building the provider request."""
    dialect = ChatCompletions()
    (tmp_path / "a.txt").write_text("hello")
    answers = reply(dialect, *TALK), reply(dialect, says("Done."))
    async with open_provided(tmp_path, dialect, *answers, model={"reasoning": True}) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path, thinkingLevel="low")
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        prompt, tools = declared(await stored(pipe, thread_id))
    first, second = provider.requests
    assert (first.path, first.headers["authorization"]) == (dialect.path, "Bearer sk-loopback")
    system = {"role": "system", "content": prompt}
    user = {"role": "user", "content": [{"type": "text", "text": "go"}]}
    body = {
        "model": "m-1",
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_effort": "low",
        "tools": [{"type": "function", "function": tool} for tool in tools],
        "messages": [system, user],
    }
    assert first.json() == body
    function = {"name": "read", "arguments": '{"path":"a.txt"}'}
    assert second.json() == {
        **body,
        "messages": [
            system,
            user,
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Which file?",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "hello"},
        ],
    }


@pytest.mark.proves("HOST-003")
@both
async def test_all_threads_ask_over_one_connection_with_one_key(tmp_path: Path, dialect: Dialect) -> None:
    """Models and providers: Common; a kept connection saves the handshake of every request but the first."""
    answers = [reply(dialect, says(text)) for text in ("One.", "Two.", "Three.")]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        one, other = await pipe.start_thread(tmp_path), await pipe.start_thread(tmp_path)
        for thread_id in (one, one, other):
            assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
    seen = provider.requests
    assert [request.connection for request in seen] == [1, 1, 1]
    assert [len(dialect.conversation(request.json())) for request in seen] == [1, 3, 1]
    header = "x-api-key" if dialect.api == "anthropic-messages" else "authorization"
    assert {request.headers[header].removeprefix("Bearer ") for request in seen} == {KEY}


# --- what becomes of its stream ------------------------------------------------------------------


@pytest.mark.proves("ITEM-012", "ITEM-013", "ITEM-015", "ITEM-019", "TURN-017", "TURN-018")
@both
async def test_thinking_text_and_a_call_become_items_that_read_back_the_same(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server: Threads and turns; App Server notes: Session events to notifications."""
    (tmp_path / "a.txt").write_text("hello")
    answers = reply(dialect, *TALK), reply(dialect, says("Done."))
    async with open_provided(tmp_path, dialect, *answers, model={"reasoning": True}) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path)
        before = time.time() * 1000
        turn = (await pipe.run_turn(thread_id))["turn"]
        after = time.time() * 1000
        items = await items_of(pipe, thread_id)
        told = pipe.notifications(thread_id)
        replies = [one for one in await stored(pipe, thread_id) if one["role"] == "assistant"]
    assert [(item["type"], item.get("text"), item["index"]) for item in items] == [
        ("userMessage", "go", 0),
        ("reasoning", "Which file?", 1),
        ("agentMessage", "I look.", 2),
        ("toolCall", None, 3),
        ("agentMessage", "Done.", 4),
    ]
    ends = [params["item"] for method, params in told if method == "item/completed"]
    completed = {item["id"]: item for item in ends}
    assert sorted(completed.values(), key=lambda item: item["index"]) == items
    deltas = [(method, params["delta"]) for method, params in told if method.endswith("/delta")]
    assert deltas == [
        ("item/reasoning/delta", "Which "),
        ("item/reasoning/delta", "file?"),
        ("item/agentMessage/delta", "I "),
        ("item/agentMessage/delta", "look."),
        ("item/agentMessage/delta", "Done."),
    ]
    begun = next(params["turn"] for method, params in told if method == "turn/started")
    assert "completedAt" not in begun and begun["startedAt"] == turn["startedAt"]
    assert before - 1 <= turn["startedAt"] <= turn["completedAt"] <= after + 1
    assert turn["startedAt"] <= items[0]["completedAt"] and "startedAt" not in items[0]
    for item, message in ((items[1], replies[0]), (items[2], replies[0]), (items[4], replies[1])):
        began, took = message["timestamp"], message["durationMs"]
        assert (item["startedAt"], item["completedAt"]) == (began, began + took)
        assert turn["startedAt"] <= began <= began + took <= turn["completedAt"]


@both
async def test_parallel_calls_whose_arguments_arrive_in_turns_each_get_their_own(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Agent loop: Streaming a reply, Tool calls; results go back in the order of the calls."""
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text(f"text of {name}")
    parts = (
        calls("c1", "read", '{"pa', 'th": "o', 'ne"}'),
        calls("c2", "read", '{"path"', ': "two"}'),
        calls("c3", "read", '{"path": "thr', "ee", '"', "}"),
    )
    answers = reply(dialect, *parts, interleaved=True), reply(dialect, says("Done."))
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        items = await items_of(pipe, thread_id)
    assert [(item["id"], item["input"], item["status"]) for item in items[1:4]] == [
        ("c1", {"path": "one"}, "completed"),
        ("c2", {"path": "two"}, "completed"),
        ("c3", {"path": "three"}, "completed"),
    ]
    assert results_in(dialect, provider.requests[1].json()) == [
        ("c1", "text of one"),
        ("c2", "text of two"),
        ("c3", "text of three"),
    ]


@pytest.mark.proves("USAGE-001", "USAGE-005")
@both
async def test_usage_and_its_cost_add_up_over_replies_and_turns(tmp_path: Path, dialect: Dialect) -> None:
    """App Server: Subscriptions and replacement (TokenUsage)."""
    (tmp_path / "a.txt").write_text("hello")
    each = [Tokens(100, 20, 30, 40), Tokens(10, 5, 170, 0), Tokens(7, 3, 0, 1)]
    parts = [calls("c1", "read", path="a.txt")], [says("Done.")], [says("Again.")]
    answers = [reply(dialect, *said, tokens=tokens) for said, tokens in zip(parts, each, strict=True)]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path)
        turns = [(await pipe.run_turn(thread_id))["turn"]["id"] for _ in range(2)]
        resumed = await pipe.call("thread/resume", threadId=thread_id)
    told = pipe.notifications(thread_id)
    updates = [params for method, params in told if method == "thread/tokenUsage/updated"]
    sums = [each[: count + 1] for count in range(3)]
    assert updates == [
        {
            "threadId": thread_id,
            "turnId": turn_id,
            "usage": {
                "input": sum(one.input for one in so_far),
                "output": sum(one.output for one in so_far),
                "cacheRead": sum(one.cache_read for one in so_far),
                "cacheWrite": sum(one.cache_write for one in so_far),
                "cost": pytest.approx(sum(one.cost for one in so_far)),
                "contextTokens": so_far[-1].all,
                "contextWindow": CONTEXT_WINDOW,
            },
        }
        for turn_id, so_far in zip([turns[0], turns[0], turns[1]], sums, strict=True)
    ]
    assert resumed["usage"] == updates[-1]["usage"]
    order = [
        method
        for method, params in told
        if method == "thread/tokenUsage/updated"
        or (method == "item/completed" and params["item"]["type"] == "toolCall")
    ]
    assert order[:2] == ["thread/tokenUsage/updated", "item/completed"]


@both
async def test_the_reason_to_stop_is_stored_in_our_words_and_in_the_providers(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Models and providers: Common; a reply at its output limit is a reply like any other."""
    (tmp_path / "a.txt").write_text("hello")
    answers = (
        reply(dialect, calls("c1", "read", path="a.txt")),
        reply(dialect, says("A whole answer.")),
        reply(dialect, says("An answer that is cut"), stop="length"),
    )
    async with open_provided(tmp_path, dialect, *answers) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path)
        for _ in range(2):
            assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        replies = [one for one in await stored(pipe, thread_id) if one["role"] == "assistant"]
        items = await items_of(pipe, thread_id)
    words = ["tool_use", "end_turn", "max_tokens"]
    if dialect.api == "openai-completions":
        words = ["tool_calls", "stop", "length"]
    assert [(one["stopReason"], one["rawStopReason"]) for one in replies] == list(
        zip(["toolUse", "stop", "length"], words, strict=True)
    )
    assert [(one["api"], one["provider"], one["model"]) for one in replies] == [
        (dialect.api, "acme", "m-1")
    ] * 3
    assert items[-1]["text"] == "An answer that is cut"


@both
async def test_calls_of_a_reply_at_its_output_limit_are_not_run_and_the_model_is_told(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Agent loop: Tool calls."""
    parts = (
        calls("c1", "bash", command="touch ran"),
        calls("c2", "write", '{"path": "cut.txt", "content": "half of i'),
    )
    answers = reply(dialect, *parts, stop="length"), reply(dialect, says("Once more."))
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        items = await items_of(pipe, thread_id)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "cut.txt").exists()
    assert [(item["id"], item["status"]) for item in items[1:3]] == [("c1", "failed"), ("c2", "failed")]
    told = results_in(dialect, provider.requests[1].json())
    assert [call_id for call_id, _ in told] == ["c1", "c2"]
    assert all("output limit" in text and "send the call again" in text for _, text in told)


@both
async def test_a_call_that_cannot_be_run_fails_and_the_model_reads_why(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Agent loop: Tool calls, Streaming a reply."""
    (tmp_path / "a.txt").write_text("hello")
    cases = [
        (calls("no-json", "read", "this is no JSON"), "not valid JSON"),
        (calls("no-value", "read", '{"path": }'), "not valid JSON"),
        (calls("a-list", "read", '["a.txt"]'), "not valid JSON"),
        (calls("wrong-type", "read", '{"path": {"a": 1}}'), "path"),
        (calls("cut", "edit", '{"path": "a.txt", "edits": [{"oldText": '), "not valid JSON"),
        (calls("unknown", "nope", path="a.txt"), "Tool nope not found"),
    ]
    answers = [reply(dialect, said) for part, _ in cases for said in (part, says("I see."))]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess")
        for number, (part, problem) in enumerate(cases):
            assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
            items = await items_of(pipe, thread_id)
            call_id, text = results_in(dialect, provider.requests[2 * number + 1].json())[-1]
            assert call_id == part.id and problem in text
            assert (items[1]["id"], items[1]["status"], items[2]["text"]) == (part.id, "failed", "I see.")
            assert items[1]["output"] == [{"type": "text", "text": text}]
    assert (tmp_path / "a.txt").read_text() == "hello"


@pytest.mark.proves("ITEM-010")
@both
async def test_call_ids_that_a_provider_uses_again_name_different_items(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server notes: Item ids; some servers count their calls from one in every reply."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"text of {name}")
    answers = [
        reply(dialect, calls("c1", "read", path="one")),
        reply(dialect, calls("c1", "read", path="two")),
        reply(dialect, says("Done.")),
    ]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        items = await items_of(pipe, thread_id)
    shown = [(item["id"], item["input"]["path"], item["output"][0]["text"]) for item in items[1:3]]
    assert shown[0] == ("c1", "one", "text of one")
    assert shown[1][0] != "c1" and shown[1][1:] == ("two", "text of two")
    assert results_in(dialect, provider.requests[2].json()) == [
        ("c1", "text of one"),
        (shown[1][0], "text of two"),
    ]


@both
async def test_a_reply_that_says_nothing_completes_its_turn(tmp_path: Path, dialect: Dialect) -> None:
    """App Server notes: Item; empty blocks make no item."""
    answers = reply(dialect), reply(dialect, says("")), reply(dialect, says("Here."))
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        seen = []
        for _ in answers:
            assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
            seen.append([item["type"] for item in await items_of(pipe, thread_id)])
    assert seen == [["userMessage"], ["userMessage"], ["userMessage", "agentMessage"]]
    said = [one["role"] for one in dialect.conversation(provider.requests[2].json())]
    assert said == ["user", "user", "user"]


@both
async def test_halves_of_characters_and_line_separators_arrive_as_one_line_each(
    tmp_path: Path, dialect: Dialect
) -> None:
    """App Server notes: Framing; halves of a character meet, and a line ends at a line feed alone."""
    pieces = ("a\ud83d", "\ude00b", "\u2028c\u2029\x85", "\x00\r\n\U0001f600")
    clean = ("a", "\U0001f600b", "\u2028c\u2029\x85", "\x00\r\n\U0001f600")
    parts = says(*pieces), calls("c1", "read", path="x\udc00\u2028")
    answers = reply(dialect, *parts), reply(dialect, says("Done."))
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        thread_id = await pipe.start_thread(tmp_path)
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        items = await items_of(pipe, thread_id)
    told = pipe.notifications(thread_id)
    deltas = [params["delta"] for method, params in told if method == "item/agentMessage/delta"]
    assert tuple(deltas[:-1]) == clean
    assert items[1]["text"] == "".join(clean)
    assert items[2]["input"] == {"path": "x\ufffd\u2028"}
    assert json.dumps("".join(clean))[1:-1] in json.dumps(provider.requests[1].json())


@both
async def test_five_megabytes_in_one_delta_go_out_in_small_parts(tmp_path: Path, dialect: Dialect) -> None:
    """App Server notes: Session events to notifications; no delta is larger than 64 KiB."""
    text = "a\u00e9\u2028\U0001f600 " * 450_000
    assert len(text.encode()) > 4_500_000
    async with open_provided(tmp_path, dialect, reply(dialect, says(text))) as (pipe, _):
        thread_id = await pipe.start_thread(tmp_path)
        assert (await pipe.run_turn(thread_id))["turn"]["status"] == "completed"
        (answer,) = [one for one in await stored(pipe, thread_id) if one["role"] == "assistant"]
    told = pipe.notifications(thread_id)
    deltas = [params["delta"] for method, params in told if method == "item/agentMessage/delta"]
    assert max(len(delta.encode()) for delta in deltas) <= 64 * 1024
    assert "".join(deltas) == text == answer["content"][0]["text"]
