"""A burst of requests costs nobody the connection: what is asked is answered as fast as it is read."""

import json
import sys
from pathlib import Path

import trio

from tests.app_server.pipe import Message, open_pipe, text, write_script

PATIENCE = 60


async def test_a_burst_whose_answers_are_far_over_the_limit_is_answered_to_a_client_that_reads(
    tmp_path: Path,
) -> None:
    """App Server: Limits and client reference; the abort is for those that do not read."""
    count = 10_000
    asked = [{"id": number, "method": "model/list"} for number in range(count)]
    answered: list[int] = []
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        size = len(json.dumps(await pipe.call("model/list")))
        assert size * count > 80 * 2**20
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: pipe.send(*asked))
                stdout, rest = pipe.process.stdout, b""
                assert stdout is not None
                while len(answered) < count:
                    chunk = await stdout.receive_some(1 << 20)
                    assert chunk, f"the output ended after {len(answered)} answers"
                    *lines, rest = (rest + chunk).split(b"\n")
                    answered += [int(line[6 : line.index(b",")]) for line in lines]
    assert answered == list(range(count))


async def test_an_interrupt_passes_requests_that_are_held(tmp_path: Path) -> None:
    """App Server notes: Interrupts; answered at once, also while the client has much to read."""
    script = write_script(tmp_path / "script.json", [text("so far"), {"silence": True}])
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        await pipe.call("turn/start", threadId=thread_id, text="go")
        await pipe.until_method("item/agentMessage/delta")
        # Enough answers to be held, fewer than what stops the reading.
        burst: list[Message] = [{"id": f"m{number}", "method": "model/list"} for number in range(2_500)]
        await pipe.send(*burst, {"id": "i", "method": "turn/interrupt", "params": {"threadId": thread_id}})
        order: list[str] = []
        while len(order) < 2_501:
            order.append((await pipe.until(lambda one: "id" in one and "method" not in one))["id"])
    assert order.index("i") < 2_400
    assert [one for one in order if one != "i"] == [one["id"] for one in burst]


async def test_output_that_the_system_refuses_is_no_clean_end(tmp_path: Path) -> None:
    """Command line: exit codes; the answer is lost, and somebody must hear of it."""
    command = ("sh", "-c", 'exec "$@" > /dev/full', "sh", sys.executable, "-m", "knightcode", "app-server")
    with (tmp_path / "log").open("w+b") as errors:
        async with open_pipe(tmp_path / "home", command=command, stderr=errors.fileno()) as pipe:
            await pipe.send({"id": 1, "method": "no/such"}, {"id": 2, "method": "no/such"})
            assert await pipe.exit_code() == 1
        errors.seek(0)
        assert b'"output ended"' in errors.read()
