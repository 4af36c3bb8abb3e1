"""What all threads of a process share. The host makes it and owns what is in it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import attrs
import trio

from knightcode.agent.compaction import CompactionSettings
from knightcode.agent.loop import Models
from knightcode.agent.retry import RetryPolicy
from knightcode.agent.steering import SteeringMode
from knightcode.agent.tools.base import Tool
from knightcode.config.paths import project_folder, session_root
from knightcode.messages import ThinkingLevel
from knightcode.models.model import Model
from knightcode.threads.asks import Asker
from knightcode.threads.notices import Publisher


class ModelCatalogue(Protocol):
    """The models that exist, and which of them can be asked."""

    @property
    def models(self) -> tuple[Model, ...]: ...

    def find(self, provider: str, model_id: str) -> Model | None: ...

    def available(self, model: Model) -> bool: ...

    def default_model(self) -> Model | None:
        """The model that a thread begins with when nothing else is said."""


@attrs.frozen
class SessionPlaces:
    """Where session files are: in one folder for each project, or all in `override`."""

    agent_dir: Path
    override: Path | None = None

    def folder(self, cwd: str) -> Path:
        """Where the sessions of a directory are stored."""
        return self.override or project_folder(self.agent_dir, cwd)

    def all_folders(self) -> list[Path]:
        """Every folder that may hold sessions. Reads the disk."""
        if self.override is not None:
            return [self.override]
        root = session_root(self.agent_dir)
        try:
            return sorted(entry for entry in root.iterdir() if entry.is_dir())
        except OSError:
            return []


@attrs.frozen
class Services:
    """Shared by all threads.

    Attributes:
        calls: the nursery of tool calls; see `ToolBatch`.
        compaction_settings: as they hold for one model.
        environ: the environment that children of tools inherit.
    """

    models: Models
    catalogue: ModelCatalogue
    publisher: Publisher
    asker: Asker
    calls: trio.Nursery
    tools: tuple[Tool, ...]
    places: SessionPlaces
    agent_dir: Path
    environ: Mapping[str, str]
    now_ms: Callable[[], int]
    default_thinking_level: ThinkingLevel | None = None
    shell_path: str | None = None
    shell_command_prefix: str | None = None
    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    compaction_settings: Callable[[Model], CompactionSettings] = lambda _: CompactionSettings()
    steering_mode: SteeringMode = "one-at-a-time"
    warnings: tuple[str, ...] = ()
