"""One full and, where it differs, one small example of every message in the tables."""

from typing import Final

import msgspec

from knightcode_protocol import handshake, notifications, objects, params, results, server_requests
from knightcode_protocol.wire import Wire

MODEL: Final = objects.ThreadModel(provider="p", id="m", name="M", context_window=200_000)
STATUSES: Final = (
    objects.StatusNotLoaded(),
    objects.StatusIdle(),
    objects.StatusActive(waiting_on=()),
    objects.StatusActive(waiting_on=("approval", "dialog")),
    objects.StatusSystemError(message="the session file belongs to another process"),
)
THREAD: Final = objects.Thread(
    id="T",
    cwd="/srv/app",
    name="",
    status=objects.StatusIdle(),
    created_at="2027-04-09T06:31:52.480Z",
    updated_at="2027-04-09T06:31:52.480Z",
    approval_mode="ask",
    thinking_level="medium",
    workspace=objects.LocalWorkspace(),
    archived=False,
)
FULL_THREAD: Final = msgspec.structs.replace(
    THREAD,
    name="Raise the limit",
    status=STATUSES[3],
    workspace=objects.WorktreeWorkspace(
        path="/w/3fa1/app",
        project_cwd="/srv/app",
        base_ref="main",
        branch="b",
        environment="py",
        deleted=True,
    ),
    model=MODEL,
    forked_from_id="S",
    session_file="/home/ana/x.jsonl",
    mode="desktop",
)
SUMMARY: Final = objects.ThreadSummary(
    id="T",
    cwd="/srv/app",
    name="Raise the limit",
    status=objects.StatusNotLoaded(),
    created_at="2027-04-08T09:00:00.000Z",
    updated_at="2027-04-09T06:40:11.020Z",
    archived=False,
    message_count=6,
)
FULL_SUMMARY: Final = msgspec.structs.replace(
    SUMMARY, forked_from_id="S", workspace_mode="worktree", project_cwd="/srv/app", damaged=True
)
WARNING: Final = objects.Warning(message="Project trust is undecided", source="trust")
FULL_WARNING: Final = objects.Warning(message="m", source="settings", path="/s.json", line=3, column=1)
UI: Final = objects.Ui(statuses=(), working_visible=True, widgets=())
FULL_UI: Final = objects.Ui(
    statuses=(objects.UiStatus(key="k", text="t"),),
    working_visible=False,
    widgets=(objects.Widget(key="w", placement="belowEditor", lines=("  one", "")),),
    title="title",
    working_message="thinking hard",
)
USAGE: Final = objects.TokenUsage(
    input=1, output=2, cache_read=3, cache_write=0, cost=0.031, context_window=0
)
FULL_USAGE: Final = msgspec.structs.replace(USAGE, context_tokens=11_870, context_window=200_000)
ITEMS: Final[tuple[objects.Item, ...]] = (
    objects.UserMessage(id="t:0", text="Raise the limit", images=(), completed_at=1),
    objects.UserMessage(
        id="t:0",
        index=0,
        text="",
        images=(objects.ImageRef(mime_type="image/png", data="aGk="),),
        client_message_id="draft-7",
    ),
    objects.Reasoning(id="t:1:r0", index=1, text="", started_at=1, completed_at=2),
    objects.AgentMessage(id="t:1:t0", index=2, text="Done"),
    objects.ToolCall(id="call_81", tool="edit", input={"path": "a"}, status="pending", output=()),
    objects.ToolCall(
        id="call_81/1",
        parent_item_id="call_81",
        tool="bash",
        input=None,
        status="declined",
        output=(
            objects.TextOutput(text="Edited"),
            objects.ImageOutput(mime_type="image/png", data="aGk="),
        ),
        label="Edit a",
        file_changes=(
            objects.FileChange(path="/srv/app/a", kind="modify", diff="--- a\n"),
            objects.FileChange(path="/srv/app/b", kind="delete"),
        ),
        source="user",
    ),
    objects.Compaction(id="t:5", summary="", reason="manual", status="running"),
    objects.Compaction(
        id="t:5",
        summary="s",
        reason="overflow",
        status="failed",
        tokens_before=9,
        tokens_after=1,
        error="no model",
    ),
    objects.ExtensionMessage(id="t:6", extension="plan", text="Plan accepted"),
)
TURN: Final = objects.Turn(id="t", thread_id="T", status="inProgress", started_at=1_807_338_730_000, items=())
FULL_TURN: Final = msgspec.structs.replace(
    TURN,
    status="failed",
    completed_at=1_807_338_741_870,
    error=objects.TurnError(message="quota", kind="rateLimit"),
    items=ITEMS,
)
TURN_SUMMARY: Final = objects.TurnSummary(id="t", thread_id="T", status="interrupted", started_at=1)
QUEUE: Final = objects.Queue(steering=(), follow_up=())
FULL_QUEUE: Final = objects.Queue(
    steering=("stop there",),
    follow_up=(
        objects.QueuedInput(id="q-1", text="then the docs", attachments=1),
        objects.QueuedInput(id="q-2", text="and the tests"),
    ),
)
CATALOGUE_MODEL: Final = objects.Model(
    provider="p",
    provider_name="P",
    id="m",
    name="M",
    api="scripted",
    reasoning=True,
    thinking_levels=("off", "high"),
    input=("text", "image"),
    context_window=200_000,
    max_tokens=16_384,
    cost=objects.ModelCost(input=3, output=15, cache_read=0.3, cache_write=3.75),
    available=True,
    is_default=True,
)
MODEL_REF: Final = objects.ModelRef(provider="p", id="m")

