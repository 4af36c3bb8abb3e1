"""Which model, level and approval mode a thread begins with.

Source: models and providers, "Choosing the model"; App Server notes, "The gate".
"""

from typing import Literal

import attrs

from knightcode.gates.approvals import MODES, ApprovalMode
from knightcode.messages import ThinkingLevel
from knightcode.models.model import Model
from knightcode.sessions.entries import CustomEntry
from knightcode.threads.notices import ThreadWarning
from knightcode.threads.services import ModelCatalogue
from knightcode.threads.turn import ThreadError

APPROVAL_MODE = "knightcode.approvalMode"
DEFAULT_LEVEL: ThinkingLevel = "medium"


def default_mode(connection_mode: Literal["desktop", "terminal"], *, in_process: bool) -> ApprovalMode:
    """What holds when the branch says nothing: only an in-process terminal needs no asking."""
    return "fullAccess" if connection_mode == "terminal" and in_process else "ask"


def stored_mode(entry: CustomEntry | None) -> ApprovalMode | None:
    """The mode that the branch's last entry of this kind says, None without one; unreadable is `ask`."""
    if entry is None:
        return None
    mode = entry.data.get("mode") if isinstance(entry.data, dict) else None
    return next((known for known in MODES if known == mode), "ask")


@attrs.frozen
class Chosen:
    """A model and what had to be said about the choice."""

    model: Model | None
    warnings: tuple[ThreadWarning, ...] = ()


def pick_model(catalogue: ModelCatalogue, provider: str, model_id: str) -> Model:
    """The model that a client named.

    Raises:
        ThreadError: `invalidParams` for an unknown model, `authRequired` for one without credentials.
    """
    model = catalogue.find(provider, model_id)
    if model is None:
        raise ThreadError(
            "invalidParams",
            f"There is no model {provider}/{model_id}; model/list has the known ones",
            {"reason": "unknownModel"},
        )
    if not catalogue.available(model):
        raise ThreadError(
            "authRequired",
            f"The model {provider}/{model_id} has no credentials; set its API key and try again",
            {"reason": "noCredentials", "provider": provider},
        )
    return model


def saved_model(catalogue: ModelCatalogue, key: tuple[str, str] | None) -> Chosen:
    """The model that a saved session used, or what takes its place, with a warning."""
    fallback = catalogue.default_model()
    if key is None:
        return Chosen(fallback)
    model = catalogue.find(*key)
    if model is not None and catalogue.available(model):
        return Chosen(model)
    why = "does not exist any more" if model is None else "has no credentials"
    instead = (
        "no model is selected" if fallback is None else f"{fallback.provider}/{fallback.id} is used instead"
    )
    return Chosen(
        fallback, (ThreadWarning(f"The saved model {key[0]}/{key[1]} {why}; {instead}", "settings"),)
    )
