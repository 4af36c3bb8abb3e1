"""Source: app server notes, "Exactly one response"."""

import pytest

from knightcode.app_server.core.pending import Call, PendingRequests


def new_requests() -> tuple[PendingRequests, list[bytes]]:
    posted: list[bytes] = []
    return PendingRequests(posted.append), posted


@pytest.mark.rule("S81")
def test_a_result_is_posted_once_and_everything_later_is_dropped() -> None:
    requests, posted = new_requests()
    call = requests.open(b"7", "m")
    assert (call.answered, len(requests)) == (False, 1)
    assert call.answer({"a": 1})
    assert (call.answered, len(requests)) == (True, 0)
    assert not call.answer({"a": 2})
    assert not call.fail("internal", "late")
    assert posted == [b'{"id":7,"result":{"a":1}}\n']


def test_an_error_is_posted_once_with_its_data() -> None:
    requests, posted = new_requests()
    call = requests.open(b'"x"', "m")
    assert call.fail("turnMismatch", "turn 5 is running", {"runningTurnId": "5"})
    assert not call.answer({})
    error = b'{"code":"turnMismatch","message":"turn 5 is running","data":{"runningTurnId":"5"}}'
    assert posted == [b'{"id":"x","error":%b}\n' % error]


def test_two_requests_with_one_id_are_answered_once_each() -> None:
    requests, posted = new_requests()
    first, second = requests.open(b"1", "m"), requests.open(b"1", "m")
    assert second.answer("second")
    assert first.answer("first")
    assert not first.answer("again")
    assert not second.answer("again")
    assert posted == [b'{"id":1,"result":"second"}\n', b'{"id":1,"result":"first"}\n']


def test_a_result_without_a_json_form_leaves_the_request_to_be_failed() -> None:
    requests, posted = new_requests()
    call = requests.open(b"1", "m")
    with pytest.raises(TypeError):
        call.answer(object())
    assert not call.answered
    assert call.fail("internal", "m failed")
    assert posted == [b'{"id":1,"error":{"code":"internal","message":"m failed"}}\n']


@pytest.mark.rule("S81")
def test_the_answer_is_decided_before_it_is_written() -> None:
    seen: list[tuple[bool, bool]] = []

    def post(_: bytes) -> None:
        seen.append((call.answered, call.fail("internal", "a writer that fails inside")))

    call: Call = PendingRequests(post).open(b"1", "m")
    assert call.answer({})
    assert seen == [(True, False)]


def test_failing_all_answers_the_open_ones_only_oldest_first() -> None:
    requests, posted = new_requests()
    first, second, third = (requests.open(b"%d" % number, "m") for number in (1, 2, 3))
    second.answer({})
    posted.clear()
    assert requests.fail_all("shuttingDown", "stop") == 2
    assert requests.fail_all("shuttingDown", "stop") == 0
    assert not first.answer({})
    assert not third.answer({})
    assert posted == [
        b'{"id":1,"error":{"code":"shuttingDown","message":"stop"}}\n',
        b'{"id":3,"error":{"code":"shuttingDown","message":"stop"}}\n',
    ]


def test_forgotten_requests_are_never_answered() -> None:
    requests, posted = new_requests()
    call = requests.open(b"1", "m")
    requests.forget_all()
    assert call.answered
    assert not call.answer({})
    assert posted == []
