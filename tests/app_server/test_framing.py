"""Lines in, lines out: what a client may write and what it can rely on reading."""

from pathlib import Path
from typing import Any

import pytest

from tests.app_server.pipe import INIT, Message, lines_of, open_pipe, text, tool, write_script


@pytest.mark.proves("FRAMING-001", "FRAMING-002", "FRAMING-003")
@pytest.mark.rule("S80")
async def test_every_line_of_a_session_is_one_object_of_a_known_shape(tmp_path: Path) -> None:
    """App Server: the introduction; notes, "Framing"."""
    script = write_script(
        tmp_path / "script.json",
        [text("two\nlines \u2028 and \x7f\u0085"), tool("bash", command="printf 'a\\r\\nb\\n\\377'")],
        [text("done")],
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        assert pipe.process.stdout is not None
        await pipe.send(*INIT)
        await pipe.send(
            {
                "id": 1,
                "method": "thread/start",
                "params": {"cwd": str(tmp_path), "approvalMode": "fullAccess"},
            }
        )
        started = await pipe.until(lambda one: one.get("id") == 1)
        await pipe.run_turn(started["result"]["thread"]["id"])
        await pipe.ask("no/such")
        await pipe.close()
        heard = pipe.heard
    shapes = {frozenset(one) for one in heard if isinstance(one, dict)}
    assert len(heard) > 10 and all(isinstance(one, dict) for one in heard)
    assert shapes == {frozenset(shape) for shape in (("id", "result"), ("id", "error"), ("method", "params"))}


@pytest.mark.proves("FRAMING-006", "FRAMING-007")
async def test_an_id_comes_back_as_it_was(tmp_path: Path) -> None:
    """App Server: Handshake; notes, "Framing"."""
    ids: list[Any] = ["h1", "", "ü \u2028", 7, 0, -3, 1.5, 2**53 + 1, 10**300, "7", "x" * 100_000]
    async with open_pipe(tmp_path) as pipe:
        await pipe.handshake()
        before = len(pipe.heard)
        await pipe.send(*({"id": one, "method": "no/such"} for one in ids))
        await pipe.close()
        assert [(type(one["id"]), one["id"]) for one in pipe.heard[before:]] == [
            (type(one), one) for one in ids
        ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n \n\r\n"])
async def test_lines_end_at_lf_with_or_without_cr_and_blank_ones_are_nothing(
    tmp_path: Path, end: bytes
) -> None:
    """App Server notes: Framing."""
    async with open_pipe(tmp_path) as pipe:
        await pipe.write(b"".join(lines_of(message).rstrip() + end for message in INIT))
        await pipe.ask("model/list")
        assert [one.get("id") for one in pipe.heard] == ["init", 1]


async def test_a_message_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    """App Server notes: Framing; how the bytes are cut means nothing."""
    async with open_pipe(tmp_path) as pipe:
        for byte in lines_of(*INIT, {"id": "ä", "method": "model/list"}):
            await pipe.write(bytes([byte]))
        answer = await pipe.until(lambda one: one.get("id") == "ä")
        assert "result" in answer


@pytest.mark.proves("SHUTDOWN-001", "SHUTDOWN-006")
@pytest.mark.parametrize("ending", [b"\n", b""])
async def test_twenty_requests_and_the_end_of_input_in_one_write_give_twenty_answers(
    tmp_path: Path, ending: bytes
) -> None:
    """App Server: Ownership, unloading, and shutdown; a last line without its end is a line."""
    requests: list[Message] = [
        {"id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(
            [
                ("thread/start", {"cwd": str(tmp_path)}),
                ("thread/list", {}),
                ("model/list", {}),
                ("no/such", {}),
                ("thread/read", {"threadId": "none"}),
            ]
            * 4
        )
    ]
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.write(lines_of(*INIT, *requests).rstrip() + ending)
        await pipe.close()
        assert await pipe.exit_code() == 0
    answers = {one["id"]: one for one in pipe.heard if "id" in one}
    assert len([one for one in pipe.heard if "id" in one]) == 21
    for request in requests:
        answer, method = answers[request["id"]], request["method"]
        code = answer.get("error", {}).get("code")
        if method == "no/such":
            assert code == "methodNotFound"
        elif method == "thread/read":
            assert code == "threadNotFound"
        else:
            assert "result" in answer, answer


@pytest.mark.rule("S81")
async def test_ten_thousand_requests_in_one_write_are_all_answered_once(tmp_path: Path) -> None:
    """App Server notes: Exactly one response; the performance budget's flood."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        data = b"".join(b'{"id":%d,"method":"thread/list"}\n' % number for number in range(10, 10_010))
        await pipe.write(data)
        await pipe.close()
        assert await pipe.exit_code() == 0
        answers = [one for one in pipe.heard if one.get("id", 0) >= 10]
    assert sorted(one["id"] for one in answers) == list(range(10, 10_010))
    assert all(one["result"] == {"threads": []} for one in answers)


async def test_requests_that_answer_at_once_are_answered_in_the_order_of_their_arrival(
    tmp_path: Path,
) -> None:
    """App Server notes: Framing; requests are admitted in order."""
    async with open_pipe(tmp_path / "home") as pipe:
        await pipe.handshake()
        await pipe.send(*({"id": number, "method": f"no/such/{number}"} for number in range(100, 1100)))
        await pipe.close()
    assert [one["id"] for one in pipe.heard[1:]] == list(range(100, 1100))
