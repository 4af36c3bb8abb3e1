"""Which model a demo asks."""

import pytest

from knightcode.demo.failures import DemoError
from knightcode.demo.models import choose_model
from knightcode_protocol.objects import Model, ModelCost, ModelRef


def model(name: str, *, available: bool = True, is_default: bool = False) -> Model:
    provider, _, model_id = name.partition("/")
    return Model(
        provider=provider,
        provider_name=provider.title(),
        id=model_id,
        name=model_id,
        api="openai-completions",
        reasoning=False,
        thinking_levels=("off",),
        input=("text",),
        context_window=1,
        max_tokens=1,
        cost=ModelCost(input=0, output=0, cache_read=0, cache_write=0),
        available=available,
        is_default=is_default,
    )


def test_the_default_model_is_taken_when_it_can_be_used() -> None:
    models = [model("a/one"), model("b/two", is_default=True)]
    assert choose_model(None, models) == ModelRef(provider="b", id="two")


@pytest.mark.parametrize(
    "models", [[], [model("a/one", available=False)], [model("a/one", available=False, is_default=True)]]
)
def test_without_a_usable_model_the_script_plays(models: list[Model]) -> None:
    assert choose_model(None, models) is None


def test_a_wanted_model_is_found_also_when_its_id_holds_a_slash() -> None:
    assert choose_model("a/b/c", [model("a/b/c")]) == ModelRef(provider="a", id="b/c")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (
            "a/one",
            "there is no key for a/one; set the API key of A in the environment or in models.json, "
            "or run the demo with --scripted",
        ),
        ("a/two", "there is no model a/two; of a there are a/one"),
        ("b/one", "there is no model b/one; nothing is known of a provider 'b'"),
    ],
)
def test_a_wanted_model_that_cannot_be_asked_is_an_error(wanted: str, said: str) -> None:
    with pytest.raises(DemoError) as failure:
        choose_model(wanted, [model("a/one", available=False)])
    assert str(failure.value) == said
