"""Which failures are tried again, and when."""

import pytest

from knightcode.agent.retry import RetryPolicy, is_retryable_text
from knightcode.messages import AssistantMessage, StopReason, Usage


def failed(text: str, stop: StopReason = "error") -> AssistantMessage:
    return AssistantMessage(timestamp=0, stop_reason=stop, error_message=text, usage=Usage())


@pytest.mark.parametrize(
    "text",
    [
        "529 overloaded",
        "overloaded_error",
        "server_busy",
        "429 {}",
        '429 {"error":{"type":"rate_limit_error"}}',
        "[429,",
        "error_520.",
        "status: 503",
        "500",
        "(502)",
        "rate_limit_error",
        "Rate limit reached",
        "RATE-LIMIT",
        "RateLimit",
        "TooManyRequests",
        "resourceexhausted",
        "getaddrinfo EAI_AGAIN",
        "fetch_failed",
        "websocket closed",
        "Service Unavailable",
        "internal_error",
        "connection error: reset by peer",
        "connection refused",
        "request timed out: no response",
        "read time out",
        "Timeout",
        "TimedOut",
        "stream ended before message_stop",
        "response ended without finish_reason",
        "retry delay of 90 s is longer than the 60 s allowed",
    ],
)
def test_what_may_pass_is_tried_again(text: str) -> None:
    """Agent loop: Automatic retry."""
    assert is_retryable_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "400 bad request",
        "401 unauthorized",
        "15000 tokens",
        "v1.500",
        "5000",
        "1,500 tokens",
        "500,000 tokens",
        "500.1",
        "400 request req_7500x429abc",
        "429 insufficient_quota",
        "429 Insufficient quota",
        "429 GoUsageLimitError",
        "503 subscription_sharing_usage_limit_exceeded",
        "503 your billing is not set up",
        "429 Monthly usage limit reached",
        "no such model",
    ],
)
def test_what_stays_broken_is_not(text: str) -> None:
    """Agent loop: Automatic retry."""
    assert not is_retryable_text(text)


def test_the_policy_counts_attempts_and_leaves_overflow_to_compaction() -> None:
    """Agent loop: Automatic retry, Context overflow."""
    policy = RetryPolicy(max_retries=2)
    assert [policy.allows(failed("503"), made, 1000) for made in range(4)] == [True, True, False, False]
    assert not policy.allows(failed("400 prompt is too long: 500 tokens"), 0, 1000)
    assert not policy.allows(failed("413 (no body)"), 0, 1000)


@pytest.mark.parametrize("stop", ["stop", "length", "toolUse", "aborted"])
def test_only_a_reply_that_failed_is_tried_again(stop: StopReason) -> None:
    """Agent loop: Automatic retry."""
    assert not RetryPolicy().allows(failed("503", stop), 0, 1000)
    assert RetryPolicy().allows(failed("503"), 0, 1000)


def test_a_failure_without_a_text_is_final() -> None:
    """Agent loop: Automatic retry."""
    nothing = AssistantMessage(timestamp=0, stop_reason="error")
    assert not RetryPolicy().allows(nothing, 0, 1000)


@pytest.mark.parametrize("policy", [RetryPolicy(enabled=False), RetryPolicy(max_retries=0)])
def test_retries_can_be_switched_off(policy: RetryPolicy) -> None:
    """Settings: Network and retry."""
    assert not policy.allows(failed("503"), 0, 1000)


def test_waits_double_up_to_the_limit() -> None:
    """Agent loop: Automatic retry."""
    waits = [RetryPolicy().delay_ms(attempt) for attempt in (1, 2, 3, 5, 6, 7, 10_000)]
    assert waits == [2_000, 4_000, 8_000, 32_000, 60_000, 60_000, 60_000]


@pytest.mark.parametrize(
    ("asked_ms", "delay_ms"),
    [(None, 2_000), (0, 2_000), (1_999, 2_000), (5_000, 5_000), (60_000, 60_000), (3_600_000, 60_000)],
)
def test_a_retry_waits_as_long_as_the_provider_asked_but_never_longer_than_the_settings_say(
    asked_ms: int | None, delay_ms: int
) -> None:
    """Agent loop: Automatic retry; models and providers, "Agent-level retry"."""
    assert RetryPolicy().delay_ms(1, asked_ms) == delay_ms
