"""The arguments of `knightcode demo`. Must import nothing heavy: `--help` loads no server and no trio."""

from collections.abc import Mapping, Sequence

import attrs

USAGE = """\
usage: knightcode demo [DIR] [--model PROVIDER/ID | --scripted] [--yes]

Starts the server and has one turn: it reads, edits, runs a command and reports, and asks before it
changes anything. It works on a copy of DIR, or on a small project with a failing test.

  --model PROVIDER/ID  the model to ask; without it a model with a key in the environment or in
                       models.json, and if there is none the model in the box, which needs no network
  --scripted           the model in the box, whatever keys there are
  --yes                answer every question with accept; without it a person at a terminal is asked
                       (in CI, and where input is no terminal, the demo answers for the model in the
                       box, and has no turn with another one)
  -h, --help           show this text
"""


class UsageError(Exception):
    """The arguments cannot be used; the text says why."""


@attrs.frozen
class Options:
    """What the arguments ask for."""

    folder: str | None = None
    model: str | None = None
    scripted: bool = False
    yes: bool = False
    help: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """The options in `arguments`.

    Raises:
        UsageError: an unknown option, one without its value, two folders, two choices of a model.
    """
    options = Options()
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument in ("-h", "--help"):
            return attrs.evolve(options, help=True)
        if argument == "--yes":
            options = attrs.evolve(options, yes=True)
        elif argument == "--scripted":
            options = attrs.evolve(options, scripted=True)
        elif argument == "--model":
            options = attrs.evolve(options, model=_model(rest))
        elif argument.startswith("-") and argument != "-":
            raise UsageError(f"unknown option {argument}")
        elif not argument:
            raise UsageError("DIR is empty; give a folder, or nothing for the sample project")
        elif options.folder is not None:
            raise UsageError(f"one folder at most, but {options.folder} and {argument} were given")
        else:
            options = attrs.evolve(options, folder=argument)
    if options.scripted and options.model is not None:
        raise UsageError("--scripted and --model exclude each other")
    return options


def _model(rest: list[str]) -> str:
    value = rest.pop(0) if rest else ""
    provider, slash, model_id = value.partition("/")
    if not (provider and slash and model_id):
        raise UsageError("--model needs a value like anthropic/claude-sonnet-4-5: provider, slash, id")
    return value


def person_answers(options: Options, environ: Mapping[str, str], *, at_terminal: bool) -> bool:
    """Whether a person is asked before a call runs; otherwise the demo accepts by itself."""
    return at_terminal and not options.yes and environ.get("CI", "").lower() in ("", "0", "false")
