"""Source: app server notes, "Method table", "Objects", "Framing"."""

import json
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET

from knightcode_protocol.errors import COMMON_ERRORS, ERROR_CODES, MEANINGS, ErrorCode
from knightcode_protocol.methods import METHODS
from knightcode_protocol.notifications import (
    NOTIFICATION_OF,
    NOTIFICATIONS,
    AgentMessageDelta,
    TurnQueueUpdated,
    TurnRetry,
)
from knightcode_protocol.params import (
    InputImage,
    ThreadStartParams,
    TurnQueueAddParams,
    TurnStartParams,
    TurnSteerParams,
)
from knightcode_protocol.server_requests import SERVER_REQUESTS, ToolCallRequestApprovalResult
from knightcode_protocol.wire import present
from tests.protocol import examples

START: dict[str, Any] = {"threadId": "T", "text": "x"}


def decode(method: str, params: object) -> Any:
    return METHODS[method].decode_params(json.dumps(params).encode())


@pytest.mark.parametrize(
    ("method", "params", "text"),
    [
        ("thread/start", {}, "Object missing required field `cwd`"),
        ("thread/start", [], "Expected `object`, got `array`"),
        ("thread/start", {"cwd": 5}, "Expected `str`, got `int` - at `$.cwd`"),
        ("thread/start", {"cwd": None}, "Expected `str`, got `null` - at `$.cwd`"),
        (
            "thread/start",
            {"cwd": "/", "workspace": {"mode": "worktree"}},
            "Invalid enum value 'worktree' - at `$.workspace.mode`",
        ),
        (
            "thread/start",
            {"cwd": "/", "approvalMode": "yolo"},
            "Invalid enum value 'yolo' - at `$.approvalMode`",
        ),
        (
            "thread/start",
            {"cwd": "/", "thinkingLevel": "some"},
            "Invalid enum value 'some' - at `$.thinkingLevel`",
        ),
        (
            "thread/start",
            {"cwd": "/", "model": {"id": "m"}},
            "Object missing required field `provider` - at `$.model`",
        ),
        ("thread/resume", {"cursor": "c"}, "Object missing required field `threadId`"),
        ("thread/list", {"limit": 0}, "Expected `int` >= 1 - at `$.limit`"),
        ("thread/list", {"limit": 201}, "Expected `int` <= 200 - at `$.limit`"),
        ("thread/list", {"limit": 1.5}, "Expected `int | null`, got `float` - at `$.limit`"),
        ("thread/list", {"archived": "no"}, "Expected `bool | null`, got `str` - at `$.archived`"),
        ("turn/start", {"threadId": "T"}, "Object missing required field `text`"),
        ("turn/start", START | {"requestId": ""}, "Expected `str` of length >= 1 - at `$.requestId`"),
        (
            "turn/start",
            START | {"requestId": "r" * 129},
            "Expected `str` of length <= 128 - at `$.requestId`",
        ),
        (
            "turn/start",
            START | {"clientMessageId": ""},
            "Expected `str` of length >= 1 - at `$.clientMessageId`",
        ),
        (
            "turn/start",
            START | {"clientMessageId": "r" * 129},
            "Expected `str` of length <= 128 - at `$.clientMessageId`",
        ),
        (
            "turn/start",
            START | {"images": [{"path": "/a"}, {"data": "aGk="}]},
            "An image needs `mimeType` and `data`, or `path` - at `$.images[1]`",
        ),
        (
            "turn/start",
            START | {"images": [{"path": "/a", "data": "aGk="}]},
            "An image has `path` or inline `data`, not both - at `$.images[0]`",
        ),
        ("turn/start", START | {"images": {}}, "Expected `array | null`, got `object` - at `$.images`"),
        ("turn/steer", START, "Object missing required field `expectedTurnId`"),
        (
            "turn/steer",
            START | {"expectedTurnId": None},
            "Expected `str`, got `null` - at `$.expectedTurnId`",
        ),
        ("turn/steer", {"threadId": "T", "expectedTurnId": "t"}, "Object missing required field `text`"),
        (
            "turn/steer",
            START | {"expectedTurnId": "t", "images": [{"mimeType": "image/png"}]},
            "An image needs `mimeType` and `data`, or `path` - at `$.images[0]`",
        ),
        ("turn/queue/add", {"threadId": "T"}, "Object missing required field `text`"),
        (
            "turn/queue/add",
            START | {"clientMessageId": "d" * 129},
            "Expected `str` of length <= 128 - at `$.clientMessageId`",
        ),
        ("turn/queue/add", START | {"images": ["/a"]}, "Expected `object`, got `str` - at `$.images[0]`"),
        ("turn/queue/remove", {"threadId": "T"}, "Object missing required field `queueId`"),
        (
            "turn/queue/remove",
            {"threadId": "T", "queueId": 1},
            "Expected `str`, got `int` - at `$.queueId`",
        ),
        (
            "thread/compact",
            {"threadId": "T", "instructions": ["x"]},
            "Expected `str | null`, got `array` - at `$.instructions`",
        ),
        ("server/diagnostics", [], "Expected `object`, got `array`"),
        (
            "turn/interrupt",
            {"threadId": "T", "turnId": 5},
            "Expected `str | null`, got `int` - at `$.turnId`",
        ),
    ],
)
def test_params_of_the_wrong_shape_are_refused_with_the_member_that_is_wrong(
    method: str, params: object, text: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as refusal:
        decode(method, params)
    assert str(refusal.value) == text


@pytest.mark.parametrize("params", [b"", b"{", b'{"cwd":1e999}', b'{"cwd":"\xff"}', b"NaN"])
def test_params_that_cannot_be_decoded_raise_what_callers_catch(params: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        METHODS["thread/start"].decode_params(params)


def test_null_and_absent_are_the_same_in_params_and_unknown_members_are_ignored() -> None:
    nothing = {"workspace": None, "approvalMode": None, "model": None, "thinkingLevel": None, "name": None}
    assert decode("thread/start", {"cwd": "/"} | nothing | {"later": {"x": 1}}) == ThreadStartParams(cwd="/")
    assert decode("model/list", {"threadId": "T"}) == METHODS["model/list"].params()


def test_review_comments_and_tokens_that_a_method_does_not_have_are_ignored() -> None:
    more = {"comments": [{"path": "a.py"}], "requestId": 7}
    assert decode("turn/queue/add", START | more) == TurnQueueAddParams(thread_id="T", text="x")
    steer = TurnSteerParams(thread_id="T", expected_turn_id="t", text="x")
    assert decode("turn/steer", START | more | {"expectedTurnId": "t"}) == steer


def test_tokens_count_code_points_and_may_be_as_long_as_the_limit() -> None:
    token = "\U0001f600" * 128
    assert decode("turn/start", START | {"requestId": token, "clientMessageId": token}) == TurnStartParams(
        thread_id="T", text="x", request_id=token, client_message_id=token
    )


def test_an_image_is_inline_or_a_path() -> None:
    params = decode(
        "turn/start", START | {"images": [{"path": "/a", "data": None}, {"mimeType": "m", "data": ""}]}
    )
    assert params.images == (InputImage(path="/a"), InputImage(mime_type="m", data=""))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (
            examples.RESULTS["thread/start"][0],
            {
                "thread": {
                    "id": "T",
                    "cwd": "/srv/app",
                    "name": "",
                    "status": {"type": "idle"},
                    "createdAt": "2027-04-09T06:31:52.480Z",
                    "updatedAt": "2027-04-09T06:31:52.480Z",
                    "approvalMode": "ask",
                    "thinkingLevel": "medium",
                    "workspace": {"mode": "local"},
                    "archived": False,
                },
                "warnings": [],
                "ui": {"statuses": [], "workingVisible": True, "widgets": []},
            },
        ),
        (
            examples.RESULTS["thread/resume"][0].queue,  # type: ignore[attr-defined]
            {"steering": [], "followUp": []},
        ),
        (
            examples.ITEMS[4],
            {
                "id": "call_81",
                "type": "toolCall",
                "tool": "edit",
                "input": {"path": "a"},
                "status": "pending",
                "output": [],
            },
        ),
        (
            examples.TURN,
            {"id": "t", "threadId": "T", "status": "inProgress", "startedAt": 1_807_338_730_000, "items": []},
        ),
        (examples.STATUSES[2], {"type": "active", "waitingOn": []}),
        (examples.RESULTS["turn/start"][0], {"status": "handled", "threadId": "T"}),
        (
            TurnRetry(thread_id="T", turn_id="t", state="ended", attempt=2, success=False),
            {"threadId": "T", "turnId": "t", "state": "ended", "attempt": 2, "success": False},
        ),
        (
            TurnRetry(thread_id="T", turn_id="t", state="waiting", attempt=1, max_attempts=3, delay_ms=0),
            {
                "threadId": "T",
                "turnId": "t",
                "state": "waiting",
                "attempt": 1,
                "maxAttempts": 3,
                "delayMs": 0,
            },
        ),
        (
            TurnQueueUpdated(thread_id="T", steering=(), follow_up=()),
            {"threadId": "T", "steering": [], "followUp": []},
        ),
        (examples.RESULTS["turn/queue/remove"][1], {"removed": False}),
    ],
)
def test_required_members_are_always_written_and_absent_ones_never(
    value: msgspec.Struct, encoded: dict[str, Any]
) -> None:
    assert json.loads(msgspec.json.encode(value)) == encoded


