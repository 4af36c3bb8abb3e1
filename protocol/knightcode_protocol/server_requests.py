"""Requests that the server sends to one client at a time, and the answers to them.

Source: app server notes, "Server request table"; app server, "Approvals".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from knightcode_protocol.objects import Decision
from knightcode_protocol.wire import Wire


class ToolCallRequestApprovalParams(Wire, frozen=True, kw_only=True):
    """Params of `item/toolCall/requestApproval`.

    `decisions` are the choices to show. `reason` explains the question, `prefix` is present exactly
    when `acceptPrefixForSession` is among the choices.
    """

    thread_id: str
    turn_id: str
    item_id: str
    tool: str
    input: Any
    decisions: tuple[Decision, ...]
    parent_item_id: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    prefix: str | UnsetType = UNSET


class ToolCallRequestApprovalResult(Wire, frozen=True, kw_only=True):
    """A person's decision. One that was not offered counts as decline, so any string is read."""

    decision: str
    message: str | None = None


class ServerRequest:
    """One row: a server request's method, its params and the result that answers it."""

    __slots__ = ("_decoder", "name", "params", "result")

    def __init__(self, name: str, params: type[Wire], result: type[Wire]) -> None:
        self.name = name
        self.params = params
        self.result = result
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def __repr__(self) -> str:
        return f"ServerRequest({self.name!r})"

    def decode_result(self, raw: bytes | msgspec.Raw) -> Any:
        """The client's result as an instance of `self.result`.

        Raises:
            msgspec.DecodeError: wrong shape, or not JSON.
        """
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self.result)
        return self._decoder.decode(raw)


_ROWS = (
    ServerRequest(
        "item/toolCall/requestApproval", ToolCallRequestApprovalParams, ToolCallRequestApprovalResult
    ),
)

SERVER_REQUESTS: Mapping[str, ServerRequest] = MappingProxyType({row.name: row for row in _ROWS})
