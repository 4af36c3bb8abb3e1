"""Runs one scenario over the in-memory pair and does something at an exact step of the scheduler.

A step is one time that trio lets a task run, so the n-th step lies at the n-th checkpoint of the
whole program. What is injected is synchronous and happens between two steps.
"""

import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import trio

from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.host import Host, HostConfig, open_host
from knightcode.app_server.main import server_info
from knightcode.sessions.entries import TurnEndEntry, TurnStartEntry
from knightcode.sessions.read import read_session
from knightcode.sessions.turns import stored_turns
from knightcode.threads.notices import Idle, QueueChanged
from knightcode.threads.thread import Thread
from tests.app_server.hearing import Hearing
from tests.app_server.pipe import Message

PATIENCE = 30.0


@attrs.define(eq=False)
class Injector(trio.abc.Instrument):
    """Counts steps from `arm` on; at the `at`-th one calls `action`, once."""

    at: int | None = None
    action: Callable[[], None] | None = None
    steps: int = 0
    armed: bool = False
    fired: bool = False
    awaited: list[tuple[Callable[[], bool], trio.Event]] = attrs.field(factory=list)

    async def until(self, fact: Callable[[], bool]) -> None:
        """Until a fact holds after some step of the scheduler: no polling, no clock."""
        came = trio.Event()
        self.awaited.append((fact, came))
        with trio.fail_after(PATIENCE):
            await came.wait()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        for awaited in tuple(self.awaited):
            fact, came = awaited
            if fact():
                self.awaited.remove(awaited)
                came.set()
        if not self.armed:
            return
        self.steps += 1
        if self.steps == self.at and self.action is not None:
            self.fired = True
            self.action()


