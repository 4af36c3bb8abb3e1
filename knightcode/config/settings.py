"""The global settings file, as far as anything reads it yet.

The file is not checked against a schema: unknown keys are ignored, and a value of the wrong kind
means its default. A number or a switch that is none gives a warning as well. A file that is not JSON
counts as empty and gives one warning.

Source: settings, "Settings keys", "Tolerance of bad values", "Malformed file", "Legacy keys".
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import attrs
import msgspec

from knightcode.config.section import Section
from knightcode.messages import ThinkingLevel
from knightcode.regular_file import read_regular

T = TypeVar("T")

DEFAULT_HTTP_IDLE_MS = 300_000
_LEVELS = get_args(ThinkingLevel)
SteeringMode = Literal["one-at-a-time", "all"]


@attrs.frozen
class ProviderRetrySettings:
    """The settings `retry.provider.*`, of one request to a provider.

    Attributes:
        timeout_ms: until the response's head, 0 for no limit; None is `http_idle_timeout_ms`.
        max_retry_delay_ms: the longest wait that a server may ask for; 0 for no limit.
    """

    timeout_ms: int | None = None
    max_retries: int = 0
    max_retry_delay_ms: int = 60_000


@attrs.frozen
class RetrySettings:
    """The settings `retry.*`, of replies that failed. Milliseconds."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2_000
    max_agent_delay_ms: int = 60_000
    provider: ProviderRetrySettings = ProviderRetrySettings()


@attrs.frozen
class CompactionSettings:
    """The settings `compaction.*`. Tokens.

    Attributes:
        enabled: of automatic compaction; that on request always works.
        reserve_tokens: room kept for the reply.
        keep_recent_tokens: of the newest context, kept word for word.
        model_overrides: by `provider/modelId`, with the file's names: `reserveTokens`, `keepRecentTokens`.
    """

    enabled: bool = True
    reserve_tokens: int = 16_384
    keep_recent_tokens: int = 20_000
    model_overrides: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)

    def for_model(self, provider: str, model_id: str) -> "CompactionSettings":
        """What holds for one model: each number is its override's if that has it, else the ordinary one.

        Names are compared exactly. The result has no overrides.
        """
        override = self.model_overrides.get(f"{provider}/{model_id}", {})
        return CompactionSettings(
            enabled=self.enabled,
            reserve_tokens=override.get("reserveTokens", self.reserve_tokens),
            keep_recent_tokens=override.get("keepRecentTokens", self.keep_recent_tokens),
        )


@attrs.frozen
class Settings:
    """What the global settings say. None means unset."""

    session_dir: str | None = None
    default_provider: str | None = None
    default_model: str | None = None
    default_thinking_level: ThinkingLevel | None = None
    shell_path: str | None = None
    shell_command_prefix: str | None = None
    http_idle_timeout_ms: int = DEFAULT_HTTP_IDLE_MS
    """0 for no limit."""
    default_tools: tuple[str, ...] | None = None
    """Names, or `+name` and `-name`; see `select_tools`."""
    steering_mode: SteeringMode = "one-at-a-time"
    """How many steers are handed to the model at one point."""
    retry: RetrySettings = RetrySettings()
    compaction: CompactionSettings = CompactionSettings()
    warnings: tuple[str, ...] = ()


