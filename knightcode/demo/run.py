"""The demo from its first line to its exit code: prepare, have the turn, show what came of it."""

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import trio

from knightcode.client import AppServerError, ConnectionLost
from knightcode.demo.conversation import (
    Conversation,
    Ended,
    Interrupt,
    Server,
    server_command,
    what_is_offered,
)
from knightcode.demo.failures import DemoError
from knightcode.demo.git import Git, without_git
from knightcode.demo.models import choose_model
from knightcode.demo.options import Options
from knightcode.demo.project import Project, prepare_copy, prepare_sample
from knightcode.demo.recipe import protocol_lines, shell_commands
from knightcode.demo.screen import Screen
from knightcode.demo.show import diff_text, indented, last_lines, printable, usage_text
from knightcode.demo.workplace import Workplace, open_workplace
from knightcode.failures import first_leaf
from knightcode_protocol.objects import ModelRef

AGENT_DIR_VARIABLE: Final = "KNIGHTCODE_CODING_AGENT_DIR"
"""Where a server looks for what is the user's; a scripted run has an empty one of its own."""

SCRIPTED_SECONDS: Final = 60.0
"""For a turn that nobody is asked about and that asks no network: it takes one or two."""

_SKIPPED_SHOWN: Final = 5
_LOG_LINES: Final = 10


async def run_demo(
    options: Options, environ: Mapping[str, str], screen: Screen, errors: Screen, terminal: int | None
) -> int:
    """Run the demo; returns the exit code.

    Args:
        errors: where it is said why there is no demo.
        terminal: descriptor on which a person answers questions; None lets the demo accept.
    """
    interrupt, scope = Interrupt(), trio.CancelScope()
    code = 1
    with open_workplace() as place:
        async with trio.open_nursery() as nursery:
            await nursery.start(_watch_signals, interrupt, scope)
            with scope:
                code = await _explained(
                    Demo(options, without_git(environ), screen, place, interrupt, terminal), errors
                )
            nursery.cancel_scope.cancel(reason="the demo is over")
        if scope.cancelled_caught:
            errors.line("\nknightcode demo: stopped; the server has ended")
        if place.kept:
            screen.line("\nCopy, session file and log stay until you remove them:")
            screen.line(f"  rm -rf {shlex.quote(str(place.folder))}")
    if screen.failure is not None:
        errors.line(f"knightcode demo: what it had to say could not be written: {screen.failure}")
        code = 1
    return code


async def _explained(demo: "Demo", errors: Screen) -> int:
    """The exit code of a demo; what ended it early is told."""
    code, failure = 1, None
    try:
        code = await demo.run()
    except* (DemoError, AppServerError, ConnectionLost) as group:
        failure = first_leaf(group)
    if failure is not None:
        errors.line(f"knightcode demo: {printable(str(failure))}")
        if not isinstance(failure, DemoError):
            errors.write(demo.log_tail())
    return code


