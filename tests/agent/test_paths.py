"""Source: agent loop, "Built-in tools", "read"."""

import os
import unicodedata
from pathlib import Path

import pytest

from knightcode.agent.paths import existing_spelling, resolve_path, shown_path


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.py", "/srv/app/a.py"),
        ("@src/a.py", "/srv/app/src/a.py"),
        ("/etc/hosts", "/etc/hosts"),
        ("./x/../y", "/srv/app/y"),
        ("../y", "/srv/y"),
        ("with\u00a0space\u3000here", "/srv/app/with space here"),
        ("~x", "/srv/app/~x"),
        ("-rf", "/srv/app/-rf"),
        ("naïve 日本.txt", "/srv/app/naïve 日本.txt"),
    ],
)
def test_a_path_means_a_file_below_the_working_directory(written: str, meant: str) -> None:
    assert resolve_path(written, "/srv/app") == meant


def test_a_tilde_means_the_home_directory() -> None:
    assert resolve_path("~/a", "/srv") == os.path.join(os.path.expanduser("~"), "a")
    assert resolve_path("~", "/srv") == os.path.expanduser("~")


@pytest.mark.parametrize(
    ("stored", "written"),
    [
        ("Shot 9.41.00\u202fAM.png", "Shot 9.41.00 AM.png"),
        (unicodedata.normalize("NFD", "résumé.txt"), "résumé.txt"),
        ("it\u2019s.txt", "it's.txt"),
        ("it\u2019s 5\u202fPM", "it's 5 PM"),
        (unicodedata.normalize("NFD", "l\u2019été.txt"), "l'été.txt"),
    ],
)
def test_a_file_is_found_under_the_spelling_of_macos(tmp_path: Path, stored: str, written: str) -> None:
    (tmp_path / stored).touch()
    assert existing_spelling(str(tmp_path / written)) == str(tmp_path / stored)


def test_the_exact_spelling_wins_and_a_missing_file_keeps_its_name(tmp_path: Path) -> None:
    for name in ("it's", "it\u2019s"):
        (tmp_path / name).touch()
    assert existing_spelling(str(tmp_path / "it's")) == str(tmp_path / "it's")
    assert existing_spelling(str(tmp_path / "no 5 PM")) == str(tmp_path / "no 5 PM")


def test_paths_below_the_working_directory_are_shown_relative_to_it() -> None:
    assert shown_path("/srv/app/src/a.py", "/srv/app") == "src/a.py"
    assert shown_path("/srv/app/..x", "/srv/app") == "..x"
    assert shown_path("/srv/other/a.py", "/srv/app") == "/srv/other/a.py"
