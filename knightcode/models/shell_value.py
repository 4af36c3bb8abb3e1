"""Runs one short shell command for what it prints. The command gets no input and cannot outlive the call.

Source: models and providers, "Value syntax".
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Final

import trio

_REAP_SECONDS: Final = 2.0  # a killed group is gone at once, unless the kernel holds it


class ShellFailedError(Exception):
    """The command gave nothing that can be used; the text continues "the command ..."."""


async def run_for_output(
    command: str, environ: Mapping[str, str], *, seconds: float, limit_bytes: int
) -> bytes:
    """What `command` prints on standard output.

    Raises:
        ShellFailedError: it could not start, ended with another status than 0, took longer than
            `seconds`, or printed more than `limit_bytes`.
    """
    try:
        child = await trio.lowlevel.open_process(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,  # a password prompt on the terminal would be in the way of the server
        )
    except OSError as error:
        raise ShellFailedError(f"could not be started: {error.strerror}") from error
    try:
        with trio.move_on_after(seconds) as limit:
            output = await _read_all(child, limit_bytes)
            status = await child.wait()
    finally:
        with trio.move_on_after(_REAP_SECONDS, shield=True):
            await _end(child)
    if limit.cancelled_caught:
        raise ShellFailedError(f"took longer than {seconds:g} s")
    if status:
        raise ShellFailedError(f"ended with status {status}")
    return output


async def _read_all(child: trio.Process, limit_bytes: int) -> bytes:
    assert child.stdout is not None
    pieces: list[bytes] = []
    async for piece in child.stdout:
        pieces.append(bytes(piece))
        if sum(map(len, pieces)) > limit_bytes:
            raise ShellFailedError(f"printed more than {limit_bytes} bytes")
    return b"".join(pieces)


async def _end(child: trio.Process) -> None:
    """Leave nothing of the command's group behind."""
    _kill_group(child)
    if child.stdout is not None:
        await child.stdout.aclose()
    await child.wait()


def _kill_group(child: trio.Process) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    except ProcessLookupError:
        pass  # nothing of it was left
