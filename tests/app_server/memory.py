"""A host in this process with any number of clients, driven with messages as they go over the wire.

The way in for tests that need what no client can say: hooks, tools of their own, several clients at
once, an exact moment. Everything a client hears is kept in `heard`, in order, and every wait is for a
fact and bounded. With a mock clock set its `rate` to 1 and jump: an autojump clock jumps while the
worker threads that read session files are at work.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.app_server.core.connection import ConnectionCore
from knightcode.app_server.host import Host, HostConfig, open_host
from knightcode.app_server.main import server_info
from knightcode.threads.thread import Thread
from knightcode_protocol.handshake import Mode
from tests.agent.stage import OwnTool
from tests.app_server.hearing import Hearing
from tests.app_server.pipe import PATIENCE, Message, environment, lines_of, write_script

APPROVAL = "item/toolCall/requestApproval"

Wanted = Callable[[Message], bool]


@attrs.define(eq=False)
class MemoryClient(Hearing):
    """One client.

    Attributes:
        answer_approvals: the result for an approval request, given its params; None leaves it open.
            Without a function all of them stay open.
    """

    host: Host = attrs.field(repr=False)
    answer_approvals: Callable[[Message], Message | None] | None = None
    _count: int = attrs.field(default=0, init=False)

    # --- what it says ----------------------------------------------------------------------------

    def send(self, *messages: Message) -> None:
        """Messages in one chunk. Every request in it is admitted when this returns."""
        self.connection.receive(lines_of(*messages))

    def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id, for `response`."""
        self._count += 1
        self.send({"id": self._count, "method": method, "params": params})
        return self._count

    def answer(self, request: Message, result: Message) -> None:
        """Answer a request of the server."""
        self.send({"id": request["id"], "result": result})

    def disconnect(self) -> None:
        """Be gone. What the server had said before is still heard."""
        self.host.disconnect(self.connection)

    # --- what it waits for -----------------------------------------------------------------------

    async def until(self, wanted: Wanted, *, since: int = 0) -> Message:
        """The first message as wanted among those from `since` on, heard or to come."""
        (message,) = await self.until_all(wanted, 1, since=since)
        return message

    async def until_all(self, wanted: Wanted, count: int, *, since: int = 0) -> list[Message]:
        """The first `count` messages as wanted."""
        with trio.fail_after(PATIENCE):
            while True:
                found = [message for message in self.heard[since:] if wanted(message)]
                if len(found) >= count:
                    return found[:count]
                await self.news.park()

    async def until_method(self, method: str, *, since: int = 0) -> Message:
        """The params of the first notification of a method, or of the first request of the server."""
        params: Message = (await self.until(lambda one: one.get("method") == method, since=since))["params"]
        return params

    async def until_idle(self, thread_id: str, *, since: int = 0) -> None:
        """Until a thread says that it is idle."""
        idle = {"threadId": thread_id, "status": {"type": "idle"}}
        await self.until(lambda one: one.get("params") == idle, since=since)

    async def response(self, request_id: int) -> Message:
        """The whole answer to a request that `begin` sent."""
        return await self.until(lambda one: one.get("id") == request_id and "method" not in one)

    async def request(self, method: str, **params: Any) -> Message:
        """The result of a request that must succeed."""
        response = await self.response(self.begin(method, **params))
        assert "error" not in response, response
        result: Message = response["result"]
        return result

    async def refused(self, method: str, **params: Any) -> Message:
        """The error of a request that must be refused."""
        response = await self.response(self.begin(method, **params))
        assert "error" in response, response
        error: Message = response["error"]
        return error

    async def until_item(self, method: str, item_id: str) -> Message:
        """The item of the first notification of a method that tells of it."""
        found = await self.until(
            lambda one: one.get("method") == method and one["params"]["item"]["id"] == item_id
        )
        item: Message = found["params"]["item"]
        return item

    # --- conversations ---------------------------------------------------------------------------

    async def start_thread(self, cwd: Path, **more: Any) -> str:
        """A new thread's id. Unless `more` says otherwise it asks for no approval."""
        more = {"approvalMode": "fullAccess", **more}
        thread_id: str = (await self.request("thread/start", cwd=str(cwd), **more))["thread"]["id"]
        return thread_id

    async def start_turn(self, thread_id: str, text: str = "go", **more: Any) -> str:
        """Begin a turn; its id."""
        since = len(self.heard)
        await self.request("turn/start", threadId=thread_id, text=text, **more)
        turn_id: str = (await self.until_method("turn/started", since=since))["turn"]["id"]
        return turn_id

    async def run_turn(self, thread_id: str, text: str = "go", **more: Any) -> Message:
        """Run a turn until the thread is idle again; the turn of its `turn/completed`."""
        since = len(self.heard)
        turn_id = await self.start_turn(thread_id, text, **more)
        turn = await self.until_completed(turn_id)
        await self.until_idle(thread_id, since=since)
        return turn

    async def until_completed(self, turn_id: str) -> Message:
        """The turn of a `turn/completed`."""
        done = await self.until(
            lambda one: one.get("method") == "turn/completed" and one["params"]["turn"]["id"] == turn_id
        )
        turn: Message = done["params"]["turn"]
        return turn

    # --- what it was told ------------------------------------------------------------------------

    def notifications(self, method: str, *, since: int = 0) -> list[Message]:
        """The params of all notifications of a method, or of all requests of the server."""
        return [one["params"] for one in self.heard[since:] if one.get("method") == method]

    def items(self, method: str = "item/completed", *, kind: str | None = None) -> list[Message]:
        """The items of all notifications of a method, of one `type` if named."""
        told = [params["item"] for params in self.notifications(method)]
        return [item for item in told if kind is None or item["type"] == kind]

    async def read_items(self, thread_id: str) -> list[Message]:
        """The items of a thread's last turn, read back."""
        turn: Message = (await self.request("thread/read", threadId=thread_id))["turns"][-1]
        read: list[Message] = turn["items"]
        return read

    def requests(self, method: str = APPROVAL) -> list[Message]:
        """The server's requests of a method, whole, for `answer`."""
        return [one for one in self.heard if one.get("method") == method and "id" in one]

    def was_told(self, message: Message) -> None:
        if message.get("method") == APPROVAL and self.answer_approvals is not None:
            result = self.answer_approvals(message["params"])
            if result is not None:
                self.answer(message, result)


