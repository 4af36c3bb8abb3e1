"""Ten thousand lines of every kind of nonsense, with valid requests among them."""

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.app_server.pipe import Message, Pipe, open_pipe

LINES = 10_000
JUNK: list[Any] = [None, True, [], {}, "", "x", 0, -1, 1.5, 10**30, [[]], {"id": 1}, "\u2028", "ü" * 50]


class Line:
    """A line, and the answers that its id must get: exactly `answers`, or none or one where it is None."""

    def __init__(self, data: bytes, request_id: Any = None, answers: int | None = 0) -> None:
        assert b"\n" not in data
        self.data = data
        self.key = None if request_id is None else key_of(request_id)
        self.answers = answers


def key_of(request_id: Any) -> str:
    """An id as text: 1 and "1" differ, and so do 1 and 1.0."""
    return json.dumps(request_id)


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def id_of(random_: random.Random, number: int) -> Any:
    """An id that no other line has."""
    return random_.choice(
        [f"r{number}", number, -number - 1, number + 0.5, 2**70 + 2**30 * number, f'ü"\\{number}\u2028']
    )


# --- kinds of lines: each is given the randomness and its number -------------------------------------


def served(random_: random.Random, number: int) -> Line:
    request_id = id_of(random_, number)
    choices: list[tuple[str, Message]] = [
        ("model/list", {}),
        ("thread/list", {"limit": 1}),
        ("thread/read", {"threadId": "none"}),
        ("thread/unsubscribe", {"threadId": "none"}),
        ("turn/interrupt", {"threadId": "none"}),
        ("turn/start", {"threadId": "none", "text": "x"}),
        ("thread/start", {"cwd": "/nowhere"}),
        ("initialize", {"clientInfo": {"name": "again", "version": "1"}}),
    ]
    method, params = random_.choice(choices)
    return Line(compact({"id": request_id, "method": method, "params": params}), request_id, 1)


def unserved(random_: random.Random, number: int) -> Line:
    request_id = id_of(random_, number)
    method = random_.choice(["", "no/such", "turn/completed", "initialized", "\u0000", "m" * 10_000])
    return Line(compact({"id": request_id, "method": method, "params": random_.choice(JUNK)}), request_id, 1)


def wrong_params(random_: random.Random, number: int) -> Line:
    request_id = id_of(random_, number)
    method = random_.choice(
        ["thread/start", "thread/read", "turn/start", "thread/settings/update", "model/list"]
    )
    params = random_.choice([*JUNK, {"threadId": 5}, {"cwd": [], "text": None}, {"threadId": "\u0000"}])
    return Line(compact({"id": request_id, "method": method, "params": params}), request_id, 1)


def wrong_method(random_: random.Random, number: int) -> Line:
    request_id = id_of(random_, number)
    method: Any = random_.choice([None, 5, [], {}, True])
    return Line(compact({"id": request_id, "method": method}), request_id, 1)


def bare_id(random_: random.Random, number: int) -> Line:
    request_id = id_of(random_, number)
    return Line(compact({"id": request_id, "params": random_.choice(JUNK)}), request_id, 1)


def wrong_id(random_: random.Random, _: int) -> Line:
    request_id = random_.choice([b"null", b"true", b"[1]", b"{}", b"1e999", b"-" + b"9" * 400, b"NaN", b"01"])
    return Line(b'{"id":%b,"method":"model/list"}' % request_id)


def two_ids(random_: random.Random, number: int) -> Line:
    """Of equal names the last counts, as everywhere."""
    request_id = id_of(random_, number)
    return Line(
        b'{"id":"first","id":%b,"method":"x","method":"model/list"}' % compact(request_id), request_id, 1
    )


def notification(random_: random.Random, _: int) -> Line:
    method = random_.choice(["initialized", "model/list", "turn/start", "no/such", "exit"])
    return Line(compact({"method": method, "params": random_.choice(JUNK)}))


def response(random_: random.Random, number: int) -> Line:
    request_id = random_.choice([id_of(random_, number), "s1", "s999"])
    bodies: list[Message] = [
        {"result": {}},
        {"error": {"code": "x"}},
        {"result": None},
        {"result": 1, "error": 2},
    ]
    body = random_.choice(bodies)
    return Line(compact({"id": request_id, **body}))


def cut(random_: random.Random, number: int) -> Line:
    """A request that ends too early: it is answered if the whole id was there, and a comma behind it."""
    request_id = f"cut{number}"
    whole = compact({"id": request_id, "method": "model/list", "params": {"a": ["b", 1]}})
    comma = whole.index(b",")
    end = random_.randrange(1, len(whole))
    return Line(whole[:end], request_id, 1 if end > comma else 0)