def load_settings(path: Path) -> Settings:
    """Read a settings file; a missing one has no settings, a broken one has a warning."""
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        return Settings(warnings=(f"{path} cannot be read ({error.strerror}); its settings are not used",))
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Settings(warnings=(f"{path} is not valid JSON ({error}); its settings are not used",))
    if not isinstance(found, dict):
        return Settings(warnings=(f"{path} does not hold a JSON object; its settings are not used",))
    section = Section(str(path), found, [])
    idle_ms = _idle_milliseconds(section)
    retry = _retry(section.section("retry"))
    compaction = _compaction(section.section("compaction"))
    return Settings(
        session_dir=_value(found, "sessionDir", _text),
        default_provider=_value(found, "defaultProvider", _text),
        default_model=_value(found, "defaultModel", _text),
        default_thinking_level=_value(found, "defaultThinkingLevel", _level),
        shell_path=_value(found, "shellPath", _text),
        shell_command_prefix=_value(found, "shellCommandPrefix", _text),
        http_idle_timeout_ms=idle_ms,
        default_tools=_names(found["defaultTools"]) if found.get("defaultTools") is not None else None,
        steering_mode=_value(found, "steeringMode", _steering_mode) or "one-at-a-time",
        retry=retry,
        compaction=compaction,
        warnings=tuple(section.warnings),
    )


def select_tools(listed: tuple[str, ...] | None, built_in: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the tools that a thread has.

    Args:
        listed: the setting `defaultTools`: plain names replace the built-in choice, and so does an
            empty list; `+name` and `-name` add to it and take from it, in order.
    Source: settings, "Merge and resolution".
    """
    if listed is None:
        return built_in
    plain = [name for name in listed if name[:1] not in ("+", "-")]
    chosen = dict.fromkeys(plain if plain or not listed else built_in)
    for name in listed:
        if name.startswith("+"):
            chosen.setdefault(name[1:])
        elif name.startswith("-"):
            chosen.pop(name[1:], None)
    return tuple(chosen)


def _value(found: dict[str, Any], key: str, check: Callable[[object], T | None]) -> T | None:
    return check(found.get(key))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _level(value: object) -> ThinkingLevel | None:
    return value if value in _LEVELS else None  # type: ignore[return-value]


def _retry(section: Section) -> RetrySettings:
    default = RetrySettings()
    return RetrySettings(
        enabled=section.flag("enabled", default.enabled),
        max_retries=section.number("maxRetries", default.max_retries),
        base_delay_ms=section.number("baseDelayMs", default.base_delay_ms),
        max_agent_delay_ms=section.number("maxAgentDelayMs", default.max_agent_delay_ms),
        provider=_provider_retry(section),
    )


def _provider_retry(retry: Section) -> ProviderRetrySettings:
    section, default = retry.section("provider"), ProviderRetrySettings()
    longest_ms = default.max_retry_delay_ms
    if section.members.get("maxRetryDelayMs") is None:
        longest_ms = retry.number("maxDelayMs", longest_ms)  # the key's name in earlier versions
    return ProviderRetrySettings(
        timeout_ms=section.number("timeoutMs", default.timeout_ms),
        max_retries=section.number("maxRetries", default.max_retries),
        max_retry_delay_ms=section.number("maxRetryDelayMs", longest_ms),
    )


def _compaction(section: Section) -> CompactionSettings:
    default = CompactionSettings()
    return CompactionSettings(
        enabled=section.flag("enabled", default.enabled),
        reserve_tokens=section.whole("reserveTokens", default.reserve_tokens),
        keep_recent_tokens=section.whole("keepRecentTokens", default.keep_recent_tokens),
        model_overrides=_overrides(section.section("modelOverrides")),
    )


def _overrides(section: Section) -> dict[str, dict[str, int]]:
    """By model, the numbers that can be used."""
    found: dict[str, dict[str, int]] = {}
    for model in section.members:
        override = section.section(model)
        numbers = {key: override.whole(key, None) for key in ("reserveTokens", "keepRecentTokens")}
        found[model] = {key: number for key, number in numbers.items() if number is not None}
    return found


def _steering_mode(value: object) -> SteeringMode | None:
    return value if value in get_args(SteeringMode) else None  # type: ignore[return-value]


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _idle_milliseconds(section: Section) -> int:
    key, fault = "httpIdleTimeoutMs", 'neither a number of milliseconds nor "disabled"'
    if section.members.get(key) == "disabled":
        return 0
    return section.number(key, DEFAULT_HTTP_IDLE_MS, fault=fault)
