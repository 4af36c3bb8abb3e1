"""The models that can be chosen: built-in ones, those of models.json, and a scripted one on request.

Cheap to build, so it may be built at start-up and again on every reload. Must not import the HTTP library.

Source: models and providers, "Start-up order", "models.json".
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from knightcode.models.auth import Auth, ProviderKeys
from knightcode.models.catalog import Provider, load_catalog, models_of
from knightcode.models.custom import CompositionError, ProviderDef, compose, read_models_file
from knightcode.models.model import Model

if TYPE_CHECKING:
    from knightcode.models.script import ScriptedConversation

MODELS_FILE: Final = "models.json"
ADAPTER_APIS: Final = frozenset({"anthropic-messages", "openai-completions", "scripted"})
"""The apis that requests can be sent to; models of others are listed all the same."""

_GIVEN_SCRIPT: Final = "script:given"


@attrs.define(eq=False)
class ModelRegistry:
    """What is known of models and their providers. Not changed once it is built.

    Attributes:
        models: chat models, built-in providers first, each provider's in its own order.
        providers: in the order in which a model is chosen.
        warnings: what of models.json or the script does not count, and why, with the file's path.
        auth: the credentials of the providers.
        scripted: the model that plays a script, if one was asked for; the first choice then.
        scripts: scripts that are no files, by the base URL that names them.
    """

    models: tuple[Model, ...]
    providers: tuple[Provider, ...]
    auth: Auth
    warnings: tuple[str, ...] = ()
    scripted: Model | None = None
    scripts: Mapping[str, "ScriptedConversation"] = attrs.field(factory=dict, repr=False)
    _by_key: Mapping[tuple[str, str], Model] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._by_key = {model.key: model for model in self.models}

    @classmethod
    def load(
        cls,
        agent_dir: Path,
        environ: Mapping[str, str],
        scripted: "Path | ScriptedConversation | None" = None,
    ) -> "ModelRegistry":
        """The registry of an agent directory. Never fails: what cannot be used becomes a warning.

        Args:
            environ: where keys are looked up; kept, not copied.
            scripted: the script of a model of its own, as a file or as read from elsewhere.
        """
        path = agent_dir / MODELS_FILE
        file = read_models_file(path)
        warnings = [file.problem] if file.problem else []
        builtin = {provider.id: provider for provider in load_catalog()}
        providers: list[Provider] = []
        models: list[Model] = []
        keys: dict[str, ProviderKeys] = {}
        for provider_id in [*builtin, *(name for name in file.providers if name not in builtin)]:
            known, entry = builtin.get(provider_id), file.providers.get(provider_id)
            try:
                provider, of_provider = _composed(provider_id, entry, known)
            except CompositionError as error:
                warnings.append(f"{path}: {error}")
                if known is None:
                    continue
                provider, of_provider, entry = known, models_of(known), None
            providers.append(provider)
            models += [_script_path_resolved(model, agent_dir) for model in of_provider]
            keys[provider_id] = _keys(provider, entry)
        script_model: Model | None = None
        scripts: dict[str, ScriptedConversation] = {}
        if scripted is not None:
            script_model, scripts = _scripted_model(scripted, warnings)
            models.append(script_model)
        auth = Auth(environ, keys)
        return cls(tuple(models), tuple(providers), auth, tuple(warnings), script_model, scripts)

    def find(self, provider: str, model_id: str) -> Model | None:
        """The model of that provider and id."""
        return self._by_key.get((provider, model_id))

    def available(self, model: Model) -> bool:
        """Whether the model's provider is configured. No command is run to find out."""
        return self.auth.available(model)

    def default_model(
        self, default_provider: str | None = None, default_model: str | None = None
    ) -> Model | None:
        """The model to begin with when none was asked for and none is saved.

        The scripted model if there is one, since it was asked for; the saved default if it is known
        and available; the first available model that is its provider's default; the first available
        one. The last two leave out models whose api cannot be spoken.
        """
        if self.scripted is not None:
            return self.scripted
        if default_provider and default_model:
            saved = self.find(default_provider, default_model)
            if saved is not None and self.available(saved):
                return saved
        defaults = (self.find(provider.id, provider.default_model or "") for provider in self.providers)
        return self._first_usable(defaults) or self._first_usable(self.models)

    def _first_usable(self, models: Iterable[Model | None]) -> Model | None:
        return next(
            (model for model in models if model and model.api in ADAPTER_APIS and self.available(model)), None
        )


def _composed(
    provider_id: str, entry: ProviderDef | None, known: Provider | None
) -> tuple[Provider, list[Model]]:
    if entry is None and known is not None:
        return known, models_of(known)
    return compose(provider_id, entry or ProviderDef(), known)


def _keys(provider: Provider, entry: ProviderDef | None) -> ProviderKeys:
    if entry is None:
        return ProviderKeys(provider)
    configured = entry.api_key if isinstance(entry.api_key, str) else None
    return ProviderKeys(provider, configured, entry.auth_header, from_file=True)


def _script_path_resolved(model: Model, agent_dir: Path) -> Model:
    """A scripted model's base URL is a path, relative to the file that names it."""
    if model.api != "scripted":
        return model
    path = agent_dir / Path(model.base_url.removeprefix("file://")).expanduser()
    return attrs.evolve(model, base_url=str(path))


def _scripted_model(
    scripted: "Path | ScriptedConversation", warnings: list[str]
) -> tuple[Model, dict[str, "ScriptedConversation"]]:
    """The model that plays a script, and the script if it is no file."""
    from knightcode.models.script import UNREADABLE, ScriptedConversation, ScriptError

    if isinstance(scripted, ScriptedConversation):
        return scripted.model(_GIVEN_SCRIPT), {_GIVEN_SCRIPT: scripted}
    path = str(scripted.absolute())
    try:
        return ScriptedConversation.load(scripted).model(path), {}
    except ScriptError as error:
        warnings.append(str(error))
        return UNREADABLE.model(path), {}
