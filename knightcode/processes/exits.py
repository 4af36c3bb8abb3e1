"""How the system tells that another process has exited.

Source: agent loop, "bash"; App Server notes, "Shutdown".
"""

import os
import sys
from contextlib import suppress


def open_exit_handle(pid: int) -> int | None:
    """A descriptor that becomes readable when the process exits; the caller closes it.

    None where the system has no such thing, gives no more descriptors, or knows no such process. Waiting
    for it does not reap.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
