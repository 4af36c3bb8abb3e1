"""Protocol lines and shell commands, as a person copies them."""

import json
import shlex

from knightcode.demo.recipe import protocol_lines, shell_commands


def test_the_lines_are_a_handshake_and_one_turn() -> None:
    assert [json.loads(line) for line in protocol_lines("t1", 'say "é"\n').splitlines()] == [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "by-hand", "version": "1"}}},
        {"method": "initialized", "params": {}},
        {
            "id": 2,
            "method": "thread/settings/update",
            "params": {"threadId": "t1", "approvalMode": "fullAccess"},
        },
        {"id": 3, "method": "turn/start", "params": {"threadId": "t1", "text": 'say "é"\n'}},
    ]


def test_paths_are_quoted_for_the_shell() -> None:
    commands = shell_commands("/tmp/it's", "turn.jsonl", ["/my python", "-m", "knightcode"], ["A=b c"])
    first, *_, last = commands.splitlines()
    assert shlex.split(first) == ["cd", "/tmp/it's"]
    assert shlex.split(last)[:4] == ["A=b c", "/my python", "-m", "knightcode"]
