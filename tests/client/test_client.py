"""The client's promises, kept over a child process and over memory alike."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from knightcode.client import AppServerError, ConnectionLost
from knightcode_protocol import params, results
from knightcode_protocol.handshake import InitializeResult
from knightcode_protocol.notifications import AgentMessageDelta, ThreadTurnCompleted, TurnQueueUpdated
from knightcode_protocol.objects import ModelRef, QueuedInput
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams, ToolCallRequestApprovalResult
from knightcode_protocol.wire import Wire
from tests.app_server.pipe import PATIENCE, text, tool, write_script
from tests.client.transports import INFO, TRANSPORTS, Link, Listener, Transport, name_of

both = pytest.mark.parametrize("transport", TRANSPORTS, ids=name_of)
ACCEPT = ToolCallRequestApprovalResult(decision="accept")


async def greeted(link: Link) -> Listener:
    """The client's ear, after the handshake."""
    listener = Listener(link.client)
    with trio.fail_after(PATIENCE):
        await link.client.initialize(INFO)
    return listener


@pytest.mark.proves("CLIENT-017", "CLIENT-021", "THREAD-003", "MODEL-001")
@both
async def test_every_method_takes_its_params_and_gives_its_result(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Limits and client reference."""
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with transport(tmp_path, script) as link:
        listener, client = await greeted(link), link.client
        with trio.fail_after(PATIENCE):
            assert isinstance(client.server, InitializeResult)
            assert client.server.server_info.name == "knightcode"
            started = await client.thread_start(params.ThreadStartParams(cwd=str(tmp_path), name="Talk"))
            assert isinstance(started, results.ThreadStartResult)
            thread_id = started.thread.id
            assert (started.thread.name, started.warnings) == ("Talk", ())
            models = await client.model_list()
            assert [(model.provider, model.id) for model in models.models if model.available] == [
                ("scripted", "scripted")
            ]
            changed = await client.thread_settings_update(
                params.ThreadSettingsUpdateParams(thread_id=thread_id, approval_mode="autoEdit")
            )
            assert changed.thread.approval_mode == "autoEdit"
            turn = await client.turn_start(
                params.TurnStartParams(thread_id=thread_id, text="Hi", request_id="r1")
            )
            assert turn == results.TurnStartResult(status="started", thread_id=thread_id, request_id="r1")
            await listener.until_idle()
            assert await client.turn_interrupt(params.TurnInterruptParams(thread_id=thread_id)) == (
                results.TurnInterruptResult()
            )
            read = await client.thread_read(params.ThreadReadParams(thread_id=thread_id))
            resumed = await client.thread_resume(params.ThreadResumeParams(thread_id=thread_id))
            assert read.turns == resumed.turns
            assert [getattr(item, "text", None) for item in read.turns[0].items] == ["Hi", "Hello"]
            listed = await client.thread_list(params.ThreadListParams())
            assert [row.id for row in listed.threads] == [thread_id]
            left = [
                (await client.thread_unsubscribe(params.ThreadUnsubscribeParams(thread_id=thread_id))).status
                for _ in range(2)
            ]
            assert left == ["unsubscribed", "notSubscribed"]


@pytest.mark.proves("CLIENT-017")
@both
async def test_a_running_turn_is_steered_and_inputs_are_queued_behind_it(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Threads and turns; Limits and client reference."""
    script = write_script(tmp_path / "script.json", {"when": {}, "steps": [text("So"), {"silence": True}]})
    async with transport(tmp_path, script) as link:
        listener, client = await greeted(link), link.client
        queues: list[TurnQueueUpdated] = []
        client.on_notification(TurnQueueUpdated, queues.append)
        thread_id = await listener.start_thread(tmp_path)
        await listener.start_turn(thread_id)
        turn_id = (await listener.until_method("turn/started")).turn.id
        with trio.fail_after(PATIENCE):
            queued = await client.turn_queue_add(
                params.TurnQueueAddParams(thread_id=thread_id, text="then the docs", client_message_id="m")
            )
            gone = params.TurnQueueRemoveParams(thread_id=thread_id, queue_id=queued.queue_id)
            removed = [(await client.turn_queue_remove(gone)).removed for _ in range(2)]
            steer = params.TurnSteerParams(thread_id=thread_id, expected_turn_id=turn_id, text="stop there")
            assert await client.turn_steer(steer) == results.TurnSteerResult()
            with pytest.raises(AppServerError) as busy:
                await client.thread_compact(params.ThreadCompactParams(thread_id=thread_id))
            told = await client.server_diagnostics()
            await client.turn_interrupt(params.TurnInterruptParams(thread_id=thread_id))
            await listener.until_idle()
    assert removed == [True, False]
    assert (busy.value.code, busy.value.data) == ("turnInProgress", {"turnId": turn_id})
    assert (told.loaded_threads, told.loading_threads) == (1, 0)
    row = QueuedInput(id=queued.queue_id, text="then the docs")
    assert queues == [
        TurnQueueUpdated(thread_id=thread_id, steering=steering, follow_up=follow_up)
        for steering, follow_up in (((), (row,)), ((), ()), (("stop there",), ()), ((), ()))
    ]


@pytest.mark.proves("CLIENT-019")
@both
async def test_a_refusal_has_the_code_message_and_data_that_were_sent(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Limits and client reference (AppServerError)."""
    script = write_script(tmp_path / "script.json", [{"silence": True}])
    async with transport(tmp_path, script) as link:
        with trio.fail_after(PATIENCE):
            with pytest.raises(AppServerError) as early:
                await link.client.model_list()
            listener = await greeted(link)
            wanted = ModelRef(provider="scripted", id="none")
            with pytest.raises(AppServerError) as unknown:
                await link.client.thread_start(params.ThreadStartParams(cwd=str(tmp_path), model=wanted))
            thread_id = await listener.start_thread(tmp_path)
            await listener.start_turn(thread_id)
            running = (await listener.until_method("turn/started")).turn.id
            with pytest.raises(AppServerError) as mismatch:
                await link.client.turn_interrupt(
                    params.TurnInterruptParams(thread_id=thread_id, turn_id="other")
                )
    assert (early.value.code, early.value.data) == ("notInitialized", None)
    assert (unknown.value.code, unknown.value.data) == ("invalidParams", {"reason": "unknownModel"})
    assert unknown.value.message.startswith("There is no model scripted/none")
    assert str(unknown.value) == f"invalidParams: {unknown.value.message}"
    assert (mismatch.value.code, mismatch.value.data) == ("turnMismatch", {"runningTurnId": running})


@pytest.mark.proves("CLIENT-017", "CLIENT-021")
@both
async def test_notifications_reach_their_handlers_in_the_order_of_their_sending(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Threads and turns; one handler that fails takes nothing from the others."""
    script = write_script(tmp_path / "script.json", [text("abcdef", chunk=1)], [text("again", chunk=1)])
    async with transport(tmp_path, script) as link:
        deltas: list[str] = []

        def fail(_: ThreadTurnCompleted) -> None:
            raise RuntimeError("a mistake in a handler")

        link.client.on_notification(ThreadTurnCompleted, fail)
        stop = link.client.on_notification(AgentMessageDelta, lambda note: deltas.append(note.delta))
        listener = await greeted(link)
        thread_id = await listener.start_thread(tmp_path)
        await listener.run_turn(thread_id)
        stop()
        heard = listener.methods()
        await listener.run_turn(thread_id)
    assert deltas == list("abcdef")
    assert heard == [
        "thread/started",
        "thread/status/changed",
        "turn/started",
        "item/started",
        "item/completed",
        "item/started",
        *["item/agentMessage/delta"] * 6,
        "item/completed",
        "thread/tokenUsage/updated",
        "turn/completed",
        "thread/turn/completed",
        "thread/status/changed",
    ]


@pytest.mark.proves("CLIENT-017", "CLIENT-021")
@both
async def test_server_requests_are_answered_by_their_handler_and_declined_without_one(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Approvals; App Server notes: In-process client and host."""
    replies = [[tool("bash", command=f"touch ran-{n}")] for n in range(3)]
    script = write_script(
        tmp_path / "script.json", *(reply for one in replies for reply in (one, [text("So.")]))
    )
    async with transport(tmp_path, script) as link:
        listener = await greeted(link)
        thread_id = await listener.start_thread(tmp_path, approval_mode="ask")
        await listener.run_turn(thread_id)
        assert not (tmp_path / "ran-0").exists()

        async def accept(wanted: ToolCallRequestApprovalParams) -> Wire:
            assert (wanted.thread_id, wanted.tool) == (thread_id, "bash")
            assert wanted.input == {"command": "touch ran-1"} and wanted.decisions[0] == "accept"
            await trio.lowlevel.checkpoint()
            return ACCEPT

        link.client.on_request(ToolCallRequestApprovalParams, accept)
        await listener.run_turn(thread_id)
        assert (tmp_path / "ran-1").exists()
        await listener.run_turn(thread_id)  # the handler fails: it expects another command
        assert not (tmp_path / "ran-2").exists()
        read = await link.client.thread_read(params.ThreadReadParams(thread_id=thread_id))
    items: list[Any] = [turn.items[1] for turn in read.turns]
    assert [item.status for item in items] == ["declined", "completed", "declined"]


@pytest.mark.proves("APPROVAL-028")
@both
async def test_a_handler_whose_request_is_taken_back_is_cancelled(
    tmp_path: Path, transport: Transport
) -> None:
    """App Server: Approvals (serverRequest/cancelled); a question that is over is not shown any longer."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")])
    async with transport(tmp_path, script) as link:
        listener = await greeted(link)
        asked, taken_back = trio.Event(), trio.Event()

        async def think(_: ToolCallRequestApprovalParams) -> Wire:
            asked.set()
            try:
                await trio.sleep_forever()
            finally:
                taken_back.set()

        link.client.on_request(ToolCallRequestApprovalParams, think)
        thread_id = await listener.start_thread(tmp_path, approval_mode="ask")
        await listener.start_turn(thread_id)
        with trio.fail_after(PATIENCE):
            await asked.wait()
            before = len(listener.heard)
            await link.client.turn_interrupt(params.TurnInterruptParams(thread_id=thread_id))
            await taken_back.wait()
            await listener.until_idle(since=before)
            await link.client.model_list()
    assert not (tmp_path / "ran").exists()


