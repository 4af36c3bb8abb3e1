"""What is measured. Each function takes one reading of one contestant, and checks what came."""

import json
import os
import time
from collections.abc import Callable
from typing import Final, Literal

import attrs

from benchmarks.arena import HANDSHAKE, Arena, Who, shake_hands
from benchmarks.pipes import Server
from benchmarks.provider import COMMAND, DELTA, DELTAS

COMPLETED: Final = b'"method":"turn/completed"'
IDLE: Final = b'"status":{"type":"idle"}'
DELTA_METHOD: Final = b'"method":"item/agentMessage/delta"'
UNSUBSCRIBE: Final = '{"threadId":"none"}'
IN_FLIGHT: Final = 64
TINY: Final = 20_000
BURST: Final = 10_000
THREADS: Final = 50
TURNS: Final = 8

Unit = Literal["ms", "µs", "MB", "kB"]
_SCALE: Final[dict[Unit, float]] = {"ms": 1e3, "µs": 1e6, "MB": 1e-6, "kB": 1e-3}


class WrongError(Exception):
    """A server did not say what it must; no number counts."""


@attrs.frozen
class Budget:
    """The most that a reading may be, in the measure's unit, on the machine of the design.

    That has two cores and CPython 3.11. Elsewhere the ratio to the floor is what can be compared.

    Attributes:
        then: what the design wants in the end, where it allows more for now.
    """

    most: float
    then: float | None = None

    def text(self) -> str:
        """For the table."""
        return f"{self.most:g}" if self.then is None else f"{self.most:g}, then {self.then:g}"

    def verdict(self, value: float) -> str:
        """How a median stands to it."""
        if value > self.most:
            return "over"
        return "within" if self.then is None or value > self.then else "below"


@attrs.frozen
class Measure:
    """One row of the table.

    Attributes:
        read: takes a reading, in seconds or bytes.
        rounds: readings of each contestant, taken in turns.
    """

    name: str
    unit: Unit
    read: Callable[[Arena, Who], float]
    rounds: int
    budget: Budget

    def reading(self, arena: Arena, who: Who) -> float:
        """One reading in the measure's unit."""
        return self.read(arena, who) * _SCALE[self.unit]


def start_up(arena: Arena, who: Who) -> float:
    """From before the process exists to its answer to `initialize`."""
    begun = time.perf_counter()
    server = arena.start(who)
    try:
        server.request("initialize", HANDSHAKE)
        return time.perf_counter() - begun
    finally:
        server.close()


def idle_memory(arena: Arena, who: Who) -> float:
    """Of a new process that has served one request."""
    server = arena.start(who)
    try:
        shake_hands(server)
        return server.resident_bytes()
    finally:
        server.close()


def thread_memory(arena: Arena, who: Who) -> float:
    """Of each further idle thread."""
    server = arena.start(who)
    try:
        shake_hands(server)
        start_thread(server, arena, "one")
        before = server.resident_bytes()
        for _ in range(THREADS):
            start_thread(server, arena, "one")
        return (server.resident_bytes() - before) / THREADS
    finally:
        server.close()


def one_delta(arena: Arena, who: Who) -> float:
    """A turn whose reply is one delta, from `turn/start` to `turn/completed`."""
    return _turn(arena, who, "one", 1)


def many_deltas(arena: Arena, who: Who) -> float:
    """The same with 20,000 deltas of 20 bytes; they must arrive complete and in order."""
    return _turn(arena, who, "many", DELTAS)


def tiny_requests(arena: Arena, who: Who) -> float:
    """One of 20,000 requests that need no work, 64 in flight."""
    server = arena.server(who)
    lines = [server.line("thread/unsubscribe", UNSUBSCRIBE)[0] for _ in range(TINY)]
    sent, answered = IN_FLIGHT, 0

    def refill(count: int) -> bytes:
        nonlocal sent
        more = b"".join(lines[sent : sent + count])
        sent += count
        return more

    def is_over(seen: bytes) -> bool:
        return last in seen

    last = b'{"id":%d,' % json.loads(lines[-1])["id"]
    begun = time.perf_counter()
    said = server.exchange(b"".join(lines[:IN_FLIGHT]), is_over, refill)
    took = time.perf_counter() - begun
    answered = said.count(b'"notSubscribed"')
    if answered != TINY:
        raise WrongError(f"{who}: {answered} of {TINY} requests were answered")
    return took / TINY


def one_write(arena: Arena, who: Who) -> float:
    """10,000 requests in one write, to the last answer; all are answered in their order."""
    server = arena.server(who)
    lines = [server.line("thread/unsubscribe", UNSUBSCRIBE)[0] for _ in range(BURST)]
    wanted = [json.loads(line)["id"] for line in lines]
    last = b'{"id":%d,' % wanted[-1]
    begun = time.perf_counter()
    said = server.exchange(b"".join(lines), lambda seen: last in seen)
    took = time.perf_counter() - begun
    said = said if said.endswith(b"\n") else said + server.exchange(b"", lambda seen: seen.endswith(b"\n"))
    if [json.loads(line)["id"] for line in said.splitlines()] != wanted:
        raise WrongError(f"{who}: the answers to {BURST} requests are not complete and in order")
    return took


