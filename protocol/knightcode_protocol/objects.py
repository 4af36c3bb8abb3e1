"""The things that params, results and notifications talk about.

Ids are opaque strings. Times of turns and items are Unix milliseconds; those of threads are ISO 8601
in UTC with milliseconds and `Z`.

Source: app server notes, "Objects"; app server, "Threads and turns".
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from knightcode_protocol.handshake import Mode
from knightcode_protocol.wire import Wire

ApprovalMode = Literal["ask", "autoEdit", "fullAccess"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
TurnState = Literal["inProgress", "completed", "interrupted", "failed"]
Decision = Literal["accept", "acceptForSession", "acceptPrefixForSession", "decline", "cancel"]
Count = Annotated[int, Meta(ge=0)]

# --- threads ------------------------------------------------------------------------------------


class StatusNotLoaded(Wire, frozen=True, kw_only=True, tag_field="type", tag="notLoaded"):
    """The thread exists in its session file only."""


class StatusIdle(Wire, frozen=True, kw_only=True, tag_field="type", tag="idle"):
    """Loaded, with no admitted work."""


class StatusActive(Wire, frozen=True, kw_only=True, tag_field="type", tag="active"):
    """Work is admitted. `waitingOn` tells what a person is asked for, `approval` before `dialog`."""

    waiting_on: tuple[Literal["approval", "dialog"], ...]


class StatusSystemError(Wire, frozen=True, kw_only=True, tag_field="type", tag="systemError"):
    """The server had to let go of the thread; stays until the thread is loaded again."""

    message: str


Status = StatusNotLoaded | StatusIdle | StatusActive | StatusSystemError


class LocalWorkspace(Wire, frozen=True, kw_only=True, tag_field="mode", tag="local"):
    """The user's own checkout."""


class WorktreeWorkspace(Wire, frozen=True, kw_only=True, tag_field="mode", tag="worktree"):
    """A git worktree of the thread's own.

    `path` is its root, `projectCwd` the matching directory of the user's checkout; `deleted` is true
    or absent.
    """

    path: str
    project_cwd: str
    base_ref: str
    branch: str | UnsetType = UNSET
    environment: str | UnsetType = UNSET
    deleted: bool = False


Workspace = LocalWorkspace | WorktreeWorkspace


class ModelRef(Wire, frozen=True, kw_only=True):
    """What names a model."""

    provider: str
    id: str


class ThreadModel(Wire, frozen=True, kw_only=True):
    """The model that a thread asks."""

    provider: str
    id: str
    name: str
    context_window: Count


class Thread(Wire, frozen=True, kw_only=True):
    """A conversation. `model` is absent when none is usable, `sessionFile` until it is saved."""

    id: str
    cwd: str
    name: str
    status: Status
    created_at: str
    updated_at: str
    approval_mode: ApprovalMode
    thinking_level: ThinkingLevel
    workspace: Workspace
    archived: bool
    model: ThreadModel | UnsetType = UNSET
    forked_from_id: str | UnsetType = UNSET
    session_file: str | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET


class ThreadSummary(Wire, frozen=True, kw_only=True):
    """A row of a listing. `updatedAt` is when the file was modified.

    `damaged` is true or absent: the file cannot be read as a session, and its name stands in `name`.
    """

    id: str
    cwd: str
    name: str
    status: Status
    created_at: str
    updated_at: str
    archived: bool
    message_count: Count
    forked_from_id: str | UnsetType = UNSET
    workspace_mode: Literal["worktree"] | UnsetType = UNSET
    project_cwd: str | UnsetType = UNSET
    damaged: bool = False


class Warning(Wire, frozen=True, kw_only=True):  # noqa: A001 -- the protocol's word
    """Something that a person should know of and that stopped nothing. Lines and columns from 1."""

    message: str
    source: Literal["settings", "extension", "trust", "server"]
    path: str | UnsetType = UNSET
    line: int | UnsetType = UNSET
    column: int | UnsetType = UNSET


# --- items --------------------------------------------------------------------------------------


class ItemBase(Wire, frozen=True, kw_only=True, tag_field="type"):
    """Common to all items. `index` is the position in the turn; nested calls have `parentItemId` instead."""

    id: str
    index: Count | UnsetType = UNSET
    parent_item_id: str | UnsetType = UNSET
    started_at: int | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET


class ImageRef(Wire, frozen=True, kw_only=True):
    """An image that belongs to a message; `data` is base64."""

    mime_type: str
    data: str


class UserMessage(ItemBase, frozen=True, kw_only=True, tag="userMessage"):
    """What was said to the model, after hooks. `clientMessageId` is on the first live one only."""

    text: str
    images: tuple[ImageRef, ...]
    client_message_id: str | UnsetType = UNSET


