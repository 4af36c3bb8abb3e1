"""A turn that waits: it has asked for an approval, and goes on when the test answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from tests.app_server.pipe import Message, Pipe, open_pipe, text, tool, write_script

CALL = tool("bash", command="true")


@attrs.define(eq=False)
class Waiting:
    """A server with one thread whose turn waits for the test."""

    pipe: Pipe
    thread_id: str
    turn_id: str
    question: Message

    async def go_on(self) -> Message:
        """Let the turn go on to its end; its `turn/completed`."""
        await self.allow()
        return await self.pipe.until_method("turn/completed")

    async def allow(self) -> None:
        """Answer the question."""
        await self.pipe.send({"id": self.question["id"], "result": {"decision": "accept"}})

    async def steer(self, text: str, **more: object) -> Message:
        return await self.pipe.ask(
            "turn/steer", threadId=self.thread_id, expectedTurnId=self.turn_id, text=text, **more
        )

    async def queue(self, text: str, **more: object) -> str:
        """Queue an input; its id."""
        result = await self.pipe.call("turn/queue/add", threadId=self.thread_id, text=text, **more)
        queue_id: str = result["queueId"]
        return queue_id

    def texts_of_users(self) -> list[tuple[str, str]]:
        """Turn and text of every user message that was shown, in order."""
        return [
            (params["turnId"], params["item"]["text"])
            for method, params in self.pipe.notifications(self.thread_id)
            if method == "item/completed" and params["item"]["type"] == "userMessage"
        ]

    def queues(self) -> list[tuple[list[str], list[str]]]:
        """Every `turn/queue/updated`: the steers and the texts of the queued inputs."""
        return [
            (params["steering"], [one["text"] for one in params["followUp"]])
            for method, params in self.pipe.notifications(self.thread_id)
            if method == "turn/queue/updated"
        ]


@asynccontextmanager
async def open_waiting(
    tmp_path: Path, *replies: list[Message], first: list[Message] | None = None
) -> AsyncIterator[Waiting]:
    """A turn that has called a tool and waits for a person; `replies` are what the model says after it."""
    script = write_script(tmp_path / "script.json", first or [text("look"), CALL], *replies)
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.send(
            {"id": "turn", "method": "turn/start", "params": {"threadId": thread_id, "text": "go"}}
        )
        question = await pipe.until(lambda one: one.get("method") == "item/toolCall/requestApproval")
        yield Waiting(pipe, thread_id, question["params"]["turnId"], question)
