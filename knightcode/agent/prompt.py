"""The system prompt, as ordered named sections.

A section's text is stored as it is sent: every section but the preamble stands in a tag of its name.
Nothing here reads a file or knows the time: the same inputs give the same prompt, so that a
transcript stores only what changed.

Source: agent loop, "System prompt"; resources, "Skills".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import attrs

from knightcode.agent.context_files import ContextFile
from knightcode.agent.tools.base import Tool

_SECTION_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_SEARCH_TOOLS = frozenset({"grep", "find", "ls"})
_SHELLS = ("bash", "powershell")
_SKILL_READERS = ("read", *_SHELLS)

PREAMBLE = (
    "You are KnightCode, an agent that works on software in the user's directory. You read, search and "
    "change files and run commands with the tools given to you until the task is done, then you say what "
    "you did."
)
_MORE_TOOLS = "Projects and extensions can add further tools; they are declared along with these."
_USE_SHELL = "List and search files with the shell (`ls`, `find`, `rg` or `grep`)."
_ALWAYS = ("Keep answers short.", "Write paths so that the user can tell which file is meant.")


@attrs.frozen
class Skill:
    """What the prompt tells of a skill; its text is read when it is needed."""

    name: str
    description: str
    location: str  # absolute path of the file


def build_sections(
    *,
    tools: Sequence[Tool],
    cwd: str,
    custom_prompt: str | None = None,
    addenda: Sequence[str] = (),
    context_files: Sequence[ContextFile] = (),
    skills: Sequence[Skill] = (),
    docs: str | None = None,
    guidelines: Sequence[str] = (),
    extension_sections: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The sections of a prompt by name, in their order; empty ones are left out.

    Args:
        tools: the active tools, in order.
        custom_prompt: takes the place of preamble, tools, rules and docs.
        addenda: texts to append, in order.
        docs: where the product's documentation is, a path or an address.
        guidelines: rules beside those of the tools.
        extension_sections: name to text; one with the name of a section above takes its place.
    Raises:
        ValueError: an extension's section has a name that no section can have.
    """
    sections: dict[str, str] = {}
    if custom_prompt is not None:
        sections["preamble"] = custom_prompt.strip()
    else:
        sections["preamble"] = PREAMBLE
        sections["tools"] = _tools(tools)
        sections["rules"] = _bullets(_rules(tools, guidelines))
        sections["docs"] = _docs(docs) if docs else ""
    sections["addendum"] = "\n\n".join(text.strip() for text in addenda if text.strip())
    sections["project_context"] = _context(context_files)
    sections["skills"] = _skills(tools, skills)
    sections["cwd"] = cwd.replace("\\", "/")
    for name, text in (extension_sections or {}).items():
        if name == "preamble" or not _SECTION_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot name a prompt section: use lower-case letters, digits, - and _"
            )
        sections[name] = text.strip()
    return {
        name: text if name == "preamble" else f"<{name}>\n{text}\n</{name}>"
        for name, text in sections.items()
        if text
    }


def _tools(tools: Sequence[Tool]) -> str:
    lines = [f"- {tool.name}: {tool.snippet}" for tool in tools if tool.snippet]
    return "\n".join(("Your tools:", *(lines or ["(none)"]), "", _MORE_TOOLS))


def _rules(tools: Sequence[Tool], guidelines: Sequence[str]) -> Iterable[str]:
    names = {tool.name for tool in tools}
    if names.intersection(_SHELLS) and not names & _SEARCH_TOOLS:
        yield _USE_SHELL
    for tool in tools:
        yield from tool.guidelines
    yield from guidelines
    yield from _ALWAYS


def _bullets(rules: Iterable[str]) -> str:
    once = dict.fromkeys(rule.strip() for rule in rules if rule.strip())
    return "\n".join(f"- {rule}" for rule in once)


def _docs(location: str) -> str:
    return (
        f"The documentation of KnightCode is at {location}. Read it only when the user asks about "
        "KnightCode itself: its settings, extensions, protocol or tools."
    )


def _context(files: Sequence[ContextFile]) -> str:
    if not files:
        return ""
    texts = (
        f'<project_instructions path="{escape(file.path)}">\n{file.text.strip()}\n</project_instructions>'
        for file in files
    )
    return "\n\n".join(("Instructions of the user and of the project, the closest ones last:", *texts))


def _skills(tools: Sequence[Tool], skills: Sequence[Skill]) -> str:
    names = [tool.name for tool in tools]
    reader = next((name for name in _SKILL_READERS if name in names), None)
    if not skills or reader is None:
        return ""
    lines = [
        "Skills hold instructions for particular tasks.",
        f"When a task fits a skill's description, load the skill's file with `{reader}` first.",
        "Relative paths inside a skill start at the directory of its file.",
        "<available_skills>",
    ]
    for skill in skills:
        lines += (
            "  <skill>",
            f"    <name>{_xml(skill.name)}</name>",
            f"    <description>{_xml(skill.description)}</description>",
            f"    <location>{_xml(skill.location)}</location>",
            "  </skill>",
        )
    lines.append("</available_skills>")
    return "\n".join(lines)


def _xml(text: str) -> str:
    return escape(text).replace("&#x27;", "&apos;")