async def _watch_signals(
    interrupt: Interrupt,
    scope: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The first Ctrl-C of a running turn interrupts it; everything else ends the demo with its server."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):
        signals.append(signal.SIGHUP)
    with trio.open_signal_receiver(*signals) as received:
        task_status.started()
        async for number in received:
            if number == signal.SIGINT and interrupt.turn_runs and not interrupt.thrown.is_set():
                interrupt.thrown.set()
            else:
                scope.cancel(reason="a signal")


@attrs.define(eq=False)
class Demo:
    """One run. `environ` is without git's variables."""

    options: Options
    environ: Mapping[str, str] = attrs.field(repr=False)
    screen: Screen
    place: Workplace
    interrupt: Interrupt
    terminal: int | None
    _project: Project | None = attrs.field(default=None, init=False)
    _model: ModelRef | None = attrs.field(default=None, init=False)
    _warnings: tuple[str, ...] = attrs.field(default=(), init=False)

    async def run(self) -> int:
        """The exit code: 0 when the turn completed, and with it the sample's tests.

        Raises:
            DemoError, AppServerError, ConnectionLost: there was no turn, perhaps inside groups.
        """
        git = Git.find(self.environ)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._prepare_project, git)
            nursery.start_soon(self._choose_model)
        project, model = self._project, self._model
        assert project is not None
        if model is not None and self.terminal is None and not self.options.yes:
            raise DemoError(
                f"{model.provider}/{model.id} is a real model, and nobody is at a terminal to approve its "
                "commands; pass --yes to accept them all, or --scripted for the written conversation"
            )
        self._introduce(project, model)
        ended = await self._have_turn(project, model)
        return await self._conclude(project, model, ended, git)

    def log_tail(self) -> str:
        """The end of what the server logged."""
        try:
            text = self.place.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return f"{indented(last_lines(printable(text), _LOG_LINES))}\n" if text else ""

    async def _prepare_project(self, git: Git) -> None:
        if self.options.folder is None:
            self._project = await prepare_sample(self.place.project, git)
        else:
            folder = Path(os.path.abspath(os.path.expanduser(self.options.folder)))
            self._project = await prepare_copy(folder, self.place.project, git)

    async def _choose_model(self) -> None:
        if self.options.scripted:
            return
        server = self._server(("--session-dir", str(self.place.sessions)), self.environ)
        offer = await what_is_offered(server, self.place.folder)
        self._warnings = offer.warnings
        try:
            self._model = choose_model(self.options.model, offer.models)
        except DemoError as error:
            # Mostly the same mistake: a models.json that does not count has no models.
            raise DemoError(
                "\n".join((str(error), *(f"warning: {text}" for text in offer.warnings)))
            ) from None

    def _introduce(self, project: Project, model: ModelRef | None) -> None:
        style, line = self.screen.style, self.screen.line
        line(style.bold("KnightCode demo"))
        line(f"  project  {printable(project.title)}")
        line(f"  works in {project.root}")
        line(f"  model    {_model_text(model)}")
        who = "you answer" if self.terminal is not None else "the demo answers"
        line(f"  mode     ask: reading is free, everything else is asked first, and {who}")
        if project.skipped:
            shown = [*project.skipped[:_SKIPPED_SHOWN]]
            more = len(project.skipped) - len(shown)
            line(style.dim("  not copied:"))
            line(style.dim(indented("\n".join(map(printable, shown)), "    ")))
            if more:
                line(style.dim(f"    and {more} more"))
        for warning in self._warnings:
            line(style.asks(f"  warning  {printable(warning)}"))

    async def _have_turn(self, project: Project, model: ModelRef | None) -> Ended:
        arguments, environ = ["--session-dir", str(self.place.sessions)], dict(self.environ)
        if model is None:
            self.place.script.write_text(project.script, encoding="utf-8")
            arguments += ["--scripted-model", str(self.place.script)]
            environ[AGENT_DIR_VARIABLE] = str(self.place.agent)
        conversation = Conversation(self.screen, self.interrupt, self.terminal, self._warnings)
        bounded = model is None and self.terminal is None
        try:
            async with self._server(tuple(arguments), environ).open() as server:
                with trio.move_on_after(SCRIPTED_SECONDS if bounded else float("inf")):
                    return await conversation.run(server, project.root, project.ask, model)
        finally:
            self.place.kept = conversation.begun
        raise DemoError(f"the scripted turn did not end within {SCRIPTED_SECONDS:.0f} seconds")

    async def _conclude(self, project: Project, model: ModelRef | None, ended: Ended, git: Git) -> int:
        """Say what came of the turn, and how it is had without the demo."""
        style, line = self.screen.style, self.screen.line
        diff = await git.diff(project.root)
        rest = f"; git -C {project.root} diff shows all"
        line("\n" + style.bold("What changed (git diff)"))
        line(diff_text(style, diff, rest=rest) if diff else "nothing")
        failure = await self._failure(project, ended)
        line("\n" + style.bold("What it took"))
        line(f"  usage    {usage_text(ended.usage)}")
        line(f"  session  {_session_text(ended)}")
        if ended.turn is not None and ended.turn.status == "completed":
            line("\n" + style.bold("The same over the protocol"))
            line(self._recipe(project, model, ended))
        line("\n" + (style.good("The demo did what it should.") if failure is None else style.bad(failure)))
        return 0 if failure is None else 1

    async def _failure(self, project: Project, ended: Ended) -> str | None:
        """Why the demo did not do what it should; None when it did."""
        turn = ended.turn
        if turn is None:
            return f"The server ended before the turn was over; its log is {self.place.log}."
        if turn.status != "completed":
            return f"The turn is {turn.status}, so the demo was not shown to its end."
        if project.is_sample:
            passed = await project.tests_pass(self.environ)
            self.screen.line(
                f"\nThe sample's tests, run once more by the demo: {'pass' if passed else 'fail'}"
            )
            if not passed:
                return "The turn is completed, but the sample's tests still fail."
        return None

    def _recipe(self, project: Project, model: ModelRef | None, ended: Ended) -> str:
        lines = protocol_lines(ended.thread.id, project.ask)
        self.place.lines.write_text(lines, encoding="utf-8")
        arguments = ["app-server", "--session-dir", self.place.sessions.name]
        environ = []
        if model is None:
            arguments += ["--scripted-model", self.place.script.name]
            environ.append(f"{AGENT_DIR_VARIABLE}={self.place.agent.name}")
        commands = shell_commands(
            str(self.place.folder), self.place.lines.name, [*_typed_command(), *arguments], environ
        )
        return "\n".join(
            (
                "  These lines, one message each, repeat the turn in the same thread. Its mode becomes",
                "  fullAccess, for nobody is there to answer questions:",
                "",
                lines.rstrip("\n"),
                "",
                f"  They are in {self.place.lines.name}. In a shell, with the copy put back first:",
                "",
                commands,
            )
        )

    def _server(self, arguments: tuple[str, ...], environ: Mapping[str, str]) -> Server:
        return Server(server_command(), arguments, environ, self.place.log)


def _model_text(model: ModelRef | None) -> str:
    if model is None:
        return "the model in the box, which plays a script: no key, no network"
    return f"{printable(model.provider)}/{printable(model.id)}"


def _session_text(ended: Ended) -> str:
    path = ended.thread.session_file
    return path if isinstance(path, str) and os.path.exists(path) else "no file was written"


def _typed_command() -> tuple[str, ...]:
    """The command as the user may type it: the short name if that is what runs now."""
    found = shutil.which("knightcode")
    if found is not None and os.path.realpath(found) == os.path.realpath(sys.argv[0]):
        return ("knightcode",)
    return server_command()