@attrs.define(eq=False)
class MemoryServer:
    """A host and its clients."""

    host: Host = attrs.field(repr=False)
    folder: Path
    _nursery: trio.Nursery = attrs.field(repr=False)
    _clients: list[MemoryClient] = attrs.field(factory=list, init=False)

    def connect(self, *, mode: Mode = "desktop", **options: Any) -> MemoryClient:
        """A client that is through its handshake; `options` go into its `initialize`."""
        core = ConnectionCore(server_info(), default_mode=mode)
        client = MemoryClient(
            connection=self.host.connect(core, self.host.requests, in_process=True), host=self.host
        )
        self._clients.append(client)
        self._nursery.start_soon(client.pump)
        client.begin("initialize", clientInfo={"name": "test", "version": "1"}, **options)
        client.send({"method": "initialized", "params": {}})
        return client

    def thread(self, thread_id: str) -> Thread:
        """A loaded thread, for its hooks and tools."""
        thread = self.host.manager.loaded(thread_id)
        assert thread is not None
        return thread

    def give(
        self, thread_id: str, name: str, work: Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult]]
    ) -> None:
        """A tool of the test's own for one thread."""
        self.thread(thread_id).tools[name] = OwnTool(name, work)

    def drain(self) -> None:
        """Let every client hear all that was said."""
        for client in self._clients:
            while client.drain():
                pass


def call(name: str, call_id: str, **arguments: Any) -> Message:
    """A step of a script that calls a tool under a known id."""
    return {"toolCall": {"id": call_id, "name": name, "arguments": arguments}}


async def done(_: dict[str, Any], __: ToolContext) -> ToolResult:
    """A tool's work that is none."""
    await trio.lowlevel.checkpoint()
    return ToolResult.of_text("done")


@asynccontextmanager
async def open_memory(
    folder: Path, *replies: Any, environ: Mapping[str, str] | None = None, **script: Any
) -> AsyncIterator[MemoryServer]:
    """A host whose threads begin with the scripted model; on exit every thread has been unloaded.

    Args:
        folder: of the test; the host's home and the script are put into it.
        replies: each its steps, or a whole reply object; see docs/scripted-model.md.
        environ: what the host's environment has besides.
        script: members of the script beside its replies.
    """
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    path = write_script(folder / "script.json", *replies, **script)
    config = HostConfig(environ=environment(home, **(environ or {})), cwd=home, scripted=path)
    async with trio.open_nursery() as nursery:
        async with open_host(config) as host:
            server = MemoryServer(host, folder, nursery)
            yield server
        server.drain()
        nursery.cancel_scope.cancel(reason="the test is over")
