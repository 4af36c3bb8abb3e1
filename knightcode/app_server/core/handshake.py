"""The first words of a connection: which step may follow which, and what `initialize` answers.

Source: app server notes, "Handshake and connection modes".
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from knightcode_protocol.handshake import (
    InitializeParams,
    InitializeResult,
    Mode,
    Platform,
    ServerIdentity,
)


class Phase(Enum):
    """How far a connection is."""

    NEW = auto()
    """Only `initialize` is served."""
    GREETED = auto()
    """`initialize` was answered; the client's `initialized` is awaited."""
    READY = auto()
    """Requests are served and notifications are sent."""


STEPS: Final[Mapping[tuple[Phase, str], Phase]] = MappingProxyType(
    {
        (Phase.NEW, "initialize"): Phase.GREETED,
        (Phase.GREETED, "initialized"): Phase.READY,
    }
)
"""Every step there is. What is not in here is refused (a request) or ignored (a notification)."""

_ARCHITECTURES: Final[Mapping[str, str]] = MappingProxyType(
    {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
)
_PARAMS: Final = msgspec.json.Decoder(InitializeParams)


class ServerInfo(Struct, frozen=True):
    """What `initialize` tells about the server and its machine. `home_dir` is absolute."""

    version: str
    os: Literal["win32", "darwin", "linux"]
    arch: str
    home_dir: str

    def result(self) -> InitializeResult:
        """The result of `initialize`."""
        return InitializeResult(
            server_info=ServerIdentity(name="knightcode", version=self.version),
            platform=Platform(os=self.os, arch=self.arch, home_dir=self.home_dir),
        )


def arch_of(machine: str) -> str:
    """The protocol's word for a machine name such as `x86_64`; unknown ones in lower case."""
    name = machine.lower()
    return _ARCHITECTURES.get(name, name)


def decode_initialize(params: Raw) -> InitializeParams:
    """The params of `initialize`.

    Raises:
        msgspec.DecodeError: wrong shape or value; the text names the member.
    """
    return _PARAMS.decode(params)


def mode_of(params: InitializeParams, default: Mode) -> Mode:
    """The mode that a client asked for, at either place where it may stand."""
    if params.mode is not None:
        return params.mode
    if params.capabilities is not None and params.capabilities.mode is not None:
        return params.capabilities.mode
    return default


def opt_outs_of(params: InitializeParams) -> frozenset[str]:
    """The notifications that a client does not want."""
    if params.capabilities is None or params.capabilities.opt_out_notifications is None:
        return frozenset()
    return frozenset(params.capabilities.opt_out_notifications)
