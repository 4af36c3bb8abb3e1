"""`knightcode demo`: from its arguments to its exit code."""

import os
import sys

from knightcode.demo.options import USAGE, UsageError, parse, person_answers


def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit code: 0 when the turn did what was asked, else 1."""
    try:
        options = parse(arguments)
    except UsageError as error:
        sys.stderr.write(f"knightcode demo: {error}\n\n{USAGE}")
        return 1
    if options.help:
        sys.stdout.write(USAGE)
        return 0
    import trio

    from knightcode.demo.run import run_demo
    from knightcode.demo.screen import Screen, Style, wants_colours

    environ = dict(os.environ)
    screen, errors = (
        Screen(stream, Style(wants_colours(stream, environ))) for stream in (sys.stdout, sys.stderr)
    )
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    asked = person_answers(options, environ, at_terminal=at_terminal)
    terminal = sys.stdin.fileno() if asked else None
    try:
        return trio.run(run_demo, options, environ, screen, errors, terminal)
    except KeyboardInterrupt:  # before the demo listens for it
        return 1
