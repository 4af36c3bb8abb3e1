"""Source: agent loop, "edit", and the points it leaves open on atomic writes and lock paths."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from knightcode.agent.tools.base import ToolError
from knightcode.agent.tools.files import FileLocks, open_regular, read_whole, write_in_place


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can become larger than `size`, as on a disk without room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_write_that_runs_out_of_room_puts_back_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old content")
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_in_place(str(file), b"x" * 2000, before=b"old content")
    assert file.read_bytes() == b"old content"


def test_a_new_file_that_runs_out_of_room_is_removed(tmp_path: Path) -> None:
    with full_disk(1000), pytest.raises(OSError, match="too large"):
        write_in_place(str(tmp_path / "f"), b"x" * 2000, before=None, created=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_devices_are_not_read(path: str) -> None:
    with pytest.raises(ToolError, match="not a regular file"):
        open_regular(path)


def test_a_pipe_without_a_writer_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolError, match="not a regular file"):
        read_whole(str(tmp_path / "pipe"), max_bytes=1)


def test_a_file_larger_than_the_reader_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_whole(str(tmp_path / "f"), max_bytes=5) == b"12345"
    with pytest.raises(ToolError, match="f is larger than 4B"):
        read_whole(str(tmp_path / "f"), max_bytes=4)


async def test_one_file_is_held_by_one_at_a_time_in_the_order_of_asking(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    locks = FileLocks()
    order: list[str] = []

    async def hold(name: str, path: Path) -> None:
        async with locks.hold(str(path)):
            order.append(name)
            await trio.lowlevel.checkpoint()
            order.append(name)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, locks.hold(str(tmp_path / "f")):
            for name, path in (("1", "f"), ("2", "link"), ("3", "f")):
                nursery.start_soon(hold, name, tmp_path / path)
                await wait_all_tasks_blocked()
            assert order == []
    assert order == ["1", "1", "2", "2", "3", "3"]


async def test_who_is_cancelled_while_waiting_or_holding_leaves_no_lock(tmp_path: Path) -> None:
    locks = FileLocks()
    path = str(tmp_path / "f")
    with trio.fail_after(5):
        async with locks.hold(path):
            with trio.move_on_after(0):
                async with locks.hold(path):
                    raise AssertionError("held twice")
        with trio.move_on_after(0):
            async with locks.hold(path):
                await trio.sleep_forever()
        async with locks.hold(path):
            pass
