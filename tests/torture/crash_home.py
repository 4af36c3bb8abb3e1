"""One home in which server after server dies, and what has to hold after each of them.

Every server begins by proving what the one before it left: the file, the listing, the history, and that
the thread can be resumed and used. Then it begins a turn and dies in it.

A command that ran when its server was killed is nobody's: it goes on until it ends by itself or writes
into the pipe that nobody reads any more. Whoever killed the server ends it; here that is the home.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import trio

from tests.app_server.pipe import INIT, PATIENCE, Message, Pipe, environment, until_dead, write_script
from tests.torture.crash_ledger import Ledger, has_user_message, same_bytes, session_files
from tests.torture.crash_points import SCRIPT, Point, name_of

TURNS_OF_A_THREAD = 16
"""After so many turns the next server begins another thread: the first turn is a case of its own."""


class Victim(Pipe):
    """A server that may die in the middle of anything, also of a line."""

    bytes_heard = 0

    async def hear(self) -> Message | None:
        """The next message; None at the end of the output, of which half a line is no fault here."""
        while b"\n" not in self._rest:
            if not await self.read():
                self._rest = b""
                return None
        return await super().hear()

    async def read(self, limit: int = 1 << 20) -> bool:
        """Read some bytes without looking at them, `limit` at most; False at the end of the output."""
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE):
            chunk = await self.process.stdout.receive_some(limit)
        self._rest += chunk
        self.bytes_heard += len(chunk)
        return bool(chunk)

    @property
    def has_line(self) -> bool:
        """Whether `hear` has a message without reading."""
        return b"\n" in self._rest

    async def kill(self) -> None:
        """`kill -9`, if it has not died by itself. What it had written is heard; its pipe ends with it."""
        self.process.kill()
        while await self.hear() is not None:
            pass
        assert await self.exit_code() == -signal.SIGKILL

    @property
    def asked(self) -> dict[object, str]:
        """The methods of what the client asked, under the ids of the requests."""
        return {one["id"]: one["method"] for side, one in self.talk if side == "client" and "id" in one}


@attrs.define(eq=False)
class CrashHome:
    """A home directory, the thread that is used in it, and a count of where its servers died.

    Attributes:
        fell: the last message of each server that died in a turn, by its kind.
    """

    folder: Path
    fell: Counter[str] = attrs.field(factory=Counter, init=False)
    _ledger: Ledger | None = attrs.field(default=None, init=False)
    _lost: list[str] = attrs.field(factory=list, init=False)  # threads whose loss no server has confirmed

    @classmethod
    def make(cls, folder: Path) -> "CrashHome":
        """A fresh one, with a project and the model's script."""
        (folder / "project").mkdir(parents=True)
        (folder / "tmp").mkdir()
        (folder / "project" / "a.txt").write_text("one\n")
        write_script(folder / "script.json", *SCRIPT)
        return cls(folder)

    @asynccontextmanager
    async def open_server(self, *dying: str) -> AsyncIterator[Victim]:
        """A server on this home, killed at the end if it still runs; `dying` as crash_server takes it."""
        program = ("tests.torture.crash_server", *dying) if dying else ("knightcode", "app-server")
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", *program, "--scripted-model", str(self.folder / "script.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(self.folder, TMPDIR=str(self.folder / "tmp")),
            cwd=self.folder,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            yield Victim(process)
        finally:
            process.kill()
            with trio.move_on_after(PATIENCE, shield=True):
                await process.wait()
                await self.end_orphans()
                await process.stdin.aclose()
                await process.stdout.aclose()

    # --- lives and deaths ---------------------------------------------------------------------------

    async def die_at(self, point: Point) -> None:
        """A server that proves the past, runs a whole turn, and is killed in the next one."""
        async with self.open_server() as server:
            await server.handshake()
            await self.check_past(server)
            if self._ledger is None:
                self._ledger = Ledger(await server.start_thread(self._project, approvalMode="fullAccess"))
            since = len(server.heard)
            await server.send(_start(self._ledger.thread_id, point.turn))
            await _reach(server, point, since)
            if point.after == "interrupt":
                params = {"threadId": self._ledger.thread_id}
                await server.send({"id": "stop", "method": "turn/interrupt", "params": params})
            await server.kill()
            await self._note_death(server, since)

    async def die_in_write(self, number: int, part: int) -> bool:
        """A server that resumes the thread or begins one, runs a turn, and dies in one of its writes.

        Returns:
            False when it came to the end of its turn without so many writes.
        """
        async with self.open_server(str(number), str(part)) as server:
            with suppress(trio.BrokenResourceError):  # dead before it has read everything
                await self._live_blindly(server)
            survived = server.process.returncode is None and _is_over(server.heard)
            await server.kill()
            await self._note_death(server, 0)
        return not survived

    async def check_past(self, server: Victim) -> None:
        """What dead servers left is all there: listed, readable, and a thread that can be used."""
        files = session_files(self.folder)
        rows = (await server.call("thread/list"))["threads"]
        listed = sorted(row["id"] for row in rows if not row.get("damaged"))
        assert listed == sorted(name for name, path in files.items() if has_user_message(path))
        for thread_id in self._lost:
            assert (await server.ask("thread/read", threadId=thread_id))["error"]["code"] == "threadNotFound"
        self._lost.clear()
        ledger = self._ledger
        if ledger is None:
            return
        read = await server.call("thread/read", threadId=ledger.thread_id)
        assert "nextCursor" not in read
        ledger.check(files[ledger.thread_id], read["turns"])
        resumed = await server.call("thread/resume", threadId=ledger.thread_id)
        assert same_bytes(resumed["turns"], read["turns"])
        assert (resumed["thread"]["status"], "runningTurn" in resumed) == ({"type": "idle"}, False)
        if len(ledger.settled) >= TURNS_OF_A_THREAD:
            self._ledger = None
        assert (await server.run_turn(ledger.thread_id))["turn"]["status"] == "completed"

    async def prove_past(self) -> None:
        """A server that does nothing else. Then it is killed, at rest, which leaves nothing to be proved."""
        async with self.open_server() as server:
            await server.handshake()
            await self.check_past(server)
            await server.kill()
            assert await self.end_orphans() == 0
            if self._ledger is not None:
                self._ledger.hear(server.heard)

    def begin_anew(self) -> None:
        """The next server begins a thread instead of going on with the last one."""
        self._ledger = None

    async def end_well(self) -> None:
        """A last server, which proves the past and stops as it should; nothing of any life is left."""
        async with self.open_server() as server:
            await server.handshake()
            await self.check_past(server)
            await server.close()
            assert await server.exit_code() == 0
        agent = self.folder / "agent"
        assert [*agent.rglob("*.lock"), *agent.rglob("*.tmp")] == []

    async def end_orphans(self) -> int:
        """End the commands that outlived a server of this home; how many there were."""
        count = 0
        while orphans := self.orphans():
            count += len(orphans)
            for pid in orphans:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await until_dead(pid)
        return count

    def orphans(self) -> list[int]:
        """The processes that run for calls of servers of this home."""
        home = f"HOME={self.folder}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit():
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    if home in variables and any(one.startswith(b"KNIGHTCODE_CALL=") for one in variables):
                        found.append(int(entry.name))
        return found

    # --- inside -------------------------------------------------------------------------------------

    @property
    def _project(self) -> Path:
        return self.folder / "project"

    async def _live_blindly(self, server: Victim) -> None:
        if self._ledger is None:
            params: Message = {"cwd": str(self._project), "approvalMode": "fullAccess"}
            opening: Message = {"id": "open", "method": "thread/start", "params": params}
        else:
            params = {"threadId": self._ledger.thread_id}
            opening = {"id": "open", "method": "thread/resume", "params": params}
        await server.send(*INIT, opening)
        while (message := await server.hear()) is not None and message.get("id") != "open":
            pass
        if message is None:
            return
        if self._ledger is None:
            self._ledger = Ledger(message["result"]["thread"]["id"])
        await server.send(_start(self._ledger.thread_id, "work"))
        while not _is_over(server.heard) and await server.hear() is not None:
            pass

    async def _note_death(self, server: Victim, since: int) -> None:
        """Take in what the server had said; `since` is where its last turn was asked for."""
        orphans = await self.end_orphans()
        if _is_over(server.heard[since:]):
            assert orphans == 0, "a command outlived its turn"
        self.fell[name_of(server.heard[-1], server.asked) if server.heard else "nothing"] += 1
        if self._ledger is None:
            return
        self._ledger.hear(server.heard)
        if self._ledger.thread_id not in session_files(self.folder):
            assert self._ledger.may_be_lost, "a thread is lost although a reply or a turn was complete"
            self._lost.append(self._ledger.thread_id)
            self._ledger = None


def _start(thread_id: str, words: str) -> Message:
    return {"id": "begin", "method": "turn/start", "params": {"threadId": thread_id, "text": words}}


def _is_over(heard: list[Message]) -> bool:
    """Whether a turn has ended in these messages, and its thread takes the next one."""
    return any(one.get("method") == "turn/completed" for one in heard) and heard[-1].get("params", {}).get(
        "status"
    ) == {"type": "idle"}


async def _reach(server: Victim, point: Point, since: int) -> None:
    """Hear as much as the point says, or until the turn is over."""
    end = server.bytes_heard + point.count

    def reached() -> bool:
        heard = server.heard[since:]
        match point.after:
            case "bytes":
                return server.bytes_heard >= end
            case "deltas":
                return [one.get("method") for one in heard].count("item/toolCall/outputDelta") >= point.count
            case _:
                return len(heard) >= point.count

    while not reached() and not _is_over(server.heard[since:]):
        if point.after == "bytes" and not server.has_line:
            assert await server.read(end - server.bytes_heard), "the server ended by itself"
        else:
            assert await server.hear() is not None, "the server ended by itself"
