"""Runs one short shell command for what it prints.

Source: models and providers, "Value syntax".
"""

from collections.abc import Mapping

import trio

from knightcode.processes.children import open_child


class ShellFailedError(Exception):
    """The command gave nothing that can be used; the text continues "the command ..."."""


async def run_for_output(
    command: str, environ: Mapping[str, str], *, seconds: float, limit_bytes: int
) -> bytes:
    """What `command` prints on standard output. Nothing that it started outlives the call.

    Raises:
        ShellFailedError: it could not start, ended with another status than 0, took longer than
            `seconds`, or printed more than `limit_bytes`.
    """
    output = b""
    try:
        async with open_child(command, environment=environ, drop_errors=True) as child:
            with trio.move_on_after(seconds) as limit:
                output = await _read_all(child.output, limit_bytes)
                await child.wait_exited()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ShellFailedError(f"could not be started: {reason}") from error
    if limit.cancelled_caught:
        raise ShellFailedError(f"took longer than {seconds:g} s")
    if child.exit_code != 0:
        raise ShellFailedError(f"ended with status {child.exit_code}")
    return output


async def _read_all(stream: trio.abc.ReceiveStream, limit_bytes: int) -> bytes:
    data = bytearray()
    async for piece in stream:
        data += piece
        if len(data) > limit_bytes:
            raise ShellFailedError(f"printed more than {limit_bytes} bytes")
    return bytes(data)
