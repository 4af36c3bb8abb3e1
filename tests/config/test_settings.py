"""The global settings file: what is read, and what a bad one costs."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from knightcode.config.settings import (
    DEFAULT_HTTP_IDLE_MS,
    CompactionSettings,
    ProviderRetrySettings,
    RetrySettings,
    Settings,
    load_settings,
    select_tools,
)

BUILT_IN = ("read", "bash", "edit", "write")


def load(tmp_path: Path, **members: Any) -> Settings:
    path = tmp_path / "settings.json"
    path.write_bytes(msgspec.json.encode(members))
    return load_settings(path)


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


def test_the_retry_settings_are_read(tmp_path: Path) -> None:
    """Settings: Network and retry."""
    retry = {
        "enabled": False,
        "maxRetries": 5,
        "baseDelayMs": 100.7,
        "maxAgentDelayMs": 0,
        "provider": {"timeoutMs": 9000, "maxRetries": 2, "maxRetryDelayMs": 0, "unknown": []},
        "unknown": "x",
    }
    assert load(tmp_path, retry=retry) == Settings(
        retry=RetrySettings(
            enabled=False,
            max_retries=5,
            base_delay_ms=100,
            max_agent_delay_ms=0,
            provider=ProviderRetrySettings(timeout_ms=9000, max_retries=2, max_retry_delay_ms=0),
        )
    )


def test_the_compaction_settings_are_read(tmp_path: Path) -> None:
    """Compaction: Settings."""
    compaction = {
        "enabled": False,
        "reserveTokens": 0,
        "keepRecentTokens": 1e4,
        "modelOverrides": {"openrouter/a/b": {"reserveTokens": 7, "note": 1}, "x/y": {}},
    }
    assert load(tmp_path, compaction=compaction) == Settings(
        compaction=CompactionSettings(
            enabled=False,
            reserve_tokens=0,
            keep_recent_tokens=10_000,
            model_overrides={"openrouter/a/b": {"reserveTokens": 7}, "x/y": {}},
        )
    )


def test_what_is_unset_has_its_default_and_no_warning(tmp_path: Path) -> None:
    """Settings: Merge and resolution."""
    assert load(tmp_path, retry=None, compaction={}) == Settings()
    nothing = {"enabled": None, "reserveTokens": None, "modelOverrides": None}
    assert load(tmp_path, retry={"provider": None, "maxRetries": None}, compaction=nothing) == Settings()


@pytest.mark.parametrize(
    ("members", "warning"),
    [
        ({"retry": 5}, "retry is 5, not an object; nothing of it is used"),
        ({"retry": {"provider": []}}, "retry.provider is [], not an object; nothing of it is used"),
        ({"retry": {"enabled": "no"}}, 'retry.enabled is "no", neither true nor false; true is used'),
        ({"retry": {"maxRetries": -1}}, "retry.maxRetries is -1, not a number from 0 up; 3 is used"),
        ({"retry": {"maxRetries": True}}, "retry.maxRetries is true, not a number from 0 up; 3 is used"),
        ({"retry": {"baseDelayMs": "1"}}, 'retry.baseDelayMs is "1", not a number from 0 up; 2000 is used'),
        (
            {"retry": {"maxAgentDelayMs": 1e300}},
            "retry.maxAgentDelayMs is 1e+300, not a number from 0 up; 60000 is used",
        ),
        (
            {"retry": {"provider": {"timeoutMs": "disabled"}}},
            'retry.provider.timeoutMs is "disabled", not a number from 0 up; it is not used',
        ),
        ({"retry": {"maxDelayMs": []}}, "retry.maxDelayMs is [], not a number from 0 up; 60000 is used"),
        ({"compaction": "off"}, 'compaction is "off", not an object; nothing of it is used'),
        ({"compaction": {"enabled": 0}}, "compaction.enabled is 0, neither true nor false; true is used"),
        (
            {"compaction": {"reserveTokens": 1.5}},
            "compaction.reserveTokens is 1.5, not a whole number from 0 up; 16384 is used",
        ),
        (
            {"compaction": {"keepRecentTokens": 2**53}},
            "compaction.keepRecentTokens is 9007199254740992, not a whole number from 0 up; 20000 is used",
        ),
        (
            {"compaction": {"modelOverrides": ["x" * 100]}},
            f'compaction.modelOverrides is ["{"x" * 78}…, not an object; nothing of it is used',
        ),
    ],
)
def test_a_value_of_a_wrong_kind_means_its_default_and_a_warning_that_names_it(
    tmp_path: Path, members: dict[str, Any], warning: str
) -> None:
    """Settings: Tolerance of bad values."""
    assert load(tmp_path, **members) == Settings(warnings=(f"{tmp_path / 'settings.json'}: {warning}",))


def test_one_bad_value_does_not_cost_the_others(tmp_path: Path) -> None:
    """Settings: Tolerance of bad values."""
    overrides = {"a/b": 5, "c/d": {"reserveTokens": -1, "keepRecentTokens": 3}}
    settings = load(
        tmp_path,
        httpIdleTimeoutMs="soon",
        shellPath="/bin/sh",
        retry={"maxRetries": [], "baseDelayMs": 1},
        compaction={"reserveTokens": 2, "modelOverrides": overrides},
    )
    source = tmp_path / "settings.json"
    assert settings == Settings(
        shell_path="/bin/sh",
        retry=RetrySettings(base_delay_ms=1),
        compaction=CompactionSettings(
            reserve_tokens=2, model_overrides={"a/b": {}, "c/d": {"keepRecentTokens": 3}}
        ),
        warnings=(
            f'{source}: httpIdleTimeoutMs is "soon", neither a number of milliseconds nor "disabled"; '
            "300000 is used",
            f"{source}: retry.maxRetries is [], not a number from 0 up; 3 is used",
            f"{source}: compaction.modelOverrides.a/b is 5, not an object; nothing of it is used",
            f"{source}: compaction.modelOverrides.c/d.reserveTokens is -1, not a whole number from 0 up; "
            "it is not used",
        ),
    )


@pytest.mark.parametrize(
    ("provider", "longest_ms"),
    [({}, 5), ({"maxRetryDelayMs": None}, 5), ({"maxRetryDelayMs": 7}, 7), (None, 5)],
)
def test_the_earlier_name_of_the_longest_asked_wait_counts_where_the_new_one_is_unset(
    tmp_path: Path, provider: dict[str, int | None] | None, longest_ms: int
) -> None:
    """Settings: Legacy keys."""
    settings = load(tmp_path, retry={"maxDelayMs": 5, "provider": provider})
    assert settings.retry == RetrySettings(provider=ProviderRetrySettings(max_retry_delay_ms=longest_ms))


@pytest.mark.parametrize(
    ("provider", "model_id", "numbers"),
    [
        ("openrouter", "a/b", (7, 2)),
        ("x", "y", (1, 0)),
        ("x", "Y", (1, 2)),
        ("z", "empty", (1, 2)),
        ("x", "other", (1, 2)),
    ],
)
def test_each_number_of_a_model_is_its_overrides_or_the_ordinary_one(
    provider: str, model_id: str, numbers: tuple[int, int]
) -> None:
    """Compaction: Settings."""
    overrides = {"openrouter/a/b": {"reserveTokens": 7}, "x/y": {"keepRecentTokens": 0}, "z/empty": {}}
    settings = CompactionSettings(
        enabled=False, reserve_tokens=1, keep_recent_tokens=2, model_overrides=overrides
    )
    assert settings.for_model(provider, model_id) == CompactionSettings(
        enabled=False, reserve_tokens=numbers[0], keep_recent_tokens=numbers[1]
    )
