"""The time of day, as one replaceable function. Waiting uses trio's clock, never this one."""

import time


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000
