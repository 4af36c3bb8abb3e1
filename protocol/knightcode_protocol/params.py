"""Params of the methods, named after them. An optional member may be absent or `null`.

Source: app server notes, "Method table".
"""

from typing import Annotated, Literal

from msgspec import Meta

from knightcode_protocol.limits import MAX_LIST_LIMIT, MAX_TOKEN
from knightcode_protocol.objects import ApprovalMode, ModelRef, ThinkingLevel
from knightcode_protocol.wire import Wire

Token = Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]


class WorkspaceChoice(Wire, frozen=True, kw_only=True):
    """Where a new thread shall run."""

    mode: Literal["local"]


class InputImage(Wire, frozen=True, kw_only=True):
    """An image of an input: base64 `data` of a `mimeType`, or an absolute `path` that the server reads."""

    mime_type: str | None = None
    data: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        inline = self.mime_type is not None and self.data is not None
        stray = self.mime_type is not None or self.data is not None
        if self.path is None and not inline:
            raise ValueError("An image needs `mimeType` and `data`, or `path`")
        if self.path is not None and stray:
            raise ValueError("An image has `path` or inline `data`, not both")


InputImages = tuple[
    Annotated[
        InputImage,
        Meta(extra_json_schema={"oneOf": [{"required": ["mimeType", "data"]}, {"required": ["path"]}]}),
    ],
    ...,
]


class ThreadStartParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/start`. What is absent is decided by settings and by the connection's mode."""

    cwd: str
    workspace: WorkspaceChoice | None = None
    approval_mode: ApprovalMode | None = None
    model: ModelRef | None = None
    thinking_level: ThinkingLevel | None = None
    name: str | None = None


class ThreadResumeParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/resume`; without a cursor the newest page is returned."""

    thread_id: str
    cursor: str | None = None


class ThreadReadParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/read`; without a cursor the newest page is returned."""

    thread_id: str
    cursor: str | None = None


class ThreadListParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/list`. `cwd` and `archived` are filters, `limit` is none: it may change."""

    cwd: str | None = None
    archived: bool | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIST_LIMIT)] | None = None


class ThreadUnsubscribeParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/unsubscribe`."""

    thread_id: str


class ThreadSettingsUpdateParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/settings/update`; at least one of the three settings is given."""

    thread_id: str
    model: ModelRef | None = None
    thinking_level: ThinkingLevel | None = None
    approval_mode: ApprovalMode | None = None


class ThreadCompactParams(Wire, frozen=True, kw_only=True):
    """Params of `thread/compact`; the instructions say what the summary has to keep."""

    thread_id: str
    instructions: str | None = None


class TurnStartParams(Wire, frozen=True, kw_only=True):
    """Params of `turn/start`. Both tokens are the client's own and come back to it."""

    thread_id: str
    text: str
    request_id: Token | None = None
    client_message_id: Token | None = None
    images: InputImages | None = None


class TurnSteerParams(Wire, frozen=True, kw_only=True):
    """Params of `turn/steer`; `expectedTurnId` is the turn that the input is meant for."""

    thread_id: str
    expected_turn_id: str
    text: str
    images: InputImages | None = None


class TurnQueueAddParams(Wire, frozen=True, kw_only=True):
    """Params of `turn/queue/add`. The token is the client's own and comes back to it."""

    thread_id: str
    text: str
    client_message_id: Token | None = None
    images: InputImages | None = None


class TurnQueueRemoveParams(Wire, frozen=True, kw_only=True):
    """Params of `turn/queue/remove`."""

    thread_id: str
    queue_id: str


class TurnInterruptParams(Wire, frozen=True, kw_only=True):
    """Params of `turn/interrupt`; without a turn id whatever runs is interrupted."""

    thread_id: str
    turn_id: str | None = None


class ModelListParams(Wire, frozen=True, kw_only=True):
    """Params of `model/list`: none."""


class ServerDiagnosticsParams(Wire, frozen=True, kw_only=True):
    """Params of `server/diagnostics`: none."""
