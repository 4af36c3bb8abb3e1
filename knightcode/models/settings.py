"""The settings that a model request follows.

Source: settings, "Network and retry".
"""

from typing import Final

import attrs

CLOSE_SECONDS: Final = 1.0
"""For closing connections, whatever else happens: a socket closes at once, TLS may want to say goodbye."""


@attrs.frozen
class ModelSettings:
    """Limits and retries of one request. Milliseconds; 0 is no limit.

    Attributes:
        timeout_ms: `retry.provider.timeoutMs`, until the response's head; None is `idle_timeout_ms`.
        idle_timeout_ms: `httpIdleTimeoutMs`, between two pieces of the response.
        max_retries: `retry.provider.maxRetries`, of a request that got no usable response.
        max_retry_delay_ms: `retry.provider.maxRetryDelayMs`, the longest wait that a server may ask for.
        http_proxy: `httpProxy`, beats the environment. Read once, when the client is opened.
    """

    timeout_ms: float | None = None
    idle_timeout_ms: float = 300_000
    max_retries: int = 0
    max_retry_delay_ms: float = 60_000
    http_proxy: str | None = None

    @property
    def header_seconds(self) -> float | None:
        """The limit until the response's head; None for no limit."""
        return _seconds(self.idle_timeout_ms if self.timeout_ms is None else self.timeout_ms)

    @property
    def idle_seconds(self) -> float | None:
        """The limit between two pieces of the response; None for no limit."""
        return _seconds(self.idle_timeout_ms)


def _seconds(milliseconds: float) -> float | None:
    return milliseconds / 1000 if milliseconds > 0 else None
