"""Plays a schedule of requests against one thread, and says at each step what must be answered.

What is asked for and what is known come from the messages alone: the model below is the numbered rules
of docs/cancellation-rules.md, not the product's own state. Time is virtual, and trio shuffles the tasks
of every step by the schedule's seed.
"""

import json
import random
from pathlib import Path
from typing import Any

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.app_server.host import Host, HostConfig, open_host
from tests.app_server.pipe import Message, environment
from tests.torture.harness import Door, connect

SCRIPT: list[Any] = [
    {"when": {"system": "You summarise"}, "steps": [{"waitMs": 500}, {"text": "in short"}]},
    {"when": {"user": "slow"}, "steps": [{"text": "well", "delayMs": 700}, {"text": "then", "delayMs": 700}]},
    {"when": {"user": "fail"}, "times": 1, "steps": [{"error": "503 busy"}]},
    {
        "when": {"user": "ask"},
        "steps": [{"toolCall": {"name": "write", "arguments": {"path": "b.txt", "content": "b"}}}],
    },
    {"when": {}, "steps": [{"text": "fine"}]},
]
SETTINGS = {"compaction": {"keepRecentTokens": 1}}
KINDS = ("plain", "slow", "fail", "ask")
ROUNDS = 3_000
"""Looks at the end, each at least a millisecond long, until everything has come to rest."""


@attrs.define(eq=False)
class Fate:
    """What may still become of an input whose text is unique."""

    text: str
    turn_id: str | None = None  # where it must be, if anywhere
    told: list[str] = attrs.field(factory=list)
    """Every end that it had; there must be exactly one."""


