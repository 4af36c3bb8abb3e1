"""`initialize` and `initialized`: all that is needed before the first answer.

Source: app server, "Handshake"; app server notes, "Handshake and connection modes".
"""

from typing import Annotated, Literal

from msgspec import Meta

from knightcode_protocol.limits import MAX_CLIENT_NAME, MAX_OPT_OUTS
from knightcode_protocol.wire import Wire

Mode = Literal["desktop", "terminal"]
ClientName = Annotated[str, Meta(min_length=1, max_length=MAX_CLIENT_NAME)]


class ClientInfo(Wire, frozen=True, kw_only=True):
    """Which program speaks. `title` is its name for people."""

    name: ClientName
    version: str
    title: ClientName | None = None


class Capabilities(Wire, frozen=True, kw_only=True):
    """What the client can do without or wants changed, for this connection only.

    `optOutNotifications` names notifications that shall not be sent; unknown names do no harm.
    """

    opt_out_notifications: Annotated[tuple[str, ...], Meta(max_length=MAX_OPT_OUTS)] | None = None
    mode: Mode | None = None


class InitializeParams(Wire, frozen=True, kw_only=True):
    """Params of `initialize`. `mode` wins over `capabilities.mode`."""

    client_info: ClientInfo
    mode: Mode | None = None
    capabilities: Capabilities | None = None


class ServerIdentity(Wire, frozen=True, kw_only=True):
    """The server's name and the version of the installed package."""

    name: str
    version: str


class Platform(Wire, frozen=True, kw_only=True):
    """The machine that the server runs on. `arch` is `x64`, `arm64`, or the machine's own name."""

    os: Literal["win32", "darwin", "linux"]
    arch: str
    home_dir: str


class InitializeResult(Wire, frozen=True, kw_only=True):
    """Result of `initialize`."""

    server_info: ServerIdentity
    platform: Platform


class InitializedParams(Wire, frozen=True, kw_only=True):
    """Params of the notification `initialized`: none."""
