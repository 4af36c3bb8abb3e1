"""Several clients of one host: what they share, who hears what, and who is asked."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from knightcode.client import AppServerClient, ConnectionLost, create_in_process_client
from knightcode_protocol import params
from knightcode_protocol.limits import MAX_PENDING_OUTPUT_BYTES
from knightcode_protocol.notifications import ThreadTurnCompleted
from knightcode_protocol.objects import ApprovalMode
from knightcode_protocol.server_requests import ToolCallRequestApprovalParams, ToolCallRequestApprovalResult
from knightcode_protocol.wire import Wire
from tests.app_server.pipe import PATIENCE, text, tool, write_script
from tests.client.transports import INFO, Listener, no_session_files, open_clients, open_scripted_host

TO_ALL = {"thread/started", "thread/status/changed", "thread/turn/completed", "thread/deleted"}
TURN = [
    "turn/started",
    "item/started",
    "item/completed",
    "item/started",
    "item/reasoning/delta",
    "item/started",
    "item/agentMessage/delta",
    "item/completed",
    "item/completed",
    "thread/tokenUsage/updated",
    "turn/completed",
]
"""What the subscribers alone hear of a turn that thinks and speaks."""


async def resume(client: AppServerClient, thread_id: str) -> None:
    with trio.fail_after(PATIENCE):
        await client.thread_resume(params.ThreadResumeParams(thread_id=thread_id))


async def unsubscribe(client: AppServerClient, thread_id: str) -> str:
    with trio.fail_after(PATIENCE):
        return (await client.thread_unsubscribe(params.ThreadUnsubscribeParams(thread_id=thread_id))).status


async def read_items(client: AppServerClient, thread_id: str) -> list[Any]:
    """The items of the thread's last turn."""
    with trio.fail_after(PATIENCE):
        read = await client.thread_read(params.ThreadReadParams(thread_id=thread_id))
    return list(read.turns[-1].items)


def outcome_of(told: Wire) -> str | None:
    """The outcome that everyone is told of, if this tells of one."""
    return told.turn.status if isinstance(told, ThreadTurnCompleted) else None


class Person:
    """Answers a client's approvals when told to; `asked` are those that came, in order."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.asked: list[ToolCallRequestApprovalParams] = []
        self.withdrawn = 0
        self._answer: str | None = None
        self._news = trio.lowlevel.ParkingLot()
        listener.client.on_request(ToolCallRequestApprovalParams, self._decide)

    async def until_asked(self, times: int) -> None:
        with trio.fail_after(PATIENCE):
            while len(self.asked) < times:
                await self._news.park()

    def say(self, decision: str) -> None:
        """Answer the question that is open, and all to come."""
        self._answer = decision
        self._news.unpark_all()

    async def _decide(self, wanted: ToolCallRequestApprovalParams) -> Wire:
        self.asked.append(wanted)
        self._news.unpark_all()
        try:
            while self._answer is None:
                await self._news.park()
        except trio.Cancelled:
            self.withdrawn += 1
            raise
        return ToolCallRequestApprovalResult(decision=self._answer)


@pytest.mark.proves(
    "HOST-010", "SUBSCRIBE-001", "SUBSCRIBE-002", "SUBSCRIBE-004", "SUBSCRIBE-005", "SUBSCRIBE-006",
    "SUBSCRIBE-008", "SUBSCRIBE-009", "SUBSCRIBE-010", "SUBSCRIBE-011", "SUBSCRIBE-014", "SUBSCRIBE-015",
    "SUBSCRIBE-016", "STATUS-009",
)  # fmt: skip
async def test_clients_share_threads_and_only_those_who_follow_one_hear_its_turns(tmp_path: Path) -> None:
    """App Server: Subscriptions and replacement."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "fail"}, "steps": [{"error": "401 no"}]},
        {"when": {"user": "stop"}, "steps": [{"silence": True}]},
        {"when": {}, "steps": [{"thinking": "Hm."}, text("Hello")]},
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (ana, ben):
        thread_id = await ana.start_thread(tmp_path)
        await ben.until_method("thread/started")
        await ana.run_turn(thread_id)
        await ben.catch_up()
        assert [method for method in ana.methods() if method not in TO_ALL] == TURN
        assert ben.methods() == [method for method in ana.methods() if method in TO_ALL]
        assert ben.heard == [one for one in ana.heard if one[0] in TO_ALL]
        assert await read_items(ben.client, thread_id) == await read_items(ana.client, thread_id)

        await resume(ben.client, thread_id)
        since = len(ana.heard), len(ben.heard)
        await ana.run_turn(thread_id)
        await ben.catch_up()
        assert ben.heard[since[1] :] == ana.heard[since[0] :]

        assert [await unsubscribe(ben.client, thread_id) for _ in range(2)] == [
            "unsubscribed",
            "notSubscribed",
        ]
        since = len(ana.heard), len(ben.heard)
        await ana.run_turn(thread_id, "fail")
        await ana.start_turn(thread_id, "stop")
        with trio.fail_after(PATIENCE):
            await ana.client.turn_interrupt(params.TurnInterruptParams(thread_id=thread_id))
        await ana.until(lambda _, told: outcome_of(told) == "interrupted")
        await ana.until_idle(since=len(ana.heard) - 1)
        await ben.catch_up()
        assert [method for method, _ in ben.heard[since[1] :] if method not in TO_ALL] == []
        outcomes = [outcome for _, told in ben.heard if (outcome := outcome_of(told))]
        assert outcomes == ["completed", "completed", "failed", "interrupted"]

        since = len(ana.heard), len(ben.heard)
        await ben.run_turn(thread_id)
        await ana.catch_up()
        assert [method for method, _ in ben.heard[since[1] :] if method not in TO_ALL] == TURN
        assert ana.heard[since[0] :] == ben.heard[since[1] :]


