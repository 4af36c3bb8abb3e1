"""A server that dies in one of its own writes; arguments are which one, how much of it, and its options.

`kill -9` from outside falls where the two processes happen to be. Here the process kills itself inside
its WRITE-th call of `os.write`, be it to a session file or to the client, when PART percent of the data
have been written: each point at which a crash can leave something half-done has a number.
"""

import os
import signal
import sys


def die_in_write(number: int, part: int) -> None:
    """Let the `number`-th write from now on, counted from 1, be this process's last."""
    write = os.write
    count = 0

    def last_write(descriptor: int, data: bytes | memoryview) -> int:
        nonlocal count
        count += 1
        if count == number:
            write(descriptor, memoryview(data)[: len(data) * part // 100])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, data)

    os.write = last_write  # type: ignore[assignment] # before anything of the product takes hold of it


def main(number: str, part: str, *options: str) -> int:
    """Run the server until that write, or to its end if it comes first."""
    die_in_write(int(number), int(part))
    from knightcode.app_server.main import main as app_server

    return app_server(list(options))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
