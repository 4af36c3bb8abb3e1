"""Runs a command out of reach of the terminal, its stderr in a file.

Ctrl-C at a terminal reaches every process in the foreground. The demo turns it into an interrupt of
the turn, so the server must not see it: it gets a session of its own. Its log goes to a file, for the
terminal shows the conversation. Run as a file, without the site packages, so that it costs little.
"""

import os
import sys


def main(arguments: list[str]) -> None:
    """Become the command: `arguments` are the log file, then the command. Does not return."""
    log, *command = arguments
    if hasattr(os, "setsid"):
        os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