@attrs.define(eq=False)
class Player:
    """One thread, a client that acts, and one that watches."""

    host: Host
    project: Path
    clock: MockClock
    nursery: trio.Nursery
    door: Door = attrs.field(init=False)
    watcher: Door = attrs.field(init=False)
    thread_id: str = attrs.field(init=False)
    count: int = attrs.field(default=0, init=False)
    starts: dict[str, Fate] = attrs.field(factory=dict, init=False)
    steers: dict[str, Fate] = attrs.field(factory=dict, init=False)
    queued: dict[str, Fate] = attrs.field(factory=dict, init=False)
    answered: list[tuple[Door, str]] = attrs.field(factory=list, init=False)
    stopped: set[str] = attrs.field(factory=set, init=False)
    """Turns that an interrupt has reached."""
    compaction: str | None = attrs.field(default=None, init=False)
    """The request of the compaction that has the admission."""
    follower: str | None = attrs.field(default=None, init=False)
    """The request of the start that waits behind it."""
    unsure: bool = attrs.field(default=False, init=False)
    """Who asked for what is admitted is gone, so its answer tells nothing any more."""
    gone: list[Door] = attrs.field(factory=list, init=False)

    async def begin(self) -> None:
        self.door, self.watcher = connect(self.host, self.nursery), connect(self.host, self.nursery)
        self.door.approve = self.watcher.approve = lambda _: False
        self.door.send(
            id="new", method="thread/start", params={"cwd": str(self.project), "approvalMode": "ask"}
        )
        self.thread_id = (await self.door.answer_to("new"))["result"]["thread"]["id"]
        await self._watch()

    async def _watch(self) -> None:
        self.count += 1
        name = f"watch-{self.count}"
        self.watcher.send(id=name, method="thread/resume", params={"threadId": self.thread_id})
        await self.watcher.answer_to(name)

    # --- what is known -----------------------------------------------------------------------------

    def told(self, method: str) -> list[Message]:
        self.watcher.drain()
        return [one["params"] for one in self.watcher.heard if one.get("method") == method]

    def running(self) -> str | None:
        """The turn that runs, as far as anybody was told."""
        ended = {params["turn"]["id"] for params in self.told("turn/completed")}
        return next(
            (
                params["turn"]["id"]
                for params in reversed(self.told("turn/started"))
                if params["turn"]["id"] not in ended
            ),
            None,
        )

    def status(self) -> str:
        told = self.told("thread/status/changed")
        return str(told[-1]["status"]["type"]) if told else "idle"

    def waiting(self) -> tuple[list[str], list[str]]:
        """Texts of the steers, ids of the queued inputs."""
        told = self.told("turn/queue/updated")
        return (told[-1]["steering"], [one["id"] for one in told[-1]["followUp"]]) if told else ([], [])

    def questions(self) -> list[tuple[Door, str]]:
        """What a person is being asked, and by which way."""
        found: list[tuple[Door, str]] = []
        for door in (self.door, self.watcher):
            door.drain()
            withdrawn = {
                one["params"]["requestId"]
                for one in door.heard
                if one.get("method") == "serverRequest/cancelled"
            }
            found += [
                (door, one["id"])
                for one in door.heard
                if one.get("method") == "item/toolCall/requestApproval" and one["id"] not in withdrawn
            ]
        return [one for one in found if one not in self.answered]

    def ask(self, method: str, **params: Any) -> tuple[str, Message | None]:
        """Send a request of the acting client; its answer if that came at once."""
        self.count += 1
        name = f"r{self.count}"
        self.door.send(id=name, method=method, params={"threadId": self.thread_id, **params})
        self.door.drain()
        return name, next(
            (one for one in self.door.heard if one.get("id") == name and "method" not in one), None
        )

    # --- what is done ------------------------------------------------------------------------------

    def start(self, kind: str) -> None:
        status = self.status()
        behind = self._is_open(self.compaction) and not self._is_open(self.follower)
        text = f"{kind} start {self.count}"
        name, answer = self.ask("turn/start", text=text)
        refused = answer is not None and "error" in answer
        if status == "idle":
            self.unsure, self.compaction = False, None
        # One that is interrupted before it began is answered before it lets go of the admission.
        letting_go = self.compaction is not None and not self._is_open(self.compaction)
        if not self.unsure and not letting_go:
            assert refused is not (status == "idle" or behind), (status, behind, answer)
        if answer is not None and refused:
            assert answer["error"]["code"] == "turnInProgress", answer
        else:
            self.starts[name] = Fate(text)
            if behind or letting_go:
                self.follower = name

    def compact(self) -> None:
        status = self.status()
        name, answer = self.ask("thread/compact")
        if status == "idle":
            assert answer is None
            self.compaction, self.unsure = name, False
        else:
            assert answer is not None
            assert answer["error"]["code"] == "turnInProgress", answer

    def _is_open(self, name: str | None) -> bool:
        """Whether a request of the acting client has no answer yet."""
        self.door.drain()
        return name is not None and all(one.get("id") != name for one in self.door.heard)

    def steer(self, *, stale: bool) -> None:
        running = self.running()
        text = f"plain steer {self.count}"
        name, answer = self.ask(
            "turn/steer", expectedTurnId="0" * 8 if stale or running is None else running, text=text
        )
        if stale or running is None:
            assert answer is None or answer["error"]["code"] == "turnMismatch", answer
        elif answer is not None and answer.get("error", {}).get("data") == {"reason": "compacting"}:
            assert not self._said(running), "a turn with an input refuses another one"
        elif running in self.stopped:
            assert answer is not None
            assert answer["error"]["data"] == {"reason": "steerCancelled"}, answer
        else:
            assert answer == {"id": name, "result": {}}, answer
            self.steers[text] = Fate(text, running)

    def _said(self, turn_id: str) -> list[str]:
        """What users said in a turn."""
        return [
            params["item"]["text"]
            for params in self.told("item/completed")
            if params["turnId"] == turn_id and params["item"]["type"] == "userMessage"
        ]

    def queue(self, kind: str) -> None:
        text = f"{kind} queued {self.count}"
        _, answer = self.ask("turn/queue/add", text=text)
        assert answer is not None
        self.queued[answer["result"]["queueId"]] = Fate(text)

    def remove(self, which: int) -> None:
        if not self.queued:
            return
        queue_id = list(self.queued)[which % len(self.queued)]
        waits = queue_id in self.waiting()[1]
        _, answer = self.ask("turn/queue/remove", queueId=queue_id)
        assert answer is not None
        assert answer["result"] == {"removed": waits}, answer
        if waits:
            self.queued[queue_id].told.append("removed")

    def interrupt(self, how: str) -> None:
        running = self.running()
        before = len(self.watcher.heard)
        if how == "stale":
            _, answer = self.ask("turn/interrupt", turnId="0" * 8)
            assert answer is not None
            assert answer["error"]["code"] == "turnMismatch", answer
            self.watcher.drain()
            assert len(self.watcher.heard) == before, "a refused interrupt changed something"
            return
        if how == "current" and running is None:
            return
        steers, queue = self.waiting()
        _, answer = self.ask("turn/interrupt", **({} if how == "any" else {"turnId": running}))
        assert answer is not None
        assert answer.get("result") == {}, answer
        self._dropped(steers, queue)
        if running is not None:
            self.stopped.add(running)

    def _dropped(self, steers: list[str], queue: list[str]) -> None:
        for text in steers:
            self.steers[text].told.append("dropped")
        for queue_id in queue:
            self.queued[queue_id].told.append("dropped")
        assert self.waiting() == ([], [])

    def answer(self, decision: str) -> None:
        for door, name in self.questions()[:1]:
            self.answered.append((door, name))
            door.send(id=name, result={"decision": decision})

    def answer_again(self) -> None:
        """A second answer counts for nothing."""
        for door, name in self.answered[-1:]:
            door.send(id=name, result={"decision": "accept"})

    def disconnect(self) -> None:
        """The acting client goes, and another one comes."""
        self.door.drain()
        self.unsure = self.unsure or self.compaction is not None
        self.compaction = self.follower = None
        self.host.disconnect(self.door.connection)
        self.gone.append(self.door)
        self.door = connect(self.host, self.nursery)
        self.door.approve = lambda _: False

    def resume(self) -> None:
        """Subscribe the acting client."""
        self.ask("thread/resume")

    async def unload(self) -> None:
        """End the thread under everything that runs, and load it again."""
        thread = self.host.manager.loaded(self.thread_id)
        if thread is None:
            return
        steers, queue = self.waiting()
        saved = thread.session.path is not None
        if not saved:
            return  # there would be nothing to load
        thread.unload("unload")
        self._dropped(steers, queue)
        for _ in range(ROUNDS):
            if thread.ended.is_set():
                break
            await self.pass_time(1.0)
        assert thread.ended.is_set(), "the thread did not end"
        await self._watch()

    async def pass_time(self, seconds: float) -> None:
        """Let the time go by; worker threads are given a moment of real time."""
        await wait_all_tasks_blocked(0.001)
        self.clock.jump(seconds)

    # --- the end -----------------------------------------------------------------------------------

    async def come_to_rest(self) -> None:
        """Agree to everything until nothing is left to do."""
        for _ in range(ROUNDS):
            self.answer("accept")
            await self.pass_time(1.0)
            thread = self.host.manager.loaded(self.thread_id)
            if thread is not None and thread.lane.free and not thread._tasks and self.status() == "idle":
                break
        else:
            raise AssertionError(f"no rest: {self.watcher.heard[-5:]}")
        await wait_all_tasks_blocked(0.001)

    def check(self) -> None:
        """Every input had exactly one end, where and when the rules allow it."""
        doors = [self.door, *self.gone]
        for door in (*doors, self.watcher):
            door.drain()
        users = [
            (params["turnId"], params["item"]["text"])
            for params in self.told("item/completed")
            if params["item"]["type"] == "userMessage"
        ]
        said = {text: turn_id for turn_id, text in users}
        assert len(said) == len(users), "an input was delivered twice"
        started = [params["turn"]["id"] for params in self.told("turn/started")]
        completed = [params["turn"]["id"] for params in self.told("turn/completed")]
        assert started == completed
        for name, fate in self.starts.items():
            answers = [one for door in doors for one in door.heard if one.get("id") == name]
            if not answers:
                continue  # who asked was gone by then
            (answer,) = answers
            if answer.get("result", {}).get("status") == "started":
                assert fate.text in said, f"{fate.text} started and was never said"
            else:
                assert fate.text not in said, (fate.text, answer)
        for fate in self.steers.values():
            if fate.text in said:
                fate.told.append("delivered")
                assert said[fate.text] == fate.turn_id, "a steer reached another turn"
            assert len(fate.told) == 1, (fate.text, fate.told)
        for fate in self.queued.values():
            if fate.text in said:
                fate.told.append("started")
            assert len(fate.told) == 1 or not fate.told, (fate.text, fate.told)
            if not fate.told:  # taken out of the queue, and interrupted before it was accepted
                assert fate.text not in said
        order = [int(text.rsplit(" ", 1)[1]) for _, text in users if " queued " in text]
        assert order == sorted(order), "queued inputs began out of order"
        for turn in self.told("turn/completed"):
            if turn["turn"]["id"] in self.stopped:
                assert turn["turn"]["status"] == "interrupted"
                assert "error" not in turn["turn"]