@both
async def test_a_handler_whose_server_died_is_cancelled(tmp_path: Path, transport: Transport) -> None:
    """App Server: Approvals; a question that nobody waits for is not shown any longer."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")])
    async with transport(tmp_path, script) as link:
        listener = await greeted(link)
        asked, cancelled = trio.Event(), trio.Event()

        async def think(_: ToolCallRequestApprovalParams) -> Wire:
            asked.set()
            try:
                await trio.sleep_forever()
            finally:
                cancelled.set()

        link.client.on_request(ToolCallRequestApprovalParams, think)
        await listener.start_turn(await listener.start_thread(tmp_path, approval_mode="ask"))
        with trio.fail_after(PATIENCE):
            await asked.wait()
            link.die()
            await cancelled.wait()
    assert not (tmp_path / "ran").exists()


@both
async def test_waiting_requests_learn_that_the_server_died(tmp_path: Path, transport: Transport) -> None:
    """App Server notes: In-process client and host; no request waits for an answer that cannot come."""
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with transport(tmp_path, script) as link:
        await greeted(link)
        told: list[str] = []

        async def list_threads() -> None:
            with pytest.raises(ConnectionLost) as lost:
                await link.client.thread_list(params.ThreadListParams())
            told.append(str(lost.value))

        with trio.fail_after(PATIENCE):
            async with link.stall(), trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(list_threads)
                await trio.testing.wait_all_tasks_blocked()
                assert told == []
                link.die()
            assert told == ["The server ended before it answered"] * 3
            with pytest.raises(ConnectionLost, match="model/list was not sent"):
                await link.client.model_list()


@both
async def test_a_request_that_is_given_up_leaves_the_connection_usable(
    tmp_path: Path, transport: Transport
) -> None:
    """Given up before it is sent, while it waits, and when its answer comes after all."""
    script = write_script(tmp_path / "script.json", [text("Hello")])
    async with transport(tmp_path, script) as link:
        listener = await greeted(link)
        thread_id = await listener.start_thread(tmp_path)
        await listener.run_turn(thread_id)
        with trio.fail_after(PATIENCE):
            with trio.CancelScope() as never_sent:
                never_sent.cancel()
                await link.client.thread_list(params.ThreadListParams())
            assert never_sent.cancelled_caught
            async with link.stall(), trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(link.client.thread_list, params.ThreadListParams())
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            for _ in range(3):
                listed = await link.client.thread_list(params.ThreadListParams())
                assert [row.id for row in listed.threads] == [thread_id]


@both
async def test_an_error_in_the_block_ends_the_connection_and_comes_out(
    tmp_path: Path, transport: Transport
) -> None:
    """Also with a turn that runs, and a request that waits."""
    script = write_script(tmp_path / "script.json", [text("Hello"), {"silence": True}])
    opened: list[Link] = []
    with trio.fail_after(PATIENCE), pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        async with transport(tmp_path, script) as link:
            opened.append(link)
            listener = await greeted(link)
            await listener.start_turn(await listener.start_thread(tmp_path))
            await listener.until_method("item/agentMessage/delta")
            raise RuntimeError("a mistake in the block")
    with pytest.raises(ConnectionLost):
        await opened[0].client.model_list()
