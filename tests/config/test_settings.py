"""The global settings file: what is read, and what a bad one costs."""

import os
from pathlib import Path

import pytest

from knightcode.config.settings import DEFAULT_HTTP_IDLE_MS, Settings, load_settings, select_tools

BUILT_IN = ("read", "bash", "edit", "write")


def test_a_missing_file_has_no_settings(tmp_path: Path) -> None:
    """Settings: Settings keys."""
    assert load_settings(tmp_path / "settings.json") == Settings()


def test_values_are_read_and_those_of_a_wrong_kind_mean_their_default(tmp_path: Path) -> None:
    """Settings: Tolerance of bad values."""
    path = tmp_path / "settings.json"
    path.write_text(
        '\ufeff{"sessionDir": "s", "defaultProvider": 5, "defaultThinkingLevel": "huge",'
        ' "shellPath": "/bin/sh", "httpIdleTimeoutMs": "disabled", "defaultTools": ["+x", 5], "unknown": {}}'
    )
    assert load_settings(path) == Settings(
        session_dir="s", shell_path="/bin/sh", http_idle_timeout_ms=0, default_tools=("+x",)
    )


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"5", b""])
def test_a_broken_file_counts_as_empty_and_is_named_in_a_warning(tmp_path: Path, content: bytes) -> None:
    """Settings: Malformed file."""
    path = tmp_path / "settings.json"
    path.write_bytes(content)
    settings = load_settings(path)
    assert settings == Settings(warnings=settings.warnings)
    assert len(settings.warnings) == 1
    assert str(path) in settings.warnings[0]


def test_a_folder_or_a_pipe_in_its_place_is_a_warning_and_blocks_nobody(tmp_path: Path) -> None:
    """Settings: Malformed file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert str(path) in load_settings(path).warnings[0]


@pytest.mark.parametrize("value", ["true", "-1", '"soon"', "[]", "1e300"])
def test_an_idle_timeout_that_is_no_time_is_a_warning(tmp_path: Path, value: str) -> None:
    """Settings: Tolerance of bad values."""
    path = tmp_path / "settings.json"
    path.write_text(f'{{"httpIdleTimeoutMs": {value}}}')
    settings = load_settings(path)
    assert settings.http_idle_timeout_ms == DEFAULT_HTTP_IDLE_MS
    assert "httpIdleTimeoutMs" in settings.warnings[0]


@pytest.mark.parametrize(
    ("listed", "chosen"),
    [
        (None, BUILT_IN),
        ((), ()),
        (("read",), ("read",)),
        (("+grep", "-bash"), ("read", "edit", "write", "grep")),
        (("read", "+bash", "-read"), ("bash",)),
        (("-bash", "+bash"), ("read", "edit", "write", "bash")),
    ],
)
def test_default_tools_replace_or_adjust_the_built_in_choice(
    listed: tuple[str, ...] | None, chosen: tuple[str, ...]
) -> None:
    """Settings: Merge and resolution."""
    assert select_tools(listed, BUILT_IN) == chosen