def interrupt_stream(arena: Arena, who: Who) -> float:
    """From `turn/interrupt` to `turn/completed` while the model streams."""
    return _interrupt(arena, who, "endless", DELTA_METHOD)


def interrupt_command(arena: Arena, who: Who) -> float:
    """The same while a tool runs a child process, which must be gone by then."""
    took = _interrupt(arena, who, "shell", b'"method":"item/toolCall/outputDelta"')
    if left := _running(COMMAND.rpartition("exec ")[2], arena.environ["HOME"]):
        raise WrongError(f"{who}: processes {left} are still there after turn/completed")
    return took


def shutdown(arena: Arena, who: Who) -> float:
    """From the end of the input to the end of the process, while eight threads stream."""
    server = arena.start(who)
    try:
        shake_hands(server)
        for _ in range(TURNS):
            thread = start_thread(server, arena, "endless")
            server.request("turn/start", json.dumps({"threadId": thread, "text": "go"}))
        begun = time.perf_counter()
        said = server.finish()
        took = time.perf_counter() - begun
        if who == "product" and said.count(COMPLETED) < TURNS:
            raise WrongError(f"{who}: of {TURNS} turns {said.count(COMPLETED)} were told to be over")
        return took
    finally:
        server.close()


def start_thread(server: Server, arena: Arena, model: str) -> str:
    """A new thread in the arena's home directory; returns its id."""
    params = {
        "cwd": str(arena.home),
        "model": {"provider": "bench", "id": model},
        "approvalMode": "fullAccess",
    }
    said = server.request("thread/start", json.dumps(params))
    for line in said.splitlines():
        message = json.loads(line)
        if "thread" in message.get("result", {}):
            return str(message["result"]["thread"]["id"])
    raise WrongError(f"thread/start was refused: {said!r}")


def _turn(arena: Arena, who: Who, model: str, deltas: int) -> float:
    server = arena.server(who)
    thread = start_thread(server, arena, model)
    line, _ = server.line("turn/start", json.dumps({"threadId": thread, "text": "go"}))
    begun = time.perf_counter()
    said = server.exchange(line, lambda seen: COMPLETED in seen)
    took = time.perf_counter() - begun
    _settle(server, said)
    parts = [json.loads(line)["params"]["delta"] for line in said.splitlines() if DELTA_METHOD in line]
    if len(parts) > deltas or "".join(parts) != DELTA * deltas:
        raise WrongError(f"{who}: {len(parts)} deltas came, not {deltas} complete and in order")
    return took


def _interrupt(arena: Arena, who: Who, model: str, running: bytes) -> float:
    server = arena.server(who)
    thread = start_thread(server, arena, model)
    start, _ = server.line("turn/start", json.dumps({"threadId": thread, "text": "go"}))
    server.exchange(start, lambda seen: running in seen)
    interrupt, _ = server.line("turn/interrupt", json.dumps({"threadId": thread}))
    begun = time.perf_counter()
    said = server.exchange(interrupt, lambda seen: COMPLETED in seen)
    took = time.perf_counter() - begun
    _settle(server, said)
    return took


def _settle(server: Server, said: bytes) -> None:
    """Wait for what follows a turn, so that it is not counted with the next reading."""
    after = said[said.index(COMPLETED) :]
    if IDLE not in after or not after.endswith(b"\n"):
        server.exchange(b"", lambda seen: IDLE in after + seen and seen.endswith(b"\n"))


def _running(command: str, home: str) -> list[int]:
    """The processes with this command line and this home directory in their environment; Linux."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = file.read()
        except OSError:  # gone, or somebody else's
            continue
        if arguments == command and f"HOME={home}\0".encode() in environ:
            found.append(int(name))
    return found


MEASURES: Final = (
    Measure("start: spawn to the answer to initialize", "ms", start_up, 15, Budget(90, then=60)),
    Measure("memory of an idle process", "MB", idle_memory, 5, Budget(43.5)),
    Measure("memory of each further idle thread", "kB", thread_memory, 3, Budget(200)),
    Measure("turn with one delta", "ms", one_delta, 31, Budget(7)),
    Measure("turn with 20,000 deltas", "ms", many_deltas, 7, Budget(440, then=176)),
    Measure("tiny request, 64 in flight", "µs", tiny_requests, 7, Budget(13.5)),
    Measure("10,000 requests in one write", "ms", one_write, 7, Budget(135)),
    Measure("interrupt to completed, streaming", "ms", interrupt_stream, 21, Budget(20)),
    Measure("interrupt to completed, child process", "ms", interrupt_command, 11, Budget(100)),
    Measure("shutdown, eight turns streaming", "ms", shutdown, 7, Budget(500)),
)
"""Budgets are the design's, in the unit of the row; 10,000 requests may take what 10,000 tiny ones may."""
