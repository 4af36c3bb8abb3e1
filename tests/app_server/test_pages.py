"""Pages of history: how large one line may be, and that cutting loses nothing.

Source: App Server, "History, listings, and large values", "Limits and client reference".
"""

import json
from pathlib import Path

from tests.app_server.pipe import open_pipe, text, write_script


async def test_a_page_is_cut_before_it_grows_over_a_mebibyte_and_the_cursors_lead_to_the_rest(
    tmp_path: Path,
) -> None:
    """App Server notes: Building a page."""
    script = write_script(
        tmp_path / "script.json", {"when": {}, "steps": [{"text": "0123456789", "repeat": 20_000}]}
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for number in range(12):
            await pipe.run_turn(thread_id, f"turn {number}")
        for method in ("thread/read", "thread/resume"):
            seen: list[str] = []
            page = await pipe.call(method, threadId=thread_id)
            while True:
                assert len(json.dumps(page)) < 2**20
                assert 1 <= len(page["turns"]) <= 5
                seen = [turn["items"][0]["text"] for turn in page["turns"]] + seen
                if "nextCursor" not in page:
                    break
                page = await pipe.call(method, threadId=thread_id, cursor=page["nextCursor"])
            assert seen == [f"turn {number}" for number in range(12)]


async def test_a_turn_that_is_larger_than_a_page_comes_alone(tmp_path: Path) -> None:
    """App Server notes: Building a page; at least one turn."""
    script = write_script(
        tmp_path / "script.json",
        [text("small")],
        [{"text": "0123456789abcdef" * 64, "repeat": 1_500}],
        [text("small")],
    )
    async with open_pipe(tmp_path / "home", "--scripted-model", str(script)) as pipe:
        await pipe.handshake()
        thread_id = await pipe.start_thread(tmp_path)
        for _ in range(3):
            await pipe.run_turn(thread_id)
        sizes = []
        page = await pipe.call("thread/read", threadId=thread_id)
        while "nextCursor" in page:
            sizes.append(len(page["turns"]))
            page = await pipe.call("thread/read", threadId=thread_id, cursor=page["nextCursor"])
        assert [*sizes, len(page["turns"])] == [1, 1, 1]
