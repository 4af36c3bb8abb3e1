"""A server as a child process, driven with nothing but bytes and `json`: no code of the product's.

Every wait is bounded. What the server writes is kept in `heard`, in order; `talk` has both sides.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import trio

PATIENCE = 20.0
"""Seconds that a test waits for one fact; far above what any of them takes."""

Message = dict[str, Any]
ROOT = Path(__file__).parents[2]

INIT: list[Message] = [
    {"id": "init", "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
    {"method": "initialized", "params": {}},
]
"""The handshake, for those who write it together with what follows."""


def lines_of(*messages: Message) -> bytes:
    """Messages as the bytes of their lines."""
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def environment(home: Path, **more: str) -> dict[str, str]:
    """A clean environment: an own home, no keys, no proxies."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ
    }
    return {
        **kept,
        "HOME": str(home),
        "KNIGHTCODE_CODING_AGENT_DIR": str(home / "agent"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protocol")]),
        **more,
    }


class Pipe:
    """One server process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.heard: list[Message] = []
        self.talk: list[tuple[Literal["client", "server"], Message]] = []
        self._rest = b""
        self._count = 0
        self.answer_approvals: Callable[[Message], Message | None] | None = None

    async def write(self, data: bytes) -> None:
        """Raw bytes to the server's stdin."""
        assert self.process.stdin is not None
        with trio.fail_after(PATIENCE):
            await self.process.stdin.send_all(data)

    async def send(self, *messages: Message) -> None:
        """All messages in one write."""
        self.talk += [("client", message) for message in messages]
        await self.write(lines_of(*messages))

    async def hear(self) -> Message | None:
        """The next message; None at the end of the server's output."""
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._rest:
                chunk = await self.process.stdout.receive_some(1 << 20)
                if not chunk:
                    assert not self._rest, f"half a line at the end: {self._rest[:200]!r}"
                    return None
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: Message = json.loads(line)
        self.heard.append(message)
        self.talk.append(("server", message))
        if self.answer_approvals is not None and message.get("method") == "item/toolCall/requestApproval":
            result = self.answer_approvals(message)
            if result is not None:
                await self.send({"id": message["id"], "result": result})
        return message

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message from here on that is as wanted."""
        while True:
            message = await self.hear()
            assert message is not None, f"the output ended; the last of it: {self.heard[-3:]}"
            if wanted(message):
                return message

    async def until_method(self, method: str) -> Message:
        """The next notification or server request of a method; its params."""
        message = await self.until(lambda one: one.get("method") == method)
        params: Message = message["params"]
        return params

    async def ask(self, method: str, **params: Any) -> Message:
        """Send a request and wait for its whole response."""
        self._count += 1
        request_id = self._count
        await self.send({"id": request_id, "method": method, "params": params})
        return await self.until(lambda one: one.get("id") == request_id and "method" not in one)

    async def call(self, method: str, **params: Any) -> Message:
        """Send a request that must succeed; its result."""
        response = await self.ask(method, **params)
        assert "error" not in response, response
        result: Message = response["result"]
        return result

    async def handshake(self, **more: Any) -> Message:
        """initialize and initialized."""
        result = await self.call("initialize", clientInfo={"name": "test", "version": "1"}, **more)
        await self.send({"method": "initialized", "params": {}})
        return result

    async def start_thread(self, cwd: Path, **more: Any) -> str:
        """A new thread's id."""
        result = await self.call("thread/start", cwd=str(cwd), **more)
        thread_id: str = result["thread"]["id"]
        return thread_id

    async def run_turn(self, thread_id: str, text: str = "go", **more: Any) -> Message:
        """Run a turn to its end; the params of its `turn/completed`."""
        await self.send(
            {"id": "turn", "method": "turn/start", "params": {"threadId": thread_id, "text": text, **more}}
        )
        completed = await self.until_method("turn/completed")
        await self.until_idle()
        return completed

    async def until_idle(self, since: int | None = None) -> None:
        """Until a thread says that it is idle: from here on, or among what was heard from `since` on."""

        def idle(one: Message) -> bool:
            return one.get("method") == "thread/status/changed" and one["params"]["status"]["type"] == "idle"

        if since is None or not any(map(idle, self.heard[since:])):
            await self.until(idle)

    async def close(self) -> list[Message]:
        """End of input; everything that still came."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        start = len(self.heard)
        while await self.hear() is not None:
            pass
        return self.heard[start:]

    async def exit_code(self) -> int:
        """Wait for the process's end."""
        with trio.fail_after(PATIENCE):
            return await self.process.wait()

    def notifications(self, thread_id: str | None = None) -> list[tuple[str, Message]]:
        """Method and params of all notifications heard, of one thread if named."""
        return [
            (one["method"], one["params"])
            for one in self.heard
            if "method" in one
            and "id" not in one
            and (thread_id is None or one["params"].get("threadId", thread_id) == thread_id)
        ]


@asynccontextmanager
async def open_pipe(
    home: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stderr: int | None = None,
    command: Sequence[str] = (sys.executable, "-m", "knightcode", "app-server"),
) -> AsyncIterator[Pipe]:
    """A server; on exit its stdin is closed and it must end by itself, or it is killed and the test fails."""
    home.mkdir(parents=True, exist_ok=True)
    process = await trio.lowlevel.open_process(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environ or environment(home),
        cwd=cwd or home,
    )
    assert process.stdin is not None and process.stdout is not None
    pipe = Pipe(process)
    try:
        yield pipe
        await process.stdin.aclose()
        with trio.fail_after(PATIENCE):
            with suppress(trio.ClosedResourceError):  # a test about a client that closes it
                while await process.stdout.receive_some(1 << 20):
                    pass
            await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


def write_script(path: Path, *replies: Any, **more: Any) -> Path:
    """A scripted conversation: each reply is its steps, or a whole reply object."""
    whole = [reply if isinstance(reply, dict) else {"steps": reply} for reply in replies]
    path.write_text(json.dumps({"replies": whole, **more}))
    return path


def text(value: str, **more: Any) -> Message:
    return {"text": value, **more}


def tool(name: str, **arguments: Any) -> Message:
    return {"toolCall": {"name": name, "arguments": arguments}}


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def until_dead(pid: int) -> None:
    """Until a process that was killed has died, which takes the system a moment."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(PATIENCE):
            await trio.lowlevel.wait_readable(handle)
    finally:
        os.close(handle)


def accept(_: Message) -> Message:
    """Answers an approval."""
    return {"decision": "accept"}