@attrs.define(eq=False)
class Door(Hearing):
    """A client on the in-memory pair that says yes to what it is asked, unless `approve` says otherwise."""

    host: Host
    approve: Callable[[Message], bool] = lambda _: True
    asked: int = 0

    def send(self, **message: Any) -> None:
        """Synchronous: the request is admitted when this returns."""
        self.asked += "id" in message and "method" in message
        self.connection.receive(json.dumps(message).encode() + b"\n")

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message heard, now or later, that is as wanted."""
        seen = 0
        with trio.fail_after(PATIENCE):
            while True:
                for message in self.heard[seen:]:
                    if wanted(message):
                        return message
                seen = len(self.heard)
                await self.news.park()

    async def answer_to(self, request_id: str) -> Message:
        return await self.until(lambda one: one.get("id") == request_id and "method" not in one)

    def was_told(self, message: Message) -> None:
        if message.get("method") == "item/toolCall/requestApproval" and self.approve(message):
            self.send(id=message["id"], result={"decision": "accept"})


def connect(host: Host, nursery: trio.Nursery) -> Door:
    """A client that is through its handshake."""
    core = ConnectionCore(server_info(), default_mode="desktop")
    door = Door(connection=host.connect(core, host.requests, in_process=True), host=host)
    nursery.start_soon(door.pump)
    door.send(id="init", method="initialize", params={"clientInfo": {"name": "t", "version": "1"}})
    door.send(method="initialized", params={})
    return door


@attrs.define(eq=False)
class Run:
    """One run of a scenario. `watcher` follows the thread from the start and stays until the end."""

    folder: Path
    host: Host
    door: Door
    watcher: Door
    thread_id: str
    nursery: trio.Nursery
    injector: Injector

    @property
    def thread(self) -> Thread:
        """The thread, which must be loaded."""
        thread = self.host.manager.loaded(self.thread_id)
        assert thread is not None
        return thread

    async def settled(self) -> None:
        """Until the thread has no work, nothing waits for it, and no load or unload is under way."""
        await trio.lowlevel.checkpoint()
        while not self._is_settled():  # between the fact and this task's next step more may have come
            await self.injector.until(self._is_settled)

    def _is_settled(self) -> bool:
        slot = self.host.manager._slots.get(self.thread_id)
        if slot is None:
            return True
        thread = slot.thread
        ends = thread is not None and (thread.closing or thread._tasks > 0)
        return slot.lane.free and slot.load is None and slot.ending is None and not ends

    def check_at_rest(self) -> None:
        """What holds once nothing is admitted any more, unless the thread is on its way out."""
        thread = self.host.manager.loaded(self.thread_id)
        if thread is not None:
            assert (thread.turn, thread.lane.current, thread.status) == (None, None, Idle())
            assert thread.turns.queue_rows() == QueueChanged(thread.id)


def children() -> set[int]:
    """Live children of this process, zombies too."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def run_scenario(
    folder: Path,
    script: list[Any],
    play: Callable[[Run], Awaitable[None]],
    *,
    at: int | None = None,
    inject: Callable[[Run], None] | None = None,
    finish: Callable[[Run], None] = lambda run: None,
    saved: bool = False,
    settings: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    prepare: Callable[[Run], None] = lambda run: None,
) -> tuple[int, bool]:
    """Play a scenario in a fresh folder; returns the number of its steps and whether `inject` came to be.

    The invariants are checked here, whatever happened.

    Args:
        saved: begin with a thread that has had a turn and is in its file only.
        settings, model: of settings.json, and of the scripted model.
        prepare: is called before the first counted step.
    """
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    path = folder / "script.json"
    path.write_text(json.dumps({"replies": script, "model": dict(model or {})}))
    (folder / "agent").mkdir()
    (folder / "agent" / "settings.json").write_text(json.dumps(dict(settings or {})))
    environ = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "KNIGHTCODE_CODING_AGENT_DIR": str(folder / "agent"),
    }
    before_children, before_descriptors = children(), descriptors()
    injector = Injector(at=at)
    config = HostConfig(environ, folder, scripted=path)
    thread_id = await _saved_thread(config, project) if saved else ""
    async with trio.open_nursery() as nursery:
        async with open_host(config) as host:
            door, watcher = connect(host, nursery), connect(host, nursery)
            if not saved:
                thread_id = await _new_thread(door, project)
                watcher.send(id="watch", method="thread/resume", params={"threadId": thread_id})
                await watcher.answer_to("watch")
            run = Run(folder, host, door, watcher, thread_id, nursery, injector)
            prepare(run)
            if inject is not None:
                chosen = inject
                injector.action = lambda: chosen(run)
            trio.lowlevel.add_instrument(injector)
            try:
                injector.armed = True
                await play(run)
                await run.settled()
                injector.armed = False
                run.check_at_rest()
            finally:
                injector.armed = False
                trio.lowlevel.remove_instrument(injector)
        nursery.cancel_scope.cancel()
    for one in (door, watcher):
        while one.drain():
            pass
    finish(run)
    check(run, door)
    check(run, watcher)
    assert children() <= before_children, "a child process was left behind"
    assert descriptors() <= before_descriptors, "a descriptor was left open"
    return injector.steps, injector.fired


async def _new_thread(door: Door, project: Path) -> str:
    door.send(id="start", method="thread/start", params={"cwd": str(project), "approvalMode": "ask"})
    thread_id: str = (await door.answer_to("start"))["result"]["thread"]["id"]
    return thread_id


async def _saved_thread(config: HostConfig, project: Path) -> str:
    """A thread that has had one turn, its host gone. Its reply is not of the scenario's script."""
    path = config.scripted
    assert path is not None
    script = path.read_text()
    path.write_text(json.dumps({"replies": [{"steps": [{"text": "before"}]}]}))
    async with trio.open_nursery() as nursery:
        async with open_host(config) as host:
            door = connect(host, nursery)
            thread_id = await _new_thread(door, project)
            door.send(id="first", method="turn/start", params={"threadId": thread_id, "text": "before"})
            await door.until(lambda one: one.get("method") == "turn/completed")
        nursery.cancel_scope.cancel()
    path.write_text(script)
    return thread_id