@pytest.mark.proves("HOST-001", "HOST-004")
async def test_turns_of_two_threads_run_side_by_side_and_are_stored_apart(tmp_path: Path) -> None:
    """App Server: the introduction."""
    script = write_script(
        tmp_path / "script.json",
        {"when": {"user": "slow"}, "steps": [text("wait"), {"silence": True}]},
        {"when": {"user": "quick"}, "steps": [text("done")]},
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (ana, ben):
        slow, quick = await ana.start_thread(tmp_path), await ben.start_thread(tmp_path)
        await ana.start_turn(slow, "slow")
        await ana.until_method("item/agentMessage/delta")
        await ben.run_turn(quick, "quick")
        with trio.fail_after(PATIENCE):
            await ben.client.turn_interrupt(params.TurnInterruptParams(thread_id=slow))
        await ben.until(lambda _, told: outcome_of(told) == "interrupted")
        files = []
        for thread_id, said in ((slow, ["slow", "wait"]), (quick, ["quick", "done"])):
            assert [item.text for item in await read_items(ana.client, thread_id)] == said
            with trio.fail_after(PATIENCE):
                read = await ana.client.thread_read(params.ThreadReadParams(thread_id=thread_id))
            files.append(Path(str(read.thread.session_file)).read_text())
    assert "quick" not in files[0] and "slow" not in files[1]


@pytest.mark.proves("HANDSHAKE-007", "HANDSHAKE-009", "HANDSHAKE-010", "HANDSHAKE-011", "HANDSHAKE-012")
async def test_an_opt_out_holds_for_one_connection_and_for_notifications_alone(tmp_path: Path) -> None:
    """App Server: Handshake."""
    unwanted = (
        "item/reasoning/delta",
        "item/agentMessage/delta",
        "thread/read",
        "thread/start",
        "item/toolCall/requestApproval",
        "no/such",
    )
    script = write_script(
        tmp_path / "script.json",
        [{"thinking": "Hm."}, text("Hello"), tool("bash", command="touch ran")],
        [text("Done")],
    )
    async with (
        open_scripted_host(tmp_path, script) as host,
        create_in_process_client(host, mode="desktop") as terse,
        create_in_process_client(host, mode="desktop") as eager,
    ):
        ana, ben = Listener(terse), Listener(eager)
        await terse.initialize(INFO, opt_out=unwanted)
        await eager.initialize(INFO)
        Person(ana).say("accept")
        thread_id = await ana.start_thread(tmp_path)
        await resume(eager, thread_id)
        await ana.run_turn(thread_id)
        await ben.catch_up()
        items = await read_items(terse, thread_id)
    assert (tmp_path / "ran").exists()
    assert [getattr(item, "text", "") for item in items] == ["go", "Hm.", "Hello", "", "Done"]
    started = [method for method, _ in ben.heard if method != "thread/started"]
    assert [method for method in started if method not in unwanted] == [
        method for method in ana.methods() if method != "thread/started"
    ]
    assert [method for method in started if method in unwanted] == [
        "item/reasoning/delta",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
    ]


@pytest.mark.proves("APPROVAL-003")
@pytest.mark.parametrize(
    ("asked_for", "mode"), [(None, "fullAccess"), ("terminal", "fullAccess"), ("desktop", "ask")]
)
async def test_an_in_process_terminal_runs_tools_unasked_unless_it_says_otherwise(
    tmp_path: Path, asked_for: Any, mode: ApprovalMode
) -> None:
    """App Server: Approvals."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("Done")])
    async with open_scripted_host(tmp_path, script) as host, create_in_process_client(host) as client:
        listener = Listener(client)
        person = Person(listener)
        person.say("decline")
        with trio.fail_after(PATIENCE):
            await client.initialize(INFO, mode=asked_for)
            thread = (await client.thread_start(params.ThreadStartParams(cwd=str(tmp_path)))).thread
            other = await client.thread_start(
                params.ThreadStartParams(cwd=str(tmp_path), approval_mode="ask")
            )
        assert (thread.approval_mode, other.thread.approval_mode) == (mode, "ask")
        await listener.run_turn(thread.id)
        assert len(person.asked) == (mode == "ask")
    assert (tmp_path / "ran").exists() == (mode == "fullAccess")


@pytest.mark.proves("APPROVAL-001", "APPROVAL-024", "APPROVAL-026")
@pytest.mark.rule("S37")
async def test_one_subscriber_is_asked_at_a_time_and_a_question_moves_on_with_an_unsubscribe(
    tmp_path: Path,
) -> None:
    """App Server: Approvals; App Server notes: Routing."""
    script = write_script(
        tmp_path / "script.json",
        *(
            reply
            for n in range(2)
            for reply in (
                [tool("bash", command=f"touch ran-{n}a"), tool("bash", command=f"touch ran-{n}b")],
                [text("Done")],
            )
        ),
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 3) as (ana, ben, eva):
        people = [Person(listener) for listener in (ana, ben, eva)]
        thread_id = await ana.start_thread(tmp_path)
        await resume(ben.client, thread_id)
        await resume(eva.client, thread_id)
        people[1].say("accept")
        await ben.run_turn(thread_id)  # ben began this one, so ben is asked
        assert [len(person.asked) for person in people] == [0, 2, 0]

        since, begun = await ana.catch_up(), len(ben.heard)
        await ana.start_turn(thread_id)
        await people[0].until_asked(1)
        assert [len(person.asked) for person in people] == [1, 2, 0]
        assert await unsubscribe(ana.client, thread_id) == "unsubscribed"
        # Next is who began a turn before; both questions of the turn are answered there.
        await ben.until_method("turn/completed", since=begun)
        await ana.catch_up()
        assert [len(person.asked) for person in people] == [1, 4, 0]
        assert people[0].withdrawn == 1
        assert people[0].asked[0] == people[1].asked[2]
        statuses = [
            told.status.waiting_on
            for method, told in ana.heard[since:]
            if method == "thread/status/changed" and hasattr(told.status, "waiting_on")
        ]
    assert [(tmp_path / f"ran-{n}").exists() for n in ("0a", "0b", "1a", "1b")] == [True] * 4
    assert statuses == [(), ("approval",), (), ("approval",), ()]


@pytest.mark.proves("APPROVAL-025", "APPROVAL-027")
@pytest.mark.rule("S37", "S38")
async def test_a_question_follows_disconnects_to_the_next_subscriber_and_ends_with_the_last(
    tmp_path: Path,
) -> None:
    """App Server: Approvals."""
    script = write_script(
        tmp_path / "script.json",
        [tool("bash", command="touch ran-1")],
        [text("Done")],
        [tool("bash", command="touch ran-2")],
        [text("Done")],
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (eva, ben):
        second = Person(ben)
        async with open_clients(host, 1) as (ana,):
            first = Person(ana)
            thread_id = await ana.start_thread(tmp_path)
            await resume(ben.client, thread_id)
            await ana.start_turn(thread_id)
            await first.until_asked(1)
            assert second.asked == []
        await second.until_asked(1)
        assert second.asked == first.asked
        second.say("accept")
        await eva.until_idle()
        assert (tmp_path / "ran-1").exists()

        async with open_clients(host, 1) as (ana,):
            last = Person(ana)
            assert await unsubscribe(ben.client, thread_id) == "unsubscribed"
            since = len(eva.heard)
            await ana.start_turn(thread_id)
            await last.until_asked(1)
        await eva.until_idle(since=since)
        assert len(second.asked) == 1
        call = (await read_items(eva.client, thread_id))[1]
    assert not (tmp_path / "ran-2").exists()
    assert (call.status, call.output[0].text) == ("declined", "This call was cancelled before it ran.")


async def test_a_client_that_falls_too_far_behind_is_lost_and_its_question_moves_on(tmp_path: Path) -> None:
    """App Server: Limits and client reference; the limit of unread output holds in memory as well."""
    script = write_script(tmp_path / "script.json", [tool("bash", command="touch ran")], [text("Done")])
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 2) as (ana, ben):
        first, second = Person(ana), Person(ben)
        second.say("accept")
        thread_id = await ana.start_thread(tmp_path)
        await resume(ben.client, thread_id)
        await ana.start_turn(thread_id)
        await first.until_asked(1)
        host.connections.all()[0].core.outbox.post(b" " * (MAX_PENDING_OUTPUT_BYTES + 1))
        await ben.until_idle()
        with pytest.raises(ConnectionLost):
            await ana.client.model_list()
        assert (len(host.connections.all()), len(second.asked)) == (1, 1)
    assert (tmp_path / "ran").exists()


@pytest.mark.rule("S47")
async def test_a_turn_goes_on_when_its_client_leaves(tmp_path: Path) -> None:
    """App Server: Subscriptions and replacement; work belongs to the thread, not to who asked for it."""
    script = write_script(
        tmp_path / "script.json", [text("begun"), tool("bash", command="touch ran")], [text("Done")]
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 1) as (eva,):
        async with create_in_process_client(host) as client:
            ana = Listener(client)
            await client.initialize(INFO)
            thread_id = await ana.start_thread(tmp_path)
            await ana.start_turn(thread_id)
        await eva.until_idle()
        assert (await eva.until_method("thread/turn/completed")).turn.status == "completed"
    assert (tmp_path / "ran").exists()


async def test_nobody_is_asked_when_the_client_left_while_its_thread_was_loading(tmp_path: Path) -> None:
    """App Server: Approvals; a connection that is gone follows nothing, whatever it had asked for."""
    script = write_script(
        tmp_path / "script.json",
        [text("Hello")],
        {"when": {"user": "act"}, "steps": [tool("bash", command="touch ran")]},
        {"when": {"toolResult": "bash"}, "steps": [text("Done")]},
    )
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 1) as (ana,):
        thread_id = await ana.start_thread(tmp_path, approval_mode="ask")
        await ana.run_turn(thread_id)
    async with open_scripted_host(tmp_path, script) as host, open_clients(host, 1) as (eva,):
        wanted = params.TurnStartParams(thread_id=thread_id, text="act")
        async with no_session_files(), open_clients(host, 1) as (ben,), trio.open_nursery() as nursery:
            nursery.start_soon(ben.client.turn_start, wanted)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert (await eva.until_method("thread/turn/completed")).turn.status == "completed"
        call = (await read_items(eva.client, thread_id))[1]
    assert not (tmp_path / "ran").exists()
    assert (call.status, call.output[0].text) == ("declined", "This call was cancelled before it ran.")