def test_present_leaves_none_out() -> None:
    assert present(None) is UNSET
    assert (present(""), present(0)) == ("", 0)


def test_any_decision_is_read_since_an_unoffered_one_declines() -> None:
    read = SERVER_REQUESTS["item/toolCall/requestApproval"].decode_result
    assert read(b'{"decision":"whatever","message":null}') == ToolCallRequestApprovalResult(
        decision="whatever"
    )
    for answer in (b"{}", b"null", b'{"decision":true}', b'"accept"'):
        with pytest.raises(msgspec.DecodeError):
            read(answer)


# --- the tables ---------------------------------------------------------------------------------


def test_there_are_twenty_codes_and_each_has_a_meaning() -> None:
    assert len(ERROR_CODES) == 20
    assert list(get_args(ErrorCode)) == list(MEANINGS)
    assert all(meaning.endswith(".") and "\n" not in meaning for meaning in MEANINGS.values())


def test_methods_add_codes_of_the_list_that_are_not_common_already() -> None:
    for method in METHODS.values():
        assert method.errors <= ERROR_CODES - COMMON_ERRORS


def test_every_method_on_a_thread_but_unsubscribe_can_miss_it() -> None:
    on_a_thread = {name for name, row in METHODS.items() if "thread_id" in row.params.__struct_fields__}
    can_miss = {name for name, row in METHODS.items() if "threadNotFound" in row.errors}
    assert can_miss == on_a_thread - {"thread/unsubscribe"}


def test_starting_and_resuming_subscribe() -> None:
    subscribing = {name for name, row in METHODS.items() if row.subscribes}
    assert subscribing == {"thread/start", "thread/resume", "turn/start"}


def test_each_notification_has_params_of_its_own() -> None:
    assert len(NOTIFICATION_OF) == len(NOTIFICATIONS)


def test_a_notification_is_encoded_with_its_method() -> None:
    delta = AgentMessageDelta(thread_id="T", turn_id="t", item_id="i", delta="ä")
    assert (
        NOTIFICATION_OF[AgentMessageDelta].line(delta)
        == (
            '{"method":"item/agentMessage/delta",'
            '"params":{"threadId":"T","turnId":"t","itemId":"i","delta":"ä"}}\n'
        ).encode()
    )


def test_structs_are_values() -> None:
    with pytest.raises(AttributeError):
        examples.THREAD.name = "other"  # type: ignore[misc]
    assert hash(examples.MODEL) == hash(msgspec.structs.replace(examples.MODEL))
