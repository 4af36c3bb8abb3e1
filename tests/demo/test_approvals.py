"""What a person may type to answer a question."""

import pytest

from knightcode.demo.approvals import answers_to, choices_text
from knightcode_protocol.objects import Decision


def test_a_decision_is_its_own_name_its_first_letter_and_yes_or_no() -> None:
    assert answers_to(("accept", "decline", "cancel")) == {
        "accept": "accept",
        "a": "accept",
        "y": "accept",
        "yes": "accept",
        "decline": "decline",
        "d": "decline",
        "n": "decline",
        "no": "decline",
        "cancel": "cancel",
        "c": "cancel",
    }


def test_only_what_is_offered_can_be_answered_and_a_shared_letter_is_the_first_ones() -> None:
    assert answers_to(("acceptForSession", "acceptPrefixForSession")) == {
        "acceptforsession": "acceptForSession",
        "acceptprefixforsession": "acceptPrefixForSession",
        "a": "acceptForSession",
    }


@pytest.mark.parametrize(
    ("decisions", "text"),
    [
        (("accept", "decline", "cancel"), "accept (y), decline (n) or cancel (c)"),
        (("accept", "acceptForSession"), "accept (y) or acceptForSession"),
        (("cancel",), "cancel (c)"),
    ],
)
def test_a_person_is_told_each_choice_and_the_short_way_to_say_it(
    decisions: tuple[Decision, ...], text: str
) -> None:
    assert choices_text(decisions) == text
