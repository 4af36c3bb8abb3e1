"""Notices that whoever started this server is gone, for the case that the input does not say so.

A client that dies closes its end of the input, unless somebody else has that end open as well: a shell
that it started, or a sibling that inherited it. Asked of the system instead of armed for the death of
the parent, since Linux's own signal for that is sent when the starting *thread* ends.

Source: App Server, "Starting"; reports of servers without a client.
"""

import os
from collections.abc import Callable

import trio

from knightcode.processes.exits import open_exit_handle

LOOK_SECONDS = 1.0
"""Between two looks for the parent, where the system does not tell of its exit."""


async def wait_parent_gone(
    parent: int,
    *,
    current: Callable[[], int] = os.getppid,
    open_handle: Callable[[int], int | None] = open_exit_handle,
) -> None:
    """Return when this process is not the child of `parent` any more.

    Args:
        parent: what `os.getppid` said when this process began; 1 and 0 are parents like others, and do
            not go away.
        current: the parent at this moment.
        open_handle: gives a descriptor that becomes readable when a process exits, or None.
    """
    handle = open_handle(parent)
    try:
        # Only now: the handle is the parent's, and not that of a later owner of its id, if it still is there.
        while current() == parent:
            if handle is None:
                await trio.sleep(LOOK_SECONDS)
            else:
                await trio.lowlevel.wait_readable(handle)
                break
    finally:
        if handle is not None:
            os.close(handle)
    await trio.lowlevel.checkpoint()
