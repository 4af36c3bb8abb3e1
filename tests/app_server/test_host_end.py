"""The end of a host in this process: what was accepted is answered, and nothing more is accepted.

Source: App Server notes, "Shutdown", "In-process client and host".
"""

from pathlib import Path

import pytest
import trio

from tests.app_server.memory import open_memory
from tests.app_server.pipe import PATIENCE, text


@pytest.mark.rule("S65", "S67", "S70")
async def test_a_host_that_ends_answers_what_it_accepted_and_refuses_the_rest(tmp_path: Path) -> None:
    silent = {"steps": [text("so far"), {"silence": True}]}
    async with trio.open_nursery() as nursery:
        leaving, left = trio.Event(), trio.Event()

        async def serve(task_status: trio.TaskStatus[object]) -> None:
            async with open_memory(tmp_path, silent) as server:
                task_status.started(server)
                await leaving.wait()
            left.set()

        server = await nursery.start(serve)
        client = server.connect()
        thread_id = await client.start_thread(tmp_path)
        turn_id = await client.start_turn(thread_id)
        await client.until_method("item/agentMessage/delta")
        read = client.begin("thread/read", threadId=thread_id)
        missing = client.begin("thread/read", threadId="nobody")
        leaving.set()
        completed = await client.until_completed(turn_id)
        assert completed["status"] == "interrupted"
        late = await client.refused("model/list")
        assert late["code"] == "shuttingDown"
        assert (await client.response(read))["result"]["thread"]["id"] == thread_id
        assert (await client.response(missing))["error"]["code"] in ("threadNotFound", "shuttingDown")
        with trio.fail_after(PATIENCE):
            await left.wait()
