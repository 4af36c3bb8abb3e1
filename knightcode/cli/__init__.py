"""The command line. Must import nothing heavy before it knows the subcommand."""

import sys

USAGE = """\
usage: knightcode app-server [options]    serve conversation threads over stdin and stdout
       knightcode demo [DIR] [options]    watch one turn on a real project, no key and no network needed
       knightcode --version

`knightcode COMMAND --help` tells more.
"""


def main() -> None:
    """Entry point of the `knightcode` command; exits with the command's code."""
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command listens for it
        code = 130
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Dispatch on the first argument; returns the exit code."""
    command = arguments[0] if arguments else ""
    if command == "app-server":
        from knightcode.app_server.main import main as app_server

        return app_server(arguments[1:])
    if command == "demo":
        from knightcode.demo.main import main as demo

        return demo(arguments[1:])
    if command in ("-v", "--version"):
        from knightcode import __version__

        sys.stdout.write(f"{__version__}\n")
        return 0
    if command in ("-h", "--help"):
        sys.stdout.write(USAGE)
        return 0
    what = f"there is no command {command!r} in this version" if command else "no command was given"
    sys.stderr.write(f"knightcode: {what}\n\n{USAGE}")
    return 1