PARAMS: Final[dict[str, tuple[Wire, ...]]] = {
    "initialize": (
        handshake.InitializeParams(client_info=handshake.ClientInfo(name="n", version="1")),
        handshake.InitializeParams(
            client_info=handshake.ClientInfo(name="n", version="1", title="N"),
            mode="terminal",
            capabilities=handshake.Capabilities(opt_out_notifications=("item/started",), mode="desktop"),
        ),
    ),
    "thread/start": (
        params.ThreadStartParams(cwd="/srv/app"),
        params.ThreadStartParams(
            cwd="~/app",
            workspace=params.WorkspaceChoice(mode="local"),
            approval_mode="autoEdit",
            model=MODEL_REF,
            thinking_level="high",
            name="Limits",
        ),
    ),
    "thread/resume": (params.ThreadResumeParams(thread_id="T", cursor="c"),),
    "thread/read": (params.ThreadReadParams(thread_id="T"),),
    "thread/list": (
        params.ThreadListParams(),
        params.ThreadListParams(cwd="/srv/app", archived=False, cursor="c", limit=200),
    ),
    "thread/unsubscribe": (params.ThreadUnsubscribeParams(thread_id="T"),),
    "thread/settings/update": (
        params.ThreadSettingsUpdateParams(
            thread_id="T", model=MODEL_REF, thinking_level="off", approval_mode="fullAccess"
        ),
    ),
    "thread/compact": (
        params.ThreadCompactParams(thread_id="T"),
        params.ThreadCompactParams(thread_id="T", instructions="Keep the names of files"),
    ),
    "turn/start": (
        params.TurnStartParams(thread_id="T", text=""),
        params.TurnStartParams(
            thread_id="T",
            text="Explain this repository",
            request_id="r" * 128,
            client_message_id="d",
            images=(
                params.InputImage(path="/absolute/shot.png"),
                params.InputImage(mime_type="image/png", data="aGk="),
            ),
        ),
    ),
    "turn/steer": (
        params.TurnSteerParams(thread_id="T", expected_turn_id="t", text="stop there"),
        params.TurnSteerParams(
            thread_id="T",
            expected_turn_id="t",
            text="",
            images=(params.InputImage(path="/absolute/shot.png"),),
        ),
    ),
    "turn/queue/add": (
        params.TurnQueueAddParams(thread_id="T", text="then the docs"),
        params.TurnQueueAddParams(
            thread_id="T",
            text="",
            client_message_id="d" * 128,
            images=(params.InputImage(mime_type="image/png", data="aGk="),),
        ),
    ),
    "turn/queue/remove": (params.TurnQueueRemoveParams(thread_id="T", queue_id="q-1"),),
    "turn/interrupt": (params.TurnInterruptParams(thread_id="T", turn_id="t"),),
    "model/list": (params.ModelListParams(),),
    "server/diagnostics": (params.ServerDiagnosticsParams(),),
}

RESULTS: Final[dict[str, tuple[Wire, ...]]] = {
    "initialize": (
        handshake.InitializeResult(
            server_info=handshake.ServerIdentity(name="knightcode", version="0.1.0"),
            platform=handshake.Platform(os="linux", arch="x64", home_dir="/home/ana"),
        ),
    ),
    "thread/start": (
        results.ThreadStartResult(thread=THREAD, warnings=(), ui=UI),
        results.ThreadStartResult(thread=FULL_THREAD, warnings=(WARNING, FULL_WARNING), ui=FULL_UI),
    ),
    "thread/resume": (
        results.ThreadResumeResult(thread=THREAD, warnings=(), turns=(), queue=QUEUE, usage=USAGE, ui=UI),
        results.ThreadResumeResult(
            thread=FULL_THREAD,
            warnings=(WARNING,),
            turns=(FULL_TURN,),
            queue=FULL_QUEUE,
            usage=FULL_USAGE,
            ui=FULL_UI,
            next_cursor="c",
            running_turn=TURN,
        ),
    ),
    "thread/read": (
        results.ThreadReadResult(thread=THREAD, turns=()),
        results.ThreadReadResult(thread=THREAD, turns=(FULL_TURN,), next_cursor="c"),
    ),
    "thread/list": (
        results.ThreadListResult(threads=()),
        results.ThreadListResult(threads=(SUMMARY, FULL_SUMMARY), next_cursor="c"),
    ),
    "thread/unsubscribe": (results.ThreadUnsubscribeResult(status="notSubscribed"),),
    "thread/settings/update": (results.ThreadSettingsUpdateResult(thread=THREAD),),
    "thread/compact": (
        results.ThreadCompactResult(status="completed"),
        results.ThreadCompactResult(status="cancelled"),
    ),
    "turn/start": (
        results.TurnStartResult(status="handled", thread_id="T"),
        results.TurnStartResult(status="started", thread_id="T", request_id="r1"),
    ),
    "turn/steer": (results.TurnSteerResult(),),
    "turn/queue/add": (results.TurnQueueAddResult(queue_id="q-1"),),
    "turn/queue/remove": (
        results.TurnQueueRemoveResult(removed=True),
        results.TurnQueueRemoveResult(removed=False),
    ),
    "turn/interrupt": (results.TurnInterruptResult(),),
    "model/list": (results.ModelListResult(models=(CATALOGUE_MODEL,)),),
    "server/diagnostics": (
        results.ServerDiagnosticsResult(
            rss_bytes=48_000_000,
            heap_bytes=48_000_000,
            loaded_threads=2,
            loading_threads=0,
            payload_files=0,
            payload_bytes=0,
            inactive_factories=0,
            uptime_ms=1_500,
            listing_files_opened=7,
            listing_bytes_scanned=912_000,
        ),
    ),
}

