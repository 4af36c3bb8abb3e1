"""Which model plays the turn: the one asked for, a real one if there is one, else the one in the box.

The server is asked, as any client would: it alone knows keys and models.json.
"""

from collections.abc import Iterable

from knightcode.demo.failures import DemoError
from knightcode_protocol.objects import Model, ModelRef


def choose_model(wanted: str | None, models: Iterable[Model]) -> ModelRef | None:
    """The model for the turn; None means the scripted one.

    Args:
        wanted: `provider/id` from the command line; ids may hold slashes.
        models: as `model/list` has them.
    Raises:
        DemoError: the wanted model does not exist, or has no credentials.
    """
    if wanted is None:
        usable = (model for model in models if model.is_default and model.available)
        return next((ModelRef(provider=model.provider, id=model.id) for model in usable), None)
    provider, _, model_id = wanted.partition("/")
    of_provider = [model for model in models if model.provider == provider]
    for model in of_provider:
        if model.id != model_id:
            continue
        if not model.available:
            raise DemoError(
                f"there is no key for {wanted}; set the API key of {model.provider_name} in the environment "
                "or in models.json, or run the demo with --scripted"
            )
        return ModelRef(provider=provider, id=model_id)
    known = ", ".join(f"{model.provider}/{model.id}" for model in of_provider[:_NAMED])
    hint = f"of {provider} there are {known}" if known else f"nothing is known of a provider {provider!r}"
    raise DemoError(f"there is no model {wanted}; {hint}")


_NAMED = 5
"""Models that an error names: enough to see the spelling."""
