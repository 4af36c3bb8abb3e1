"""Credentials of providers: what counts as configured, and what a request is sent with.

Keys come from models.json, else from the environment. Nothing here logs or returns a key other than
inside `Credentials`, whose text form leaves it out.

Source: models and providers, "Resolution for a request", "Value syntax".
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from knightcode.models.catalog import Provider
from knightcode.models.headers import has_header, merge_headers
from knightcode.models.model import Model
from knightcode.models.proxies import is_local
from knightcode.models.values import UnresolvedValueError, is_configured, resolve_value

_IN_BASE_URL: Final = re.compile(r"\{([A-Za-z_]\w*)\}", re.ASCII)
_AUTH_HEADERS: Final = ("authorization", "x-api-key")


class CredentialError(Exception):
    """A request cannot be sent for want of credentials; the text is what its reply ends with."""


@attrs.frozen
class Credentials:
    """What one request is sent with, all values resolved.

    Attributes:
        base_url: of the model, its `{NAME}` parts filled in, without a slash at its end.
        api_key: None where the server wants none, or where `headers` already authenticate.
        bearer: send the key as a bearer token also where the api has a header of its own for it.
        headers: what the user configured; they win over the adapter's.
    """

    base_url: str
    api_key: str | None = attrs.field(default=None, repr=False)
    bearer: bool = False
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen
class ProviderKeys:
    """Where the key of one provider may come from.

    Attributes:
        configured: `apiKey` of models.json, in value syntax.
        auth_header: also send the key as `Authorization: Bearer`.
        from_file: the provider stands in models.json; a local server of it may need no key.
    """

    provider: Provider
    configured: str | None = None
    auth_header: bool = False
    from_file: bool = False


@attrs.define(eq=False)
class Auth:
    """Answers for all providers of a registry."""

    environ: Mapping[str, str] = attrs.field(repr=False)
    providers: Mapping[str, ProviderKeys]

    def available(self, model: Model) -> bool:
        """Whether a request could be authenticated, as far as can be told without running a command."""
        if model.api == "scripted":
            return True
        if any(not self.environ.get(name) for name in _IN_BASE_URL.findall(model.base_url)):
            return False
        keys = self._keys(model)
        if keys.configured is not None:
            return is_configured(keys.configured, self.environ)
        return (
            any(self.environ.get(name) for name in (*keys.provider.bearer_keys, *keys.provider.keys))
            or has_header(model.headers, *_AUTH_HEADERS)
            or _needs_no_key(keys, model)
        )

    async def resolve(self, model: Model) -> Credentials:
        """What to send a request to `model` with. Commands of models.json are run, each time.

        Raises:
            CredentialError: no key, or a value that cannot be resolved now.
        """
        if model.api == "scripted":
            return Credentials(model.base_url)
        base_url = self._base_url(model)
        keys = self._keys(model)
        headers = {name: await self._header(model, name, value) for name, value in model.headers.items()}
        key, bearer = await self._key(model, keys)
        if key is None and not has_header(headers, *_AUTH_HEADERS) and not _needs_no_key(keys, model):
            raise CredentialError(f"no API key for {model.provider}{_hint(keys)}")
        if key is not None and keys.auth_header:
            headers = merge_headers({"Authorization": f"Bearer {key}"}, headers)
        return Credentials(base_url, key, bearer, headers)

    def _keys(self, model: Model) -> ProviderKeys:
        return self.providers.get(model.provider) or ProviderKeys(
            Provider(id=model.provider, name=model.provider)
        )

    def _base_url(self, model: Model) -> str:
        for name in _IN_BASE_URL.findall(model.base_url):
            if not self.environ.get(name):
                raise CredentialError(
                    f"no API key for {model.provider}: its address needs {name}, which is not set"
                )
        return _IN_BASE_URL.sub(lambda part: self.environ[part[1]], model.base_url).rstrip("/")

    async def _key(self, model: Model, keys: ProviderKeys) -> tuple[str | None, bool]:
        if keys.configured is not None:
            try:
                return await resolve_value(keys.configured, self.environ), False
            except UnresolvedValueError as error:
                raise CredentialError(
                    f"could not resolve the API key of {model.provider}: {error}"
                ) from error
        for name in keys.provider.bearer_keys:
            if value := self.environ.get(name):
                return value.strip(), True
        return next(
            (value.strip() for name in keys.provider.keys if (value := self.environ.get(name))), None
        ), False

    async def _header(self, model: Model, name: str, value: str) -> str:
        try:
            return await resolve_value(value, self.environ)
        except UnresolvedValueError as error:
            what = f"could not resolve the API key of {model.provider}: its header {name}"
            raise CredentialError(f"{what}: {error}") from error


def _needs_no_key(keys: ProviderKeys, model: Model) -> bool:
    return keys.from_file and is_local(model.base_url)


def _hint(keys: ProviderKeys) -> str:
    names = (*keys.provider.keys, *keys.provider.bearer_keys)
    return f"; set {names[0]} or give the provider an apiKey in models.json" if names else ""