class AgentMessage(ItemBase, frozen=True, kw_only=True, tag="agentMessage"):
    """One block of text that the model wrote."""

    text: str


class Reasoning(ItemBase, frozen=True, kw_only=True, tag="reasoning"):
    """One block of the model's reasoning; empty when the provider withheld it."""

    text: str


class TextOutput(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text that a tool gave back."""

    text: str


class ImageOutput(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image that a tool gave back; `data` is base64."""

    mime_type: str
    data: str


ToolOutput = TextOutput | ImageOutput


class FileChange(Wire, frozen=True, kw_only=True):
    """A file that a call changed: absolute path, and a unified diff where there is one."""

    path: str
    kind: Literal["add", "modify", "delete"]
    diff: str | UnsetType = UNSET


class ToolCall(ItemBase, frozen=True, kw_only=True, tag="toolCall"):
    """A call of a tool. `declined` means that it was blocked before it ran.

    `source` is `user` for a shell command that a person typed, else absent.
    """

    tool: str
    input: Any
    status: Literal["pending", "running", "completed", "failed", "declined"]
    output: tuple[ToolOutput, ...]
    label: str | UnsetType = UNSET
    file_changes: tuple[FileChange, ...] | UnsetType = UNSET
    source: Literal["user"] | UnsetType = UNSET


class Compaction(ItemBase, frozen=True, kw_only=True, tag="compaction"):
    """History that was replaced by a summary, which is empty while it is being written."""

    summary: str
    reason: Literal["manual", "threshold", "overflow"]
    status: Literal["running", "completed", "failed", "cancelled"]
    tokens_before: Count | UnsetType = UNSET
    tokens_after: Count | UnsetType = UNSET
    error: str | UnsetType = UNSET


class ExtensionMessage(ItemBase, frozen=True, kw_only=True, tag="extensionMessage"):
    """A message that an extension, named by the message's custom type, put into the conversation."""

    extension: str
    text: str


Item = UserMessage | AgentMessage | Reasoning | ToolCall | Compaction | ExtensionMessage

# --- turns --------------------------------------------------------------------------------------


class TurnError(Wire, frozen=True, kw_only=True):
    """Why a turn failed. In summaries the message is cut to 2,000 characters."""

    message: str
    kind: Literal["auth", "rateLimit", "contextOverflow", "network", "provider", "other"]


class TurnSummary(Wire, frozen=True, kw_only=True):
    """A turn without its items. `completedAt` is absent when no end was recorded."""

    id: str
    thread_id: str
    status: TurnState
    started_at: int
    completed_at: int | UnsetType = UNSET
    error: TurnError | UnsetType = UNSET


class Turn(TurnSummary, frozen=True, kw_only=True):
    """One run of the agent, from its durable start to its end."""

    items: tuple[Item, ...]


# --- queue, usage, models -----------------------------------------------------------------------


class QueuedInput(Wire, frozen=True, kw_only=True):
    """An input that waits for its own turn; `attachments` counts what the text does not show."""

    id: str
    text: str
    attachments: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class Queue(Wire, frozen=True, kw_only=True):
    """What waits: steers not delivered yet, and queued inputs, oldest first."""

    steering: tuple[str, ...]
    follow_up: tuple[QueuedInput, ...]


class TokenUsage(Wire, frozen=True, kw_only=True):
    """Cumulative over everything stored in the thread. `cost` is US dollars.

    `contextTokens` is absent while unknown; `contextWindow` is 0 without a model.
    """

    input: Count
    output: Count
    cache_read: Count
    cache_write: Count
    cost: float
    context_window: Count
    context_tokens: Count | UnsetType = UNSET


class ModelCost(Wire, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class Model(Wire, frozen=True, kw_only=True):
    """A chat model. `available` is false without credentials; `isDefault` is true or absent."""

    provider: str
    provider_name: str
    id: str
    name: str
    api: str
    reasoning: bool
    thinking_levels: tuple[ThinkingLevel, ...]
    input: tuple[Literal["text", "image"], ...]
    context_window: Count
    max_tokens: Count
    cost: ModelCost
    available: bool
    is_default: bool = False


# --- extension UI -------------------------------------------------------------------------------


class UiStatus(Wire, frozen=True, kw_only=True):
    """One status line of an extension."""

    key: str
    text: str


class Widget(Wire, frozen=True, kw_only=True):
    """Lines that an extension shows beside the editor."""

    key: str
    placement: Literal["aboveEditor", "belowEditor"]
    lines: tuple[str, ...]


class Ui(Wire, frozen=True, kw_only=True):
    """All that extensions show beside the transcript. Statuses are sorted by key."""

    statuses: tuple[UiStatus, ...]
    working_visible: bool
    widgets: tuple[Widget, ...]
    title: str | UnsetType = UNSET
    working_message: str | UnsetType = UNSET
