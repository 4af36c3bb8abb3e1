"""Accepted requests and their answers: each gets exactly one, decided before it is written.

Source: app server notes, "Exactly one response".
"""

from collections.abc import Callable

from msgspec import UNSET

from knightcode_protocol.envelope import encode_error, encode_result
from knightcode_protocol.errors import ErrorCode


class Call:
    """One accepted request. The first of `answer` and `fail` counts; later ones change nothing.

    Both are synchronous: what must be true together with an answer is done right beside it, without
    an `await` in between. On a connection that is gone they do nothing.
    """

    __slots__ = ("_id", "_requests", "method")

    def __init__(self, request_id: bytes, method: str, requests: "PendingRequests") -> None:
        self.method = method
        self._id = request_id
        self._requests = requests

    def __repr__(self) -> str:
        return f"Call({self._id.decode()}, {self.method!r})"

    @property
    def answered(self) -> bool:
        """True once nobody waits for this answer any more."""
        return self not in self._requests

    def answer(self, result: object) -> bool:
        """Queue the result; False when the request had its answer.

        Raises:
            TypeError: the result has no JSON form. The request still waits.
        """
        if self.answered:
            return False
        return self._requests.settle(self, encode_result(self._id, result))

    def fail(self, code: ErrorCode, message: str, data: object = UNSET) -> bool:
        """Queue an error; False when the request had its answer."""
        if self.answered:
            return False
        return self._requests.settle(self, encode_error(self._id, code, message, data))


class PendingRequests:
    """The requests of one connection that have no answer yet, oldest first.

    Requests are told apart by identity, not by id: two with one id are answered once each.
    """

    __slots__ = ("_open", "_post")

    def __init__(self, post: Callable[[bytes], None]) -> None:
        self._open: dict[Call, None] = {}
        self._post = post

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, call: Call) -> bool:
        return call in self._open

    def open(self, request_id: bytes, method: str) -> Call:
        """Take in a request; `request_id` is the id's JSON text."""
        call = Call(request_id, method, self)
        self._open[call] = None
        return call

    def settle(self, call: Call, line: bytes) -> bool:
        """Close a request and post its answer; False when it was closed before."""
        if call not in self._open:
            return False
        del self._open[call]
        self._post(line)
        return True

    def fail_all(self, code: ErrorCode, message: str) -> int:
        """Answer every open request with one error; how many there were."""
        calls = list(self._open)
        for call in calls:
            call.fail(code, message)
        return len(calls)

    def forget_all(self) -> None:
        """Close every request without an answer: nobody is there to read it."""
        self._open.clear()
