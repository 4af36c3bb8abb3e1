"""The methods that the server serves: one row each, the only place that knows their types.

Source: app server notes, "Method table".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from knightcode_protocol import params, results
from knightcode_protocol.errors import ErrorCode
from knightcode_protocol.handshake import InitializeParams, InitializeResult
from knightcode_protocol.wire import Wire


class Method:
    """One row of the table.

    Attributes:
        errors: codes that the method adds to `errors.COMMON_ERRORS`.
        serializes_on: "thread" when requests for one thread take effect one after the other.
        subscribes: whether the requesting connection becomes a subscriber of the thread.
    """

    __slots__ = ("_decoder", "errors", "name", "params", "result", "serializes_on", "subscribes")

    def __init__(
        self,
        name: str,
        params: type[Wire],
        result: type[Wire],
        *,
        errors: frozenset[ErrorCode] = frozenset(),
        serializes_on: Literal["thread"] | None = None,
        subscribes: bool = False,
    ) -> None:
        self.name = name
        self.params = params
        self.result = result
        self.errors = errors
        self.serializes_on = serializes_on
        self.subscribes = subscribes
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def __repr__(self) -> str:
        return f"Method({self.name!r})"

    def decode_params(self, raw: bytes | msgspec.Raw) -> Any:
        """The params as an instance of `self.params`.

        Raises:
            msgspec.ValidationError: wrong shape or value; the text names the member.
            msgspec.DecodeError: not JSON.
        """
        if self._decoder is None:
            self._decoder = msgspec.json.Decoder(self.params)
        return self._decoder.decode(raw)


_ON_A_THREAD: frozenset[ErrorCode] = frozenset({"threadNotFound"})
_LOADS: frozenset[ErrorCode] = frozenset({"threadNotFound", "threadLockedElsewhere"})

_ROWS = (
    Method("initialize", InitializeParams, InitializeResult),
    Method(
        "thread/start",
        params.ThreadStartParams,
        results.ThreadStartResult,
        errors=frozenset({"authRequired"}),
        subscribes=True,
    ),
    Method(
        "thread/resume",
        params.ThreadResumeParams,
        results.ThreadResumeResult,
        errors=_LOADS | {"invalidCursor"},
        serializes_on="thread",
        subscribes=True,
    ),
    Method(
        "thread/read",
        params.ThreadReadParams,
        results.ThreadReadResult,
        errors=_ON_A_THREAD | {"invalidCursor"},
    ),
    Method(
        "thread/list",
        params.ThreadListParams,
        results.ThreadListResult,
        errors=frozenset({"invalidCursor"}),
    ),
    Method("thread/unsubscribe", params.ThreadUnsubscribeParams, results.ThreadUnsubscribeResult),
    Method(
        "thread/settings/update",
        params.ThreadSettingsUpdateParams,
        results.ThreadSettingsUpdateResult,
        errors=_LOADS | {"authRequired"},
        serializes_on="thread",
    ),
    Method(
        "thread/compact",
        params.ThreadCompactParams,
        results.ThreadCompactResult,
        errors=_LOADS | {"turnInProgress", "authRequired"},
        serializes_on="thread",
    ),
    Method(
        "turn/start",
        params.TurnStartParams,
        results.TurnStartResult,
        errors=_LOADS | {"turnInProgress", "authRequired"},
        serializes_on="thread",
        subscribes=True,
    ),
    Method(
        "turn/steer",
        params.TurnSteerParams,
        results.TurnSteerResult,
        errors=_ON_A_THREAD | {"turnMismatch"},
        serializes_on="thread",
    ),
    Method(
        "turn/queue/add",
        params.TurnQueueAddParams,
        results.TurnQueueAddResult,
        errors=_LOADS,
        serializes_on="thread",
    ),
    Method(
        "turn/queue/remove",
        params.TurnQueueRemoveParams,
        results.TurnQueueRemoveResult,
        errors=_ON_A_THREAD,
        serializes_on="thread",
    ),
    Method(
        "turn/interrupt",
        params.TurnInterruptParams,
        results.TurnInterruptResult,
        errors=_ON_A_THREAD | {"turnMismatch"},
    ),
    Method("model/list", params.ModelListParams, results.ModelListResult),
    Method("server/diagnostics", params.ServerDiagnosticsParams, results.ServerDiagnosticsResult),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})
