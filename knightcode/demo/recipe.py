"""The same turn over the protocol: lines for the server's stdin, and the shell commands that send them.

Source: app server, "Handshake", "Approvals"; app server notes, "Shutdown" (the end of input stops).
"""

import shlex
from collections.abc import Sequence

from knightcode.demo.git import BEFORE
from knightcode_protocol.envelope import encode_notification, encode_request
from knightcode_protocol.handshake import ClientInfo, InitializedParams, InitializeParams
from knightcode_protocol.params import ThreadSettingsUpdateParams, TurnStartParams

ANSWERS = "answers.jsonl"


def protocol_lines(thread_id: str, ask: str) -> str:
    """Every line a client sends to have the turn once more, in the same thread, without being asked."""
    client = InitializeParams(client_info=ClientInfo(name="by-hand", version="1"))
    return b"".join(
        (
            encode_request(1, "initialize", client),
            encode_notification("initialized", InitializedParams()),
            encode_request(
                2,
                "thread/settings/update",
                ThreadSettingsUpdateParams(thread_id=thread_id, approval_mode="fullAccess"),
            ),
            encode_request(3, "turn/start", TurnStartParams(thread_id=thread_id, text=ask)),
        )
    ).decode()


def shell_commands(folder: str, lines: str, server: Sequence[str], environ: Sequence[str]) -> str:
    """Commands for a POSIX shell; the files stand in `folder`, and so do the answers afterwards.

    First the copy becomes what it was before the turn, files that are new or ignored included. The
    server stops at the end of its input, so the input stays open until the turn is over.

    Args:
        lines: name of the file that holds the protocol lines.
        server: the command with its arguments.
        environ: assignments to put before it, `NAME=value`.
    """
    command = " ".join([*(shlex.quote(part) for part in environ), shlex.join(server)])
    # Named, not looked for: without the copy's own repository git would find one further up and clean that.
    git = "git -C project --git-dir=.git --work-tree=."
    over = f"grep -qs -e turn/completed -e '\"error\":' {ANSWERS}"
    return "\n".join(
        (
            f"cd {shlex.quote(folder)} &&",
            f"{git} reset --quiet --hard {BEFORE} &&",
            f"{git} clean -ffdxq && rm -f {ANSWERS} &&",
            f"(cat {lines}; until {over}; do sleep 0.1; done) |",
            f"  {command} | tee {ANSWERS}",
        )
    )
