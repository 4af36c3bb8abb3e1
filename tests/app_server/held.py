"""Gates: handlers and tools that stop where the test wants them to, and say that they are there.

None of them has a limit of its own in seconds: a test with a mock clock jumps over hours.
"""

from collections.abc import Callable
from typing import Any

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from knightcode.agent.tools.base import ToolContext, ToolResult
from tests.app_server.pipe import PATIENCE

SLOW_RATE = 0.2
"""Virtual seconds in a real one: a mock clock that crawls keeps waits bounded and its jumps exact."""


@attrs.define(eq=False)
class Gate:
    """Where visitors wait until the test lets them go; once open it stays open.

    Attributes:
        deaf: whoever waits here does not hear that it is cancelled.
        visitors: what each visitor brought, in the order of their coming.
        passed: how many have gone on.
        entered: called with each visitor, in the step in which it comes.
    """

    deaf: bool = False
    entered: Callable[[Any], None] = lambda _: None
    visitors: list[Any] = attrs.field(factory=list, init=False)
    passed: int = attrs.field(default=0, init=False)
    _open: trio.Event = attrs.field(factory=trio.Event, init=False)
    _news: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None:
        """A test that failed must not leave somebody deaf behind."""
        self.open()

    def open(self) -> None:
        """Let everyone go on, those to come as well."""
        self._open.set()

    async def until_visited(self, times: int = 1) -> None:
        """Until so many have come."""
        with trio.fail_after(PATIENCE):
            while len(self.visitors) < times:
                await self._news.park()

    async def until_passed(self, times: int = 1) -> None:
        """Until so many have gone on."""
        with trio.fail_after(PATIENCE):
            while self.passed < times:
                await self._news.park()

    async def handler(self, value: Any) -> None:
        """A handler for any hook point; it changes nothing."""
        await self._wait(value)

    async def tool(self, arguments: dict[str, Any], _: ToolContext) -> ToolResult:
        """The work of a tool."""
        await self._wait(arguments)
        return ToolResult.of_text("passed the gate")

    async def _wait(self, value: Any) -> None:
        self.entered(value)
        self.visitors.append(value)
        self._news.unpark_all()
        with trio.CancelScope(shield=self.deaf):
            await self._open.wait()
        self.passed += 1
        self._news.unpark_all()


def crawl(clock: MockClock) -> None:
    """Let a mock clock run, so slowly that only its jumps count."""
    clock.rate = SLOW_RATE


async def pass_time(clock: MockClock, seconds: float) -> None:
    """Let time pass for everyone who waits: all waits have begun before, all that end are over after."""
    await wait_all_tasks_blocked()
    clock.jump(seconds)
    await wait_all_tasks_blocked()
