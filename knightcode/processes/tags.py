"""A tag on a child that all its descendants inherit and none of them drops by accident. Linux; blocking.

A daemon leaves its session, its parent ends, and with a cleared environment the marker is gone as well.
What is left are resource limits: they pass through fork and exec whoever does them. Linux enforces one
of them no longer, that on the number of file locks, and still hands it down and shows it. So its value
is free to say which call a process belongs to, and says so exactly, however many calls run. Making this
process the reaper of orphans instead would not tell whose an orphan is, and would change a program that
this one may only be a part of.

Source: agent loop, "bash"; reports of commands that outlive a stop.
"""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

if sys.platform == "linux":
    import resource

_FILE_LOCKS = 10
"""The number of the limit; without effect since Linux 2.4.25, so Python has no name for it."""
_starting = threading.Lock()


def tag_of(marker: str) -> int:
    """The tag that belongs to a marker. Far from every number that somebody would choose as a limit."""
    digest = hashlib.blake2b(marker.encode(), digest_size=7).digest()
    return 1 << 56 | int.from_bytes(digest, "big")


def carried_tag(pid: int) -> int | None:
    """What a process carries where a tag would be; None for one that is gone."""
    if sys.platform == "linux":
        try:
            return resource.prlimit(pid, _FILE_LOCKS)[0]
        except PermissionError:
            return _shown_tag(pid)  # somebody else's, which shows it all the same
        except OSError:
            pass
    return None


def _shown_tag(pid: int) -> int | None:
    with suppress(OSError, ValueError), open(f"/proc/{pid}/limits", "rb") as file:
        for line in file:
            if line.startswith(b"Max file locks"):
                return int(line.split()[3])
    return None


def start_tagged(marker: str, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Call `start`; what it starts carries the marker's tag from its first moment on.

    For that moment the limit is this process's own. What other threads start meanwhile loses the tag
    again at once. Where the limit cannot be set the child starts without a tag.
    """
    with _starting, _lent(tag_of(marker)) as returned:
        child = start()
        returned.append(child.pid)
        return child


@contextmanager
def _lent(tag: int) -> Iterator[list[int]]:
    """Carry a tag; on exit no child of this process keeps it, but for those in the list that is given."""
    keeping: list[int] = []
    if sys.platform != "linux":
        yield keeping
        return
    before = resource.prlimit(0, _FILE_LOCKS)
    lent = False
    with suppress(OSError, ValueError):  # above the hard limit, or forbidden by a sandbox
        resource.prlimit(0, _FILE_LOCKS, (tag, before[1]))
        lent = True
    try:
        yield keeping
    finally:
        if lent:
            resource.prlimit(0, _FILE_LOCKS, before)
            for pid in _children_of(os.getpid()):
                if pid not in keeping:
                    _take_back(pid, tag, before)


def _take_back(pid: int, tag: int, before: tuple[int, int]) -> None:
    if sys.platform == "linux" and carried_tag(pid) == tag:
        with suppress(OSError, ValueError):
            resource.prlimit(pid, _FILE_LOCKS, before)
        for child in _children_of(pid):
            _take_back(child, tag, before)


def _children_of(pid: int) -> list[int]:
    """The children of all threads of a process; none where the kernel keeps no list of them."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
    return found
