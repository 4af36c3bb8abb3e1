"""A server that dies without a word loses nothing that it has announced, and leaves a thread that works.

Source: App Server notes, "Shutdown"; session files, "Writing"; users' reports, "The user's files or work
are lost", "Something stays or hangs".
"""

import sys
from pathlib import Path

import pytest

from tests.torture.crash_home import CrashHome
from tests.torture.crash_ledger import session_files
from tests.torture.crash_points import Point, points

HOMES = 4
KILLS_OF_A_HOME = 50
"""In the torture run; together 200."""
PARTS = (0, 60)
"""Percent of a write that are done before the server dies in it."""


def say_where(home: CrashHome, capsys: pytest.CaptureFixture[str]) -> None:
    """Print how many servers died, and behind which message."""
    lines = [f"{home.fell.total()} servers died; the last message that was heard of them:"]
    lines += [f"{count:6}  {name}" for name, count in home.fell.most_common()]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


@pytest.mark.rule("S77")
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([Point("work", "lines", 32), Point("flood", "bytes", 30_000)], id="work and flood"),
        pytest.param([Point("wait", "deltas", 1), Point("work", "interrupt", 9)], id="wait and interrupt"),
    ],
)
async def test_a_killed_server_has_lost_nothing_that_it_announced(tmp_path: Path, kills: list[Point]) -> None:
    """Some of the kills; the torture run has two hundred."""
    home = CrashHome.make(tmp_path)
    for point in kills:
        await home.die_at(point)
    await home.end_well()
    assert home.fell.total() == len(kills)


@pytest.mark.rule("S77")
async def test_a_server_that_dies_in_a_write_has_lost_nothing_that_it_announced(tmp_path: Path) -> None:
    """Some of the writes; the torture run has all of them."""
    home = CrashHome.make(tmp_path)
    for number, part in [(15, 60), (27, 60)]:
        assert await home.die_in_write(number, part)
        await home.prove_past()
    await home.end_well()


async def test_a_command_outlives_its_killed_server_and_holds_nothing_that_belonged_to_it(
    tmp_path: Path,
) -> None:
    """Nobody can end it then; but the client sees the end of the output, and the thread goes on."""
    home = CrashHome.make(tmp_path)
    async with home.open_server() as server:
        await server.handshake()
        thread_id = await server.start_thread(tmp_path / "project", approvalMode="fullAccess")
        await server.send(
            {"id": 1, "method": "turn/start", "params": {"threadId": thread_id, "text": "wait"}}
        )
        await server.until_method("item/toolCall/outputDelta")
        await server.kill()
        orphans = home.orphans()
        assert orphans
        async with home.open_server() as other:
            await other.handshake()
            await other.call("thread/resume", threadId=thread_id)
            assert (await other.run_turn(thread_id))["turn"]["status"] == "completed"
            assert home.orphans() == orphans
    assert home.orphans() == []


@pytest.mark.parametrize("lines", [1, 3])
async def test_the_proof_fails_when_a_file_has_lost_lines(tmp_path: Path, lines: int) -> None:
    """It is not empty: take the last lines away, and it notices."""
    home = CrashHome.make(tmp_path)
    await home.die_at(Point("work", "lines", 1_000))
    (file,) = session_files(tmp_path).values()
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-lines]))
    with pytest.raises(AssertionError):
        await home.prove_past()


@pytest.mark.torture
@pytest.mark.rule("S77")
@pytest.mark.parametrize("seed", range(HOMES))
async def test_two_hundred_killed_servers_have_lost_nothing_that_they_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    """All kinds of moments, chosen by message and byte; each server's past is proved by the next one."""
    home = CrashHome.make(tmp_path)
    for point in points(seed, KILLS_OF_A_HOME):
        await home.die_at(point)
    await home.end_well()
    assert home.fell.total() == KILLS_OF_A_HOME
    say_where(home, capsys)


@pytest.mark.torture
@pytest.mark.rule("S77")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("thread", ["new", "saved"])
async def test_a_server_may_die_in_any_of_its_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], thread: str, part: int
) -> None:
    """Every write of a turn is the last one once: to the file and to the client, done in part."""
    home = CrashHome.make(tmp_path)
    number = 1
    while await home.die_in_write(number, part):
        await home.prove_past()
        number += 1
        if thread == "new":
            home.begin_anew()
    await home.end_well()
    assert number > 20
    say_where(home, capsys)
