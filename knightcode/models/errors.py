"""What a failed reply means, read from its text.

Pure. Providers agree on nothing but words, so kinds and overflow are found by phrases.

Source: models and providers, "Errors"; agent loop, "Context overflow".
"""

import re
from typing import Final, Literal

from knightcode.messages import AssistantMessage

ErrorKind = Literal["auth", "rateLimit", "contextOverflow", "network", "provider", "other"]


class RequestFailedError(Exception):
    """A request got no usable answer; the text is what the reply ends with.

    Attributes:
        retry_after_ms: how long the server asked to be left alone; None when it did not say.
    """

    def __init__(self, text: str, *, retry_after_ms: int | None = None) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_OVERFLOW: Final = _any(
    r"prompt is too long",
    r"request_too_large",
    r"input is too long for requested model",
    r"exceeds the context window",
    r"input token count.*exceeds the maximum",
    r"maximum prompt length is \d+",
    r"reduce the length of the messages",
    r"maximum context length is \d+ tokens",
    r"exceeds the limit of \d+",
    r"exceeds the available context size",
    r"greater than the context length",
    r"context window exceeds limit",
    r"exceeded model token limit",
    r"too large for model with \d+ maximum context length",
    r"model_context_window_exceeded",
    r"prompt too long; exceeded (?:max )?context length",
    r"context[_ ]length[_ ]exceeded",
    r"too many tokens",
    r"token limit exceeded",
    r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)",
)
_NOT_OVERFLOW: Final = _any(
    r"^(?:Throttling error|Service unavailable):", r"rate limit", r"too many requests"
)

_KINDS: Final[tuple[tuple[ErrorKind, re.Pattern[str]], ...]] = (
    (
        "auth",
        _any(
            r"^40[13]\b",
            r"unauthorized",
            r"forbidden",
            r"authentication_error",
            r"permission_error",
            r"invalid api key",
            r"invalid x-api-key",
            r"incorrect api key",
            r"no api key",
            r"could not resolve the api key",
            r"token refresh failed",
            r"token expired",
        ),
    ),
    (
        "rateLimit",
        _any(
            r"^4(?:29|02)\b",
            r"rate[ _]limit",
            r"too many requests",
            r"quota",
            r"usage[ _]limit",
            r"billing",
            r"resourceexhausted",
            r"retry delay",
        ),
    ),
    (
        "network",
        _any(
            r"connection (?:was |has been )?(?:error|refused|reset|lost|closed)",
            r"getaddrinfo",
            r"name resolution",
            r"enotfound",
            r"eai_again",
            r"timed out",
            r"timeout",
            r"socket",
            r"\bssl\b",
            r"certificate",
            r"fetch failed",
            r"stream ended",
            r"terminated",
            r"upstream connect",
        ),
    ),
    (
        "provider",
        _any(
            r"^[45]\d\d\b",
            r"overloaded",
            r"server[ _]error",
            r"internal[ _]error",
            r"service[ _]unavailable",
            r"at capacity",
            r"finish_reason",
            r"stopped with",
            r"response incomplete",
            r"refus",
            r"provider returned error",
            r"no adapter for api",
            r"unknown stop reason",
        ),
    ),
)


def error_kind(text: str) -> ErrorKind:
    """The kind of failure that an error text tells of."""
    if is_overflow_text(text):
        return "contextOverflow"
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "other")


def is_overflow_text(text: str) -> bool:
    """Whether a provider's error text says that the request did not fit the context window."""
    return _OVERFLOW.search(text) is not None and _NOT_OVERFLOW.search(text) is None


def is_overflow(message: AssistantMessage, context_window: int) -> bool:
    """Whether a reply shows that its request did not fit, said openly or cut silently.

    Args:
        context_window: of the model that answered, in tokens.
    """
    if message.stop_reason == "error":
        return is_overflow_text(message.error_message or "")
    prompt = message.usage.input + message.usage.cache_read
    if message.stop_reason == "stop":
        return prompt > context_window
    return message.stop_reason == "length" and message.usage.output == 0 and prompt >= 0.99 * context_window