def check(run: Run, door: Door) -> None:
    """What holds after any run, as one client saw it: answers, ends, order, and the session file."""
    heard = door.heard
    gone = door.connection.core.outbox.closed
    answers = Counter(one["id"] for one in heard if "method" not in one)
    assert all(count == 1 for count in answers.values()), answers
    if not gone:
        assert sum(answers.values()) == door.asked, "a request has no answer"
    started = [one["params"]["turn"]["id"] for one in heard if one.get("method") == "turn/started"]
    completed = [one["params"]["turn"]["id"] for one in heard if one.get("method") == "turn/completed"]
    assert len(set(started)) == len(started)
    if gone:
        assert set(completed) <= set(started)
    else:
        assert started == completed
    over: set[str] = set()
    open_items: dict[tuple[str, str], str] = {}
    ended_items: set[tuple[str, str]] = set()
    for one in heard:
        method, params = one.get("method", ""), one.get("params", {})
        turn_id = params.get("turnId")
        if method.startswith(("item/", "turn/")) and turn_id is not None:
            assert turn_id not in over, f"{method} after the end of its turn"
        if method == "item/started":
            open_items[turn_id, params["item"]["id"]] = method
        elif method in ("item/completed", "item/removed"):
            key = (turn_id, params.get("itemId") or params["item"]["id"])
            assert key not in ended_items, "an item ended twice"
            ended_items.add(key)
            # Only a call that was never shown before the end of its turn ends without a start.
            is_call = params.get("item", {}).get("type") == "toolCall"
            assert open_items.pop(key, None) is not None or is_call, "an item ended that had not begun"
        elif method == "turn/completed":
            over.add(params["turn"]["id"])
            assert not [key for key in open_items if key[0] == params["turn"]["id"]], "an item has no end"
    _check_lists(heard, gone)
    statuses = {
        one["params"]["turn"]["id"]: one["params"]["turn"]["status"]
        for one in heard
        if one.get("method") == "turn/completed"
    }
    files = list((run.folder / "agent" / "sessions").glob("*/*.jsonl"))
    if not started:
        return
    if gone and not files:
        return
    assert len(files) == 1
    stored = read_session(files[0])
    assert stored.damaged_lines == 0 and stored.whole_lines
    turns = {turn.id: turn for turn in stored_turns(stored.branch())}
    begun = [entry.id for entry in stored.branch() if isinstance(entry, TurnStartEntry)]
    assert begun == [entry.turn_id for entry in stored.branch() if isinstance(entry, TurnEndEntry)]
    told = [one["params"]["turn"]["id"] for one in heard if one.get("method") == "thread/turn/completed"]
    assert gone or told == [turn_id for turn_id in begun if turn_id in told]
    for turn_id, status in statuses.items():
        assert turns[turn_id].status == status
        assert turns[turn_id].completed_at_ms is not None
    assert [path for path in run.folder.rglob("*") if path.suffix in (".lock", ".tmp")] == []


def _check_lists(heard: list[Message], gone: bool) -> None:
    """What waits is taken back or comes in: queued inputs, steers, tries, questions."""
    waits: dict[str, int] = {}
    queues = [one["params"] for one in heard if one.get("method") == "turn/queue/updated"]
    for one in heard:
        params = one.get("params", {})
        if one.get("method") == "turn/retry":
            turn_id = params["turnId"]
            waits[turn_id] = waits.get(turn_id, 0) + 1 if params["state"] == "waiting" else 0
        elif one.get("method") == "turn/completed" and not gone:
            assert not waits.get(params["turn"]["id"]), "a chain of tries has no end"
    if queues and not gone:
        assert (queues[-1]["steering"], queues[-1]["followUp"]) == ([], []), "something waits for ever"
    said = [
        (one["params"]["turnId"], one["params"]["item"]["text"])
        for one in heard
        if one.get("method") == "item/completed" and one["params"]["item"]["type"] == "userMessage"
    ]
    assert len(set(said)) == len(said), "an input was delivered twice"
    statuses = [one["params"]["status"] for one in heard if one.get("method") == "thread/status/changed"]
    if statuses and not gone:
        assert statuses[-1]["type"] in ("idle", "notLoaded"), "the status never came to rest"
    for before, after in pairwise(statuses):
        assert before != after, "a status was told twice"
