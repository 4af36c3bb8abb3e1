"""Source: app server notes, "Framing", "Exactly one response"."""

import itertools
import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from knightcode.app_server.core.connection import Accepted, ConnectionCore
from knightcode.app_server.core.server_requests import ServerAnswer
from tests.app_server.core.lines import INITIALIZE, INITIALIZED, new_core, ready_core, sent

MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 5) | st.just("s1") | st.none() | st.just(1.5) | st.just([]),
        "method": st.sampled_from(["initialize", "initialized", "thread/list", "no/such", 5, "\ud83d"]),
        "params": st.just({"clientInfo": {"name": "n", "version": "1"}}) | st.none() | st.just([1]),
        "result": st.just({}),
        "error": st.just({"code": "internal", "message": "m"}),
    },
)
JUNK = st.sampled_from([b"", b"\r", b"ls", b"\xff", b"[" * 300, b'{"id":9,"method":"x"', b"x" * 400])
LINES = st.lists(MEMBERS.map(lambda members: json.dumps(members).encode()) | JUNK, max_size=15)


def run(core: ConnectionCore, chunks: list[bytes]) -> tuple[list[str], list[dict[str, Any]]]:
    """Feed the chunks, answer what is accepted; what came out of the core, and what was sent."""
    core.send_request("a/b", {})
    actions = [action for chunk in chunks for action in core.receive(chunk)] + core.finish()
    for action in actions:
        if isinstance(action, Accepted):
            action.call.answer({"of": action.call.method})
    return [
        repr(action) if not isinstance(action, Accepted) else action.call.method for action in actions
    ], sent(core)


@given(lines=LINES, end=st.sampled_from([b"\n", b"\r\n"]), cuts=st.lists(st.integers(0, 3000), max_size=10))
def test_any_cut_of_the_bytes_gives_the_same_actions_and_the_same_answers(
    lines: list[bytes], end: bytes, cuts: list[int]
) -> None:
    stream = end.join([INITIALIZE.strip(), *lines, INITIALIZED.strip(), *lines])
    borders = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(borders)]
    whole, cut = run(new_core(max_line=350), [stream]), run(new_core(max_line=350), chunks)
    assert without_views(cut[0]) == without_views(whole[0])
    assert cut[1] == whole[1]


def without_views(actions: list[str]) -> list[str]:
    """Without the addresses in the representations of raw values."""
    return [action.partition(" object at ")[0] for action in actions]


def test_each_of_ten_thousand_random_lines_with_an_id_gets_exactly_one_answer() -> None:
    source = random.Random(20_27)
    core = ready_core()
    lines, expected = zip(*(random_line(source, number) for number in range(10_000)), strict=True)
    stream = b"".join(lines)
    at = 0
    accepted: list[Accepted] = []
    while at < len(stream):
        size = source.choice((1, 7, 100, 65536))
        accepted += [each for each in core.receive(stream[at : at + size]) if isinstance(each, Accepted)]
        at += size
        source.shuffle(accepted)
        while len(accepted) > 64:
            finish(accepted.pop(), source)
    while accepted:
        finish(accepted.pop(), source)
    answered = [message["id"] for message in sent(core) if "method" not in message]
    assert sorted(answered, key=str) == sorted((each for each in expected if each is not None), key=str)
    assert core.unanswered == 0


def random_line(source: random.Random, number: int) -> tuple[bytes, object]:
    """A line, and the id under which it must be answered."""
    request_id: object = source.choice((number, f"r{number}", number + 0.5))
    text = json.dumps(request_id).encode()
    kinds: list[tuple[bytes, object]] = [
        (b'{"id":%b,"method":"thread/list","params":{}}' % text, request_id),
        (b'{"method":"turn/start","id":%b}' % text, request_id),
        (b'{"id":%b,"method":"no/such","params":[]}' % text, request_id),
        (b'{"id":%b,"method":"thread/list","params":"\\ud83d"}' % text, request_id),
        (b'{"id":%b,"method":5}' % text, request_id),
        (b'{"id":%b,"params":{}}' % text, request_id),
        (b'{"id":%b,"method":"initialize"}' % text, request_id),
        (b'{"id":%b,"method":"x","params":%b}' % (text, b"[" * 200 + b"]" * 200), request_id),
        (b'{"id":%b,"method":"x","params":{oops}}' % text, request_id),
        (b'{"id":%b,"method":"\xff"}' % text, request_id),
        (b'{"id":%b,"result":{}}' % text, None),
        (b'{"id":%b,"result":{},"error":{}}' % text, None),
        (b'{"id":[%b],"method":"thread/list"}' % text, None),
        (b'{"method":"thread/list","params":{"id":%b}}' % text, None),
        (source.randbytes(source.randrange(12)).replace(b"\n", b"").replace(b"{", b""), None),
    ]
    line, expected = source.choice(kinds)
    return line + source.choice((b"\n", b"\r\n", b"\n\n")), expected


def finish(accepted: Accepted, source: random.Random) -> None:
    """Answer a request in one of the ways in which handlers do, the faulty ones included."""
    for _ in range(source.choice((1, 1, 2))):
        if source.random() < 0.5:
            accepted.call.answer({})
        else:
            accepted.call.fail("internal", "failed")


def test_server_answers_survive_between_malformed_lines() -> None:
    core = ready_core()
    core.send_request("a/b", {})
    (answer,) = core.receive(b'ls\n{"id":"s1"\n{"id":"s1","result":1,"error":2}\n{"id":"s1","result":3}\n')
    assert isinstance(answer, ServerAnswer)
