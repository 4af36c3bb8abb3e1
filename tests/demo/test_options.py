"""The arguments of the demo, and who answers its questions."""

import pytest

from knightcode.demo.options import Options, UsageError, parse, person_answers


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], Options()),
        (["--yes", "here"], Options(folder="here", yes=True)),
        (["--model", "a/b/c"], Options(model="a/b/c")),
        (["--scripted"], Options(scripted=True)),
        (["x", "-h", "--wrong"], Options(folder="x", help=True)),
    ],
)
def test_arguments_are_read_in_any_order(arguments: list[str], options: Options) -> None:
    assert parse(arguments) == options


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--wrong"], "unknown option --wrong"),
        (["a", "b"], "one folder at most, but a and b were given"),
        ([""], "DIR is empty; give a folder, or nothing for the sample project"),
        (["--scripted", "--model", "a/b"], "--scripted and --model exclude each other"),
        *(
            (
                ["--model", *value],
                "--model needs a value like anthropic/claude-sonnet-4-5: provider, slash, id",
            )
            for value in ([], [""], ["model"], ["/model"], ["provider/"])
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse(arguments)
    assert str(failure.value) == said


@pytest.mark.parametrize(
    ("options", "environ", "at_terminal", "asked"),
    [
        (Options(), {}, True, True),
        (Options(), {"CI": "false"}, True, True),
        (Options(), {}, False, False),
        (Options(yes=True), {}, True, False),
        (Options(), {"CI": "1"}, True, False),
    ],
)
def test_a_person_is_asked_only_at_a_terminal_and_if_nothing_speaks_against_it(
    options: Options, environ: dict[str, str], at_terminal: bool, asked: bool
) -> None:
    assert person_answers(options, environ, at_terminal=at_terminal) is asked
