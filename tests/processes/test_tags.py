"""A tag reaches whoever comes from a child, and nobody else.

Source: agent loop, "bash"; reports of commands that outlive a stop. With real children.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.processes.tags import carried_tag, start_tagged, tag_of
from tests.processes.facts import pids_in, runs, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tag is a limit of Linux's")

DAEMON = "env -i setsid -f /bin/sh -c 'echo $$ >> pids; exec sleep 600'"
"""Clears its environment, leaves its session, and loses its parent at once."""


async def test_a_daemon_with_an_empty_environment_carries_the_tag_of_its_call(tmp_path: Path) -> None:
    child = start_tagged("call", lambda: subprocess.Popen(DAEMON, shell=True, cwd=tmp_path))
    with trio.fail_after(10):
        await trio.to_thread.run_sync(child.wait)
        (daemon,) = await pids_in(tmp_path, 1)
        assert (runs(daemon), carried_tag(daemon)) == (True, tag_of("call"))
        os.kill(daemon, signal.SIGKILL)
        await wait_for(lambda: not runs(daemon))


def test_after_a_start_this_process_has_the_limit_that_it_had_before() -> None:
    before = carried_tag(os.getpid())
    with start_tagged("call", lambda: subprocess.Popen(["true"])):
        pass
    with pytest.raises(FileNotFoundError):
        start_tagged("call", lambda: subprocess.Popen(["/no/such/program"]))
    assert carried_tag(os.getpid()) == before


def test_what_another_thread_starts_at_that_moment_loses_the_tag_with_its_children() -> None:
    before, others = carried_tag(os.getpid()), list[subprocess.Popen[bytes]]()

    def start() -> subprocess.Popen[bytes]:
        program = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
        others.append(subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True))
        assert others[0].stdout is not None
        children.append(int(others[0].stdout.readline()))  # it has a child while the tag is lent
        return subprocess.Popen(["sleep", "600"])

    children: list[int] = []
    with start_tagged("call", start) as child:
        carried = [carried_tag(pid) for pid in (child.pid, others[0].pid, *children)]
        child.kill()
    with others[0] as other:
        os.killpg(other.pid, signal.SIGKILL)
    assert carried == [tag_of("call"), before, before]


LIMITED = """
import resource, subprocess
from knightcode.processes.tags import carried_tag, start_tagged
resource.prlimit(0, 10, (5, 5))
with start_tagged("call", lambda: subprocess.Popen(["cat"], stdin=subprocess.PIPE)) as child:
    print(carried_tag(child.pid))
"""


def test_where_the_limit_cannot_be_set_the_child_starts_without_a_tag() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, check=True, timeout=20)
    assert done.stdout == b"5\n"


def test_a_process_that_is_gone_carries_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        pass
    assert carried_tag(child.pid) is None


@settings(max_examples=50)
@given(st.text(), st.text())
def test_two_markers_have_two_tags_that_are_no_limits_anybody_sets(one: str, other: str) -> None:
    assert (tag_of(one) == tag_of(other)) is (one == other)
    assert tag_of(one).bit_length() == 57
