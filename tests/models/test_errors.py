"""Kinds of failures and overflow, read from texts."""

import pytest

from knightcode.messages import AssistantMessage, StopReason, Usage
from knightcode.models.errors import ErrorKind, error_kind, is_overflow


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('400 {"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}', "contextOverflow"),
        ("413 (no body)", "contextOverflow"),
        ("400 status code (no body)", "contextOverflow"),
        ("This model's maximum context length is 8192 tokens", "contextOverflow"),
        ("Input token count (1) exceeds the maximum", "contextOverflow"),
        ("model_context_window_exceeded", "contextOverflow"),
        ("context_length_exceeded", "contextOverflow"),
        ("429 rate limit: too many tokens", "rateLimit"),
        ("Throttling error: too many tokens", "other"),
        ("401 {}", "auth"),
        ("403 forbidden", "auth"),
        ("no API key for acme", "auth"),
        ("could not resolve the API key of acme: $X is not set", "auth"),
        ('429 {"error":{}}', "rateLimit"),
        ("402 pay", "rateLimit"),
        ("insufficient_quota", "rateLimit"),
        ("retry delay of 90 s is longer than the 60 s allowed: 503 {}", "rateLimit"),
        ("connection error: refused", "network"),
        ("request timed out: nothing arrived for 300 s", "network"),
        ("the provider's stream ended before message_stop", "network"),
        ("500 oops", "provider"),
        ("404 model not found", "provider"),
        ('{"type":"error","error":{"type":"overloaded_error"}}', "provider"),
        ("response ended without finish_reason", "provider"),
        ('no adapter for api "x" (provider y)', "provider"),
        ("unknown stop reason: nap", "provider"),
        ("the model refused to answer (refusal)", "provider"),
        ("4290 things", "other"),
        ("something else", "other"),
    ],
)
def test_the_kind_of_a_failure_is_read_from_its_text(text: str, kind: ErrorKind) -> None:
    """Models and providers, "Errors"."""
    assert error_kind(text) == kind


@pytest.mark.parametrize(
    ("stop", "error", "usage", "overflows"),
    [
        ("error", "prompt is too long", Usage(), True),
        ("error", "500 oops", Usage(), False),
        ("error", None, Usage(), False),
        ("stop", None, Usage(input=90, cache_read=11), True),
        ("stop", None, Usage(input=90, cache_read=10), False),
        ("length", None, Usage(input=99), True),
        ("length", None, Usage(input=99, output=1), False),
        ("length", None, Usage(input=98), False),
        ("toolUse", None, Usage(input=200), False),
        ("aborted", "prompt is too long", Usage(), False),
    ],
)
def test_overflow_is_said_in_an_error_or_seen_in_the_usage(
    stop: StopReason, error: str | None, usage: Usage, overflows: bool
) -> None:
    """Agent loop, "Context overflow"."""
    message = AssistantMessage(timestamp=0, stop_reason=stop, error_message=error, usage=usage)
    assert is_overflow(message, 100) is overflows