def bad_text(random_: random.Random, number: int) -> Line:
    """Not UTF-8, after an id that can be read."""
    request_id = f"bad{number}"
    bad = random_.choice([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
    return Line(
        b'{"id":"%b","method":"model/list","params":{"a":"%b"}}' % (request_id.encode(), bad), request_id, 1
    )


def surrogates(random_: random.Random, number: int) -> Line:
    request_id = f"half{number}"
    half = random_.choice([rb"\ud83d", rb"\udc00\ud83d", rb"\uD83D\uD83D\ude00", rb"\\ud83d", rb"\\\ud83d"])
    data = b'{"id":"%b","method":"thread/read","params":{"threadId":"%b"}}' % (request_id.encode(), half)
    return Line(data, request_id, 1)


def deep(random_: random.Random, number: int) -> Line:
    request_id = f"deep{number}"
    depth = random_.choice([100, 600, 5_000])
    inner = random_.choice(
        [b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth]
    )
    return Line(
        b'{"id":"%b","method":"model/list","params":%b}' % (request_id.encode(), inner), request_id, 1
    )


def no_object(random_: random.Random, _: int) -> Line:
    return Line(compact(random_.choice([*JUNK[:3], *JUNK[4:-3], [{"id": 1, "method": "model/list"}]])))


def noise(random_: random.Random, _: int) -> Line:
    data = bytes(random_.choices(range(256), k=random_.randrange(200))).replace(b"\n", b"")
    return Line(data)


def blank(random_: random.Random, _: int) -> Line:
    return Line(random_.choice([b"", b" ", b"\t\r", b"\r"]))


def mutated(random_: random.Random, number: int) -> Line:
    """A request with a few bytes changed behind its id: at most one answer, whatever it has become."""
    request_id = f"mutated{number}"
    head = b'{"id":"%b",' % request_id.encode()
    rest = bytearray(b'"method":"thread/list","params":{"limit":1,"cwd":"/tmp","cursor":null}}')
    for _ in range(random_.randrange(1, 4)):
        rest[random_.randrange(len(rest))] = random_.choice(b'"{}[],:\\ ~0\x00\xff')
    return Line(head + bytes(rest), request_id, None)


KINDS: list[Callable[[random.Random, int], Line]] = [
    served, unserved, wrong_params, wrong_method, bare_id, wrong_id, two_ids, notification, response, cut,
    bad_text, surrogates, deep, no_object, noise, blank, mutated,
]  # fmt: skip


async def write_in_random_pieces(pipe: Pipe, data: bytes, random_: random.Random) -> None:
    while data:
        size = random_.choice([1, 7, 100, 5_000, 70_000, 400_000])
        await pipe.write(data[:size])
        data = data[size:]


@pytest.mark.parametrize("seed", [1, 2])
async def test_ten_thousand_random_lines_are_survived_and_each_readable_request_is_answered_once(
    tmp_path: Path, seed: int
) -> None:
    """App Server notes: Framing, "Exactly one response"."""
    random_ = random.Random(seed)
    lines = [random_.choice(KINDS)(random_, number) for number in range(LINES // 2)]
    wanted = {line.key: line.answers for line in lines if line.key is not None}
    data = b"\n".join(line.data for line in lines) + b"\n"
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        before = len(pipe.heard)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                write_in_random_pieces, pipe, data + b'{"id":"last","method":"model/list"}\n', random_
            )
            answer = await pipe.until(lambda one: one.get("id") == "last")
        assert "models" in answer["result"]
        assert "models" in await pipe.call("model/list")
        await pipe.close()
        assert await pipe.exit_code() == 0
    counts = Counter(key_of(one["id"]) for one in pipe.heard[before:] if "id" in one and "method" not in one)
    wrong = {
        key: (counts[key], answers)
        for key, answers in wanted.items()
        if counts[key] != answers and not (answers is None and counts[key] <= 1)
    }
    assert wrong == {}
    strangers = set(counts) - set(wanted) - {key_of("last"), key_of(2)}
    assert strangers == set()


async def test_faults_that_no_id_stands_for_are_told_once_each_and_before_the_handshake_held_back(
    tmp_path: Path,
) -> None:
    """App Server notes: Framing, a malformed line."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.write(b"nonsense\n[]\n")
        await pipe.handshake()
        await pipe.write(b'{"id":null,"method":"model/list"}\n')
        await pipe.call("model/list")
    told: list[Message] = [params for method, params in pipe.notifications() if method == "error"]
    assert [(one["code"], one["data"]) for one in told] == [
        ("invalidParams", {"reason": "invalidMessage"})
    ] * 3
    assert [one.get("id") for one in pipe.heard if "id" in one] == [1, 2]
    assert pipe.heard[0].get("id") == 1
