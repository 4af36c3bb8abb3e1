"""Inputs that wait, without a thread around them.

Source: App Server notes, "Steers and queue".
"""

import pytest

from knightcode.threads.notices import ConnectionId
from knightcode.threads.queue import QUEUE_CHARACTERS, InputQueue, QueuedInput
from knightcode.threads.turn import ThreadError, TurnInput


def waiting(text: str, answers: list[str]) -> QueuedInput:
    return QueuedInput(input=TurnInput(text), connection=ConnectionId(1), accepted=answers.append)


def test_an_input_that_is_dropped_is_answered_and_nobody_reads_its_images_any_more() -> None:
    queue, answers = InputQueue(), list[str]()
    one = waiting("one", answers)
    queue.add(one)
    assert (queue.take(), one.waits.thrown) == (None, False)
    assert queue.drop()
    assert (answers, one.waits.thrown, bool(queue)) == ([one.id], True, False)


def test_an_input_keeps_its_place_while_it_is_checked() -> None:
    queue, answers = InputQueue(), list[str]()
    one, two = waiting("one", answers), waiting("two", answers)
    queue.add(one)
    queue.add(two)
    queue.make_ready(two)
    assert (queue.visible(), queue.take()) == ((two,), None)
    queue.make_ready(one)
    assert (queue.take(), queue.take(), queue.take()) == (one, two, None)
    assert answers == [two.id, one.id]


def test_all_texts_together_are_bounded_because_each_change_sends_them_all() -> None:
    queue = InputQueue()
    queue.add(waiting("x" * QUEUE_CHARACTERS, []))
    with pytest.raises(ThreadError) as refused:
        queue.add(waiting("y", []))
    assert (refused.value.code, refused.value.data) == ("invalidParams", {"reason": "queueFull"})
