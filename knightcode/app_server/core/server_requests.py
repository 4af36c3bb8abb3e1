"""Requests that go the other way: sent to the client, answered once or withdrawn.

Source: app server notes, "Exactly one response" (second answers), "Routing" (ids).
"""

import msgspec
from msgspec import Raw, Struct, UnsetType

from knightcode.app_server.core.messages import UNREADABLE
from knightcode_protocol.envelope import Response


class ServerAnswer(Struct, frozen=True):
    """The client's answer to an open request: exactly one of `result` and `error` is there."""

    request_id: str
    method: str
    result: Raw | None = None
    error: Raw | None = None


class OpenServerRequests:
    """The server's requests on one connection that wait for an answer. Ids are `s1`, `s2`, …"""

    __slots__ = ("_count", "_methods")

    def __init__(self) -> None:
        self._count = 0
        self._methods: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._methods)

    def open(self, method: str) -> str:
        """A new id."""
        self._count += 1
        request_id = f"s{self._count}"
        self._methods[request_id] = method
        return request_id

    def close(self, request_id: str) -> bool:
        """End a request without its answer; False when it is not open."""
        return self._methods.pop(request_id, None) is not None

    def answered(self, response: Response) -> ServerAnswer | None:
        """The answer that a response is, or None: its request is unknown or over."""
        try:
            request_id = msgspec.json.decode(response.id)
        except UNREADABLE:  # a number; those asked here have texts
            return None
        method = self._methods.pop(request_id, None) if isinstance(request_id, str) else None
        if method is None:
            return None
        return ServerAnswer(
            request_id,
            method,
            None if isinstance(response.result, UnsetType) else response.result,
            None if isinstance(response.error, UnsetType) else response.error,
        )

    def clear(self) -> None:
        """End them all: the connection is gone."""
        self._methods.clear()
