"""What is said to a turn that runs: it belongs to that turn, or to none.

Source: App Server, "Threads and turns"; App Server notes, "Steering, queue, interrupt".
"""

from pathlib import Path

import pytest

from tests.app_server.pipe import Message, lines_of, text
from tests.app_server.waiting import open_waiting


def error_of(answer: Message) -> tuple[str, str | None]:
    """Code and reason of an error response."""
    error = answer["error"]
    return error["code"], error.get("data", {}).get("reason")


@pytest.mark.proves("STEER-001", "TURN-015", "QUEUE-009", "QUEUE-010")
@pytest.mark.rule("S28")
async def test_a_steer_joins_the_running_turn_and_is_shown_until_it_is_delivered(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("{{user}}!")]) as turn:
        assert (await turn.steer("faster"))["result"] == {}
        waits = await turn.pipe.until_method("turn/queue/updated")
        assert waits == {"threadId": turn.thread_id, "steering": ["faster"], "followUp": []}
        since = len(turn.pipe.heard)
        completed = await turn.go_on()
    assert completed["turn"]["id"] == turn.turn_id
    assert turn.texts_of_users() == [(turn.turn_id, "go"), (turn.turn_id, "faster")]
    heard = [(one["method"], one["params"]) for one in turn.pipe.heard[since:] if "method" in one]
    delivered = next(i for i, (method, _) in enumerate(heard) if method == "turn/queue/updated")
    assert heard[delivered][1] == {"threadId": turn.thread_id, "steering": [], "followUp": []}
    shown = heard[delivered + 1]
    assert (shown[0], shown[1]["item"]["text"]) == ("item/started", "faster")
    replies = [
        params["item"]["text"]
        for method, params in heard
        if method == "item/completed" and params["item"]["type"] == "agentMessage"
    ]
    assert replies == ["faster!"]


@pytest.mark.proves("STEER-002", "STEER-003", "STEER-004")
@pytest.mark.rule("S26")
async def test_a_steer_for_another_turn_is_refused_and_reaches_none(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("done")], [text("second")]) as turn:
        stale = await turn.pipe.ask(
            "turn/steer", threadId=turn.thread_id, expectedTurnId="0badc0de", text="lost"
        )
        assert stale["error"]["code"] == "turnMismatch"
        assert stale["error"]["data"] == {"runningTurnId": turn.turn_id}
        missing = await turn.pipe.ask("turn/steer", threadId=turn.thread_id, text="lost")
        assert missing["error"]["code"] == "invalidParams"
        await turn.go_on()
        await turn.pipe.until_idle()
        late = await turn.steer("lost")
        assert late["error"]["code"] == "turnMismatch"
        assert "data" not in late["error"]
        await turn.pipe.run_turn(turn.thread_id, "next")
        late = await turn.steer("lost")
        assert late["error"]["code"] == "turnMismatch"
    assert [said for _, said in turn.texts_of_users()] == ["go", "next"]
    assert turn.queues() == []


@pytest.mark.proves("STEER-005")
@pytest.mark.rule("S28", "S30")
async def test_an_interrupt_drops_what_was_not_delivered(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("never")], [text("after")]) as turn:
        await turn.steer("one")
        queue_id = await turn.queue("later")
        removed = await turn.pipe.call("turn/queue/remove", threadId=turn.thread_id, queueId="one")
        assert removed == {"removed": False}  # a steer is in no queue and cannot be taken back
        assert queue_id
        await turn.pipe.call("turn/interrupt", threadId=turn.thread_id)
        completed = await turn.pipe.until_method("turn/completed")
        assert completed["turn"]["status"] == "interrupted"
        await turn.pipe.until_idle()
        await turn.pipe.run_turn(turn.thread_id, "next")
    assert [said for _, said in turn.texts_of_users()] == ["go", "next"]
    assert turn.queues() == [(["one"], []), (["one"], ["later"]), ([], [])]
    order = [
        method
        for method, _ in turn.pipe.notifications(turn.thread_id)
        if method in ("turn/queue/updated", "turn/completed")
    ]
    assert order[:4] == ["turn/queue/updated"] * 3 + ["turn/completed"]


async def test_an_empty_steer_is_refused(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("done")]) as turn:
        assert error_of(await turn.steer("  ")) == ("invalidParams", "emptyInput")
        assert error_of(await turn.steer("look", images=[{"path": "a.png"}])) == ("invalidParams", "badImage")
        await turn.go_on()
    assert turn.queues() == []


async def test_a_steer_of_an_unknown_thread_says_so(tmp_path: Path) -> None:
    async with open_waiting(tmp_path, [text("done")]) as turn:
        answer = await turn.pipe.ask("turn/steer", threadId="nobody", expectedTurnId="x", text="hi")
        assert answer["error"]["code"] == "threadNotFound"
        await turn.go_on()


@pytest.mark.rule("S75")
async def test_a_thousand_steers_in_one_write_cost_a_reading_client_nothing_but_those_that_are_too_many(
    tmp_path: Path,
) -> None:
    async with open_waiting(tmp_path, [text("done")]) as turn:
        params = {"threadId": turn.thread_id, "expectedTurnId": turn.turn_id, "text": "x" * 2_000}
        steer = {"method": "turn/steer", "params": params}
        await turn.pipe.write(lines_of(*({"id": f"s{n}", **steer} for n in range(1_000))))
        answers: dict[str, Message] = {}
        while len(answers) < 1_000:
            one = await turn.pipe.hear()
            assert one is not None
            if "method" not in one and str(one["id"]).startswith("s"):
                answers[one["id"]] = one
        accepted = [name for name, one in answers.items() if "result" in one]
        assert 100 < len(accepted) <= 256
        assert {error_of(one) for one in answers.values() if "error" in one} == {
            ("invalidParams", "queueFull")
        }
        await turn.pipe.call("turn/interrupt", threadId=turn.thread_id)
        await turn.pipe.until_idle()