NOTIFICATIONS: Final[tuple[Wire, ...]] = (
    notifications.ThreadStarted(thread=FULL_THREAD),
    *(notifications.ThreadStatusChanged(thread_id="T", status=status) for status in STATUSES),
    notifications.ThreadDeleted(thread_id="T"),
    notifications.ThreadTurnCompleted(turn=TURN_SUMMARY),
    notifications.ThreadSettingsUpdated(
        thread_id="T", thinking_level="off", approval_mode="ask", model=MODEL
    ),
    notifications.TokenUsageUpdated(thread_id="T", turn_id="t", usage=FULL_USAGE),
    notifications.TurnStarted(thread_id="T", turn=TURN, request_id="r1"),
    notifications.TurnCompleted(thread_id="T", turn=TURN_SUMMARY),
    notifications.TurnRetry(
        thread_id="T",
        turn_id="t",
        state="waiting",
        attempt=1,
        max_attempts=3,
        delay_ms=2_000,
        message="529 overloaded",
    ),
    notifications.TurnRetry(thread_id="T", turn_id="t", state="ended", attempt=1, success=True),
    notifications.TurnRetry(
        thread_id="T", turn_id="t", state="ended", attempt=3, success=False, message="529 overloaded"
    ),
    notifications.TurnQueueUpdated(thread_id="T", steering=QUEUE.steering, follow_up=QUEUE.follow_up),
    notifications.TurnQueueUpdated(
        thread_id="T", steering=FULL_QUEUE.steering, follow_up=FULL_QUEUE.follow_up
    ),
    *(notifications.ItemStarted(thread_id="T", turn_id="t", item=item) for item in ITEMS),
    *(notifications.ItemCompleted(thread_id="T", turn_id="t", item=item) for item in ITEMS),
    notifications.ItemRemoved(thread_id="T", turn_id="t", item_id="t:1:t0"),
    notifications.AgentMessageDelta(thread_id="T", turn_id="t", item_id="t:1:t0", delta="Do"),
    notifications.ReasoningDelta(thread_id="T", turn_id="t", item_id="t:1:r0", delta="Hm"),
    notifications.ToolCallOutputDelta(thread_id="T", turn_id="t", item_id="call_81", delta="ok\n"),
    notifications.ToolCallOutputDelta(
        thread_id="T", turn_id="t", item_id="call_81", delta="tail", replace=True
    ),
    notifications.ServerRequestCancelled(thread_id="T", request_id="s1"),
    notifications.WarningNotification(thread_id="T", message="m", source="extension", path="/e.py"),
    notifications.ErrorNotification(code="invalidParams", message="m", data={"reason": "lineTooLong"}),
    notifications.ErrorNotification(
        code="authRequired",
        message="m",
        thread_id="T",
        turn_id="t",
        queue_id="q-1",
        client_message_id="draft-9",
    ),
)

SERVER_REQUESTS: Final[dict[str, tuple[Wire, ...]]] = {
    "item/toolCall/requestApproval": (
        server_requests.ToolCallRequestApprovalParams(
            thread_id="T",
            turn_id="t",
            item_id="call_7",
            tool="edit",
            input={},
            decisions=("accept", "acceptForSession", "decline", "cancel"),
        ),
        server_requests.ToolCallRequestApprovalParams(
            thread_id="T",
            turn_id="t",
            item_id="call_7/1",
            parent_item_id="call_7",
            tool="bash",
            input={"command": "git status --short"},
            decisions=("accept", "acceptPrefixForSession", "decline", "cancel"),
            reason="outside the workspace",
            prefix="git status",
        ),
    ),
}

ANSWERS: Final[dict[str, tuple[Wire, ...]]] = {
    "item/toolCall/requestApproval": (
        server_requests.ToolCallRequestApprovalResult(decision="accept"),
        server_requests.ToolCallRequestApprovalResult(decision="decline", message="Use the local file"),
    ),
}
