"""Source: agent loop, "System prompt"; resources, "In the system prompt"; session files, "system"."""

from typing import Any

import attrs
import pytest

from knightcode.agent.context_files import ContextFile
from knightcode.agent.prompt import PREAMBLE, Skill, build_sections
from knightcode.agent.tools.base import ToolContext, ToolResult
from knightcode.agent.tools.builtin import builtin_tools


@attrs.frozen
class NamedTool:
    """A tool that is only named in a prompt."""

    name: str
    snippet: str | None = None
    guidelines: tuple[str, ...] = ()
    description: str = ""
    parameters: dict[str, Any] = attrs.field(factory=dict)
    sequential: bool = False
    builtin: bool = False

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return arguments

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        raise NotImplementedError


def test_sections_come_in_their_order_and_all_but_the_preamble_are_tagged() -> None:
    sections = build_sections(
        tools=builtin_tools(),
        cwd="/srv/app",
        addenda=["Be kind."],
        context_files=[ContextFile("/srv/AGENTS.md", "Use tabs.\n")],
        skills=[Skill("pdf", "Reads PDF", "/s/pdf/SKILL.md")],
        docs="https://example.org/docs",
        extension_sections={"weather": "Sunny."},
    )
    assert list(sections) == [
        "preamble",
        "tools",
        "rules",
        "docs",
        "addendum",
        "project_context",
        "skills",
        "cwd",
        "weather",
    ]
    assert sections["preamble"] == PREAMBLE
    for name in list(sections)[1:]:
        assert sections[name].startswith(f"<{name}>\n") and sections[name].endswith(f"\n</{name}>")
    assert sections["cwd"] == "<cwd>\n/srv/app\n</cwd>"
    assert sections["addendum"] == "<addendum>\nBe kind.\n</addendum>"
    assert (
        '<project_instructions path="/srv/AGENTS.md">\nUse tabs.\n</project_instructions>'
        in (sections["project_context"])
    )


def test_custom_prompt_replaces_preamble_tools_rules_and_docs() -> None:
    sections = build_sections(
        tools=builtin_tools(), cwd="/", custom_prompt="You are a poet.\n", docs="/docs", addenda=["Rhyme."]
    )
    assert sections == {
        "preamble": "You are a poet.",
        "addendum": "<addendum>\nRhyme.\n</addendum>",
        "cwd": "<cwd>\n/\n</cwd>",
    }


def test_tools_without_a_snippet_are_not_listed() -> None:
    sections = build_sections(tools=[NamedTool("a", "does a"), NamedTool("b")], cwd="/")
    assert "- a: does a" in sections["tools"]
    assert "- b" not in sections["tools"]
    assert "(none)" in build_sections(tools=[], cwd="/")["tools"]


def test_rules_have_no_duplicates_and_keep_their_order() -> None:
    tools = [NamedTool("a", guidelines=("One.", "Two.")), NamedTool("b", guidelines=("Two.", " "))]
    rules = build_sections(tools=tools, cwd="/", guidelines=["One.", "Three."])["rules"].splitlines()
    assert rules[1:4] == ["- One.", "- Two.", "- Three."]
    assert len(rules) == len(set(rules))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["bash"], True),
        (["powershell"], True),
        (["bash", "grep"], False),
        (["bash", "ls"], False),
        (["read"], False),
    ],
)
def test_the_shell_is_named_for_searching_only_without_a_search_tool(names: list[str], told: bool) -> None:
    rules = build_sections(tools=[NamedTool(name) for name in names], cwd="/")["rules"]
    assert ("with the shell" in rules) == told


@pytest.mark.parametrize(
    ("names", "reader"),
    [(["bash", "read"], "`read`"), (["edit", "bash"], "`bash`"), (["powershell"], "`powershell`")],
)
def test_skills_name_the_first_tool_that_can_load_them(names: list[str], reader: str) -> None:
    tools = [NamedTool(name) for name in names]
    skill = Skill("a<b", 'Says "it\'s" & more', "/s/SKILL.md")
    skills = build_sections(tools=tools, cwd="/", skills=[skill])["skills"]
    assert reader in skills
    assert (
        "<available_skills>\n"
        "  <skill>\n"
        "    <name>a&lt;b</name>\n"
        "    <description>Says &quot;it&apos;s&quot; &amp; more</description>\n"
        "    <location>/s/SKILL.md</location>\n"
        "  </skill>\n"
        "</available_skills>"
    ) in skills


def test_skills_are_left_out_when_no_tool_can_load_them() -> None:
    sections = build_sections(tools=[NamedTool("edit")], cwd="/", skills=[Skill("a", "b", "/c")])
    assert "skills" not in sections


def test_windows_paths_are_written_with_slashes() -> None:
    assert build_sections(tools=[], cwd="C:\\work")["cwd"] == "<cwd>\nC:/work\n</cwd>"


def test_quotes_in_the_path_of_a_context_file_cannot_end_its_attribute() -> None:
    sections = build_sections(tools=[], cwd="/", context_files=[ContextFile('/a"b/AGENTS.md', "x")])
    assert 'path="/a&quot;b/AGENTS.md"' in sections["project_context"]


@pytest.mark.parametrize("name", ["preamble", "Upper", "1st", "", "with space", "-x", "a\n"])
def test_a_section_with_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a prompt section"):
        build_sections(tools=[], cwd="/", extension_sections={name: "text"})


def test_an_extension_can_replace_a_section_in_its_place_and_an_empty_one_is_left_out() -> None:
    sections = build_sections(tools=[], cwd="/", extension_sections={"tools": "None at all.", "empty": " \n"})
    assert list(sections) == ["preamble", "tools", "rules", "cwd"]
    assert sections["tools"] == "<tools>\nNone at all.\n</tools>"


def test_the_same_inputs_give_the_same_prompt() -> None:
    first, second = (build_sections(tools=builtin_tools(), cwd="/a") for _ in range(2))
    assert first == second
