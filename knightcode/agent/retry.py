"""Whether a failed reply is worth another try, and when. Pure.

Source: agent loop, "Automatic retry"; models and providers, "Agent-level retry".
"""

import re
from typing import Final

import attrs

from knightcode.messages import AssistantMessage
from knightcode.models.errors import is_overflow

CANCELLED: Final = "Retry cancelled"
"""What ends a chain of retries that somebody stopped."""


@attrs.frozen
class RetryPolicy:
    """The settings `retry.*`. Milliseconds."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2_000
    max_delay_ms: int = 60_000

    def delay_ms(self, attempt: int, asked_ms: int | None = None) -> int:
        """How long to wait before a retry: doubling from one to the next, and not less than was asked for.

        Args:
            attempt: the retry's number, from 1.
            asked_ms: the wait that the provider asked for. It is cut to `max_delay_ms` like every
                other: a person who waits for an answer is not kept longer than the settings say.
        """
        # Beyond sixty doublings every base is over every limit, and the number would only grow.
        own_ms = self.base_delay_ms << min(attempt - 1, 60)
        return min(max(own_ms, asked_ms or 0), self.max_delay_ms)

    def allows(self, message: AssistantMessage, attempts_made: int, context_window: int) -> bool:
        """Whether the reply is tried again after `attempts_made` retries."""
        return (
            self.enabled
            and attempts_made < self.max_retries
            and message.stop_reason == "error"
            and not is_overflow(message, context_window)
            and is_retryable_text(message.error_message or "")
        )


def is_retryable_text(text: str) -> bool:
    """Whether an error's text tells of something that may pass."""
    return _NEVER.search(text) is None and _RETRY.search(text) is not None


def _phrases(*phrases: str) -> re.Pattern[str]:
    """Matches any of the phrases; a space in one stands for any character there, or none."""
    return re.compile("|".join(phrase.replace(" ", ".?") for phrase in phrases), re.IGNORECASE)


_NEVER: Final = _phrases(
    "GoUsageLimitError",
    "FreeUsageLimitError",
    "monthly usage limit reached",
    "available balance",
    "insufficient quota",
    "out of budget",
    "quota exceeded",
    "billing",
    "subscription sharing usage limit exceeded",
)

_RETRY: Final = _phrases(
    # load
    "overloaded",
    "server busy",
    "servers are currently busy",
    "currently experiencing high demand",
    "model is at capacity",
    "rate limit",
    "too many requests",
    "ResourceExhausted",
    # a status that is a number of its own: no part of a larger one, of a version or of an id
    r"(?<![0-9a-z])(?<![0-9][.,])(?:429|500|502|503|504|520|524)(?![0-9a-z])(?![.,][0-9])",
    # the server
    "service unavailable",
    "server error",
    "internal error",
    "provider returned error",
    "exceeded request buffer limit while retrying upstream",
    # the way to it
    "network error",
    "connection (?:error|refused|lost)",
    "other side closed",
    "fetch failed",
    "getaddrinfo",
    "ENOTFOUND",
    "EAI AGAIN",
    "upstream connect",
    "reset before headers",
    "socket hang up",
    "socket connection was closed",
    "timed? out",
    "terminated",
    "websocket (?:closed|error)",
    # an end that came too early
    "ended without",
    "stream ended before message stop",
    "stream ended before a terminal response event",
    "http2 request did not get a response",
    "pending stream has been canceled",
    # what the server says itself
    "retry delay",
    "you can retry your request",
    "try your request again",
    "please retry your request",
    "subscription sharing usage unavailable",
    "subscription sharing user unavailable",
)
