"""What a turn tells the model of its surroundings, and what it tells the commands that the model runs."""

import json
from pathlib import Path

import pytest

from tests.app_server.pipe import Message, Pipe
from tests.app_server.provider import DIALECTS, Dialect, calls, name_of, open_provided, reply, says

both = pytest.mark.parametrize("dialect", DIALECTS, ids=name_of)


async def system_messages(pipe: Pipe, thread_id: str) -> list[Message]:
    """The system messages of the thread's session file, without their times."""
    thread = (await pipe.call("thread/read", threadId=thread_id))["thread"]
    entries = [json.loads(line) for line in Path(thread["sessionFile"]).read_bytes().splitlines()]
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [
        {key: value for key, value in one.items() if key != "timestamp"}
        for one in messages
        if one["role"] == "system"
    ]


@both
async def test_instruction_files_reach_the_prompt_and_only_what_changed_is_stored(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Agent loop: Context files, System prompt; Session files: system."""
    project = tmp_path / "project"
    project.mkdir()
    agents = project / "AGENTS.md"
    agents.write_text("Always say please.\n")
    answers = [reply(dialect, says("Please.")) for _ in range(4)]
    async with open_provided(tmp_path, dialect, *answers) as (pipe, provider):
        (tmp_path / "home" / "agent" / "AGENTS.md").write_text("The user is Ana.")
        thread_id = await pipe.start_thread(project)
        await pipe.run_turn(thread_id)
        await pipe.run_turn(thread_id)
        before = await system_messages(pipe, thread_id)
        agents.write_text("Never say please.\n")
        await pipe.run_turn(thread_id)
        agents.unlink()
        (tmp_path / "home" / "agent" / "AGENTS.md").unlink()
        await pipe.run_turn(thread_id)
        after = await system_messages(pipe, thread_id)
    prompts = [dialect.system(request.json()) for request in provider.requests]
    assert prompts[0] == prompts[1]
    assert prompts[0].index("The user is Ana.") < prompts[0].index("Always say please.")
    assert f'path="{agents}"' in prompts[0]
    assert prompts[2] == prompts[0].replace("Always", "Never")
    assert "please" not in prompts[3] and "Ana" not in prompts[3]
    (first,) = before
    changed = first["sections"]["project_context"].replace("Always", "Never")
    assert after == [
        first,
        {"role": "system", "sections": {"project_context": changed}},
        {"role": "system", "sections": {"project_context": None}},
    ]


VARIABLES = (
    "KNIGHTCODE_SESSION_ID",
    "KNIGHTCODE_SESSION_FILE",
    "KNIGHTCODE_PROVIDER",
    "KNIGHTCODE_MODEL",
    "KNIGHTCODE_REASONING_LEVEL",
    "AI_AGENT",
    "KNIGHTCODE_CODING_AGENT",
)
SHOW = "; ".join(f'echo "${{{name}-unset}}"' for name in VARIABLES)


@both
async def test_commands_are_told_which_session_and_model_they_run_for(
    tmp_path: Path, dialect: Dialect
) -> None:
    """Agent loop: bash; what an outer session said of itself does not hold inside."""
    outer = {name: f"outer {name}" for name in VARIABLES}
    answers = [
        answer
        for count in range(2)
        for answer in (reply(dialect, calls(f"c{count}", "bash", command=SHOW)), reply(dialect, says("So.")))
    ]
    async with open_provided(tmp_path, dialect, *answers, model={"reasoning": True}, environ=outer) as (
        pipe,
        _,
    ):
        thread_id = await pipe.start_thread(tmp_path, approvalMode="fullAccess", thinkingLevel="low")
        shown = []
        for level in ("low", "high"):
            await pipe.call("thread/settings/update", threadId=thread_id, thinkingLevel=level)
            await pipe.run_turn(thread_id)
            page = await pipe.call("thread/read", threadId=thread_id)
            shown.append(page["turns"][-1]["items"][1]["output"][0]["text"].split("\n")[: len(VARIABLES)])
    assert shown == [
        [thread_id, page["thread"]["sessionFile"], "acme", "m-1", level, "knightcode", "true"]
        for level in ("low", "high")
    ]