async def _play(steps: list[tuple[str, Any]], folder: Path, clock: MockClock) -> None:
    project, home = folder / "project", folder / "home"
    project.mkdir(parents=True)
    home.mkdir()
    (home / "agent").mkdir()
    (home / "agent" / "settings.json").write_text(json.dumps(SETTINGS))
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": SCRIPT}))
    config = HostConfig(environment(home), home, scripted=script)
    async with trio.open_nursery() as nursery:
        async with open_host(config) as host:
            player = Player(host, project, clock, nursery)
            await player.begin()
            for name, argument in steps:
                if name == "pass_time":
                    await player.pass_time(argument)
                elif name == "steps":
                    for _ in range(argument):
                        await trio.lowlevel.checkpoint()
                elif name == "unload":
                    await player.unload()
                elif name == "rest":
                    await player.come_to_rest()
                elif name == "steer":
                    player.steer(stale=argument)
                else:
                    getattr(player, name)(*argument)
            await player.come_to_rest()
            player.check()
        nursery.cancel_scope.cancel()


def play(steps: list[tuple[str, Any]], seed: int, folder: Path) -> None:
    """Play a schedule to its end, and check it."""
    scheduler: random.Random = trio._core._run._r
    scheduler.seed(seed)
    clock = MockClock(rate=0)
    trio.run(_play, steps, folder, clock, clock=clock)
