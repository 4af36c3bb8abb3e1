"""Numbers that stand in the protocol and in the domain, which may not import it, are the same."""

from knightcode.gates.approvals import MESSAGE_LIMIT
from knightcode.threads.history import PAGE_TURNS
from knightcode.threads.images import IMAGE_LIMIT
from knightcode.threads.listing import DEFAULT_LIMIT
from knightcode.threads.live import DELTA_LIMIT
from knightcode.threads.opening import NAME_LIMIT
from knightcode.threads.turns import ERROR_LIMIT
from knightcode_protocol import limits


def test_a_limit_is_one_number() -> None:
    """App Server: Limits and client reference; App Server notes: Method table."""
    assert {
        "decline message": MESSAGE_LIMIT,
        "turns of a page": PAGE_TURNS,
        "image": IMAGE_LIMIT,
        "listing": DEFAULT_LIMIT,
        "delta": DELTA_LIMIT,
        "name": NAME_LIMIT,
        "error": ERROR_LIMIT,
    } == {
        "decline message": limits.MAX_DECLINE_MESSAGE,
        "turns of a page": limits.MAX_PAGE_TURNS,
        "image": limits.MAX_IMAGE_BYTES,
        "listing": limits.DEFAULT_LIST_LIMIT,
        "delta": limits.MAX_DELTA_BYTES,
        "name": limits.MAX_THREAD_NAME,
        "error": limits.MAX_ERROR_MESSAGE,
    }
