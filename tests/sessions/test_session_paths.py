"""Directories, folder names and file names."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knightcode.config.paths import (
    agent_dir,
    encode_cwd,
    is_session_id,
    make_private_folder,
    project_folder,
    session_dir_override,
    session_file_name,
)

HOME = {"HOME": "/home/ada"}


@pytest.mark.parametrize(
    ("cwd", "name"),
    [("/srv/shop/api", "--srv-shop-api--"), ("C:\\work\\x", "--C--work-x--"), ("/", "----"), ("", "----")],
)
def test_a_working_directory_becomes_one_folder_name(cwd: str, name: str) -> None:
    """Session files: Folder encoding."""
    assert encode_cwd(cwd) == name


@settings(max_examples=60)
@given(st.text(max_size=400))
def test_every_working_directory_has_a_name_that_a_file_system_takes(cwd: str) -> None:
    name = encode_cwd("/" + cwd.replace("\0", ""))
    assert len(os.fsencode(name)) <= 255
    assert not {"/", "\\", ":"} & set(name)


def test_long_working_directories_keep_different_names() -> None:
    assert encode_cwd("/" + "a" * 400 + "/x") != encode_cwd("/" + "a" * 400 + "/y")


def test_the_agent_directory_comes_from_the_environment_else_from_home() -> None:
    assert agent_dir(HOME) == Path("/home/ada/.knightcode/agent")
    assert agent_dir({**HOME, "KNIGHTCODE_CODING_AGENT_DIR": "~/kc"}) == Path("/home/ada/kc")
    assert agent_dir({**HOME, "KNIGHTCODE_CODING_AGENT_DIR": ""}) == Path("/home/ada/.knightcode/agent")


def test_the_session_directory_is_the_flag_then_the_variable_then_the_setting_else_nobody_s_choice() -> None:
    """Session files: Choosing another folder."""
    environ = {**HOME, "KNIGHTCODE_CODING_AGENT_SESSION_DIR": "/from/env"}
    chosen = [
        session_dir_override(environ, cwd="/srv/shop", flag="/from/flag", setting="/from/setting"),
        session_dir_override(environ, cwd="/srv/shop", setting="/from/setting"),
        session_dir_override(HOME, cwd="/srv/shop", setting="kept/here"),
        session_dir_override(HOME, cwd="/srv/shop"),
    ]
    assert chosen == [Path("/from/flag"), Path("/from/env"), Path("/srv/shop/kept/here"), None]


def test_sessions_lie_in_a_folder_of_their_project_below_the_agent_directory() -> None:
    folder = project_folder(agent_dir(HOME), "/srv/./shop/")
    assert folder == Path("/home/ada/.knightcode/agent/sessions/--srv-shop--")


def test_a_file_is_named_after_the_header_s_time_and_id() -> None:
    assert session_file_name("2027-04-09T06:31:52.480Z", "a-b") == "2027-04-09T06-31-52-480Z_a-b.jsonl"


@pytest.mark.parametrize("text", ["a", "a.b_c-d9", "0", "A-1"])
def test_letters_and_digits_with_inner_marks_are_a_session_id(text: str) -> None:
    assert is_session_id(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", ".", "a/b", "a b", "é", "a\n", "../x"])
def test_what_could_leave_the_folder_is_no_session_id(text: str) -> None:
    assert not is_session_id(text)


def test_folders_that_are_made_are_private_and_others_keep_their_mode(tmp_path: Path) -> None:
    """Security: session directories have mode 0700."""
    old = tmp_path / "old"
    old.mkdir(mode=0o755)
    make_private_folder(old / "a" / "b")
    make_private_folder(old / "a" / "b")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (old, old / "a", old / "a" / "b")]
    assert modes == [0o755, 0o700, 0o700]
