"""Where Holdfast keeps things, where its tools work, and what the settings file says besides.

    HOLDFAST_DATA        server database, payloads, outputs     (~/.local/share/holdfast)
    HOLDFAST_WORKSPACE   the folder the tools are confined to   (the current folder)
    HOLDFAST_TASK_QUEUE  the task queue of turns and calls      (holdfast)

The command line wins over the environment, the environment over the file, the file over the defaults. `Settings()`
reads no file; `load_settings` does. Which Temporal server is Temporal's own configuration (TEMPORAL_ADDRESS …).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.configuration import (
    Configuration,
    DiscoverySettings,
    LimitSettings,
    McpSettings,
    ToolSettings,
    configuration_of,
)
from holdfast.documents import Document
from holdfast.modes import PERMITTED, Mode
from holdfast.trust import find, read_source
from holdfast.turns import TASK_QUEUE

VARIABLES = {"data": "HOLDFAST_DATA", "workspace": "HOLDFAST_WORKSPACE", "task_queue": "HOLDFAST_TASK_QUEUE"}
"""The settings that the environment may give."""


def _default_data() -> Path:
    share = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("HOLDFAST_DATA") or f"{share}/holdfast").expanduser().absolute()


def _default_workspace() -> Path:
    return Path(os.environ.get("HOLDFAST_WORKSPACE") or ".").expanduser().absolute()


@dataclass(frozen=True)
class Settings:
    """The settings of one process."""

    data: Path = field(default_factory=_default_data)
    workspace: Path = field(default_factory=_default_workspace)
    task_queue: str = field(default_factory=lambda: os.environ.get("HOLDFAST_TASK_QUEUE") or TASK_QUEUE)
    tools: ToolSettings = field(default_factory=ToolSettings)
    discovery: tuple[DiscoverySettings, ...] = ()
    mcp: McpSettings = field(default_factory=McpSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    policy: tuple[Path, ...] = ()
    """The user's policy files."""
    modes: tuple[Mode, ...] = PERMITTED
    """The modes this worker permits."""
    file: Path | None = None
    """The settings file that was read."""
    file_digest: str | None = None
    """SHA-256 of what was read."""
    file_lines: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Of `data`, `workspace` and `task_queue`, those that the file decides, with its line."""

    @property
    def payloads(self) -> Path:
        """Payloads kept outside the history."""
        return self.data / "payloads"

    @property
    def outputs(self) -> Path:
        """Whole outputs of which the model read a part."""
        return self.data / "outputs"

    @property
    def database(self) -> Path:
        """The embedded server's SQLite file."""
        return self.data / "temporal.db"

    @property
    def server_file(self) -> Path:
        """Where the embedded server says where it is."""
        return self.data / "server.json"


def load_settings(file: Path | None = None, *, digest: str | None = None) -> Settings:
    """The settings with those of a file: the one named here, else by HOLDFAST_CONFIG, else one that is found.

    BadInput with every problem of the file, or when it was found and is not trusted, or has not this SHA-256 digest.
    """
    source = find(file)
    return combined(configuration_of(read_source(source, digest))) if source else Settings()


def combined(document: Document[Configuration]) -> Settings:
    """What a file says, where the environment does not say otherwise; BadInput with every problem of the file."""
    found = document.require()
    said = {name: getattr(found, name) for name, variable in VARIABLES.items() if not os.environ.get(variable)}
    places: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    return replace(
        Settings(),
        tools=found.tools,
        discovery=found.discovery,
        mcp=found.mcp,
        limits=found.limits,
        policy=found.policy,
        modes=found.modes,
        file=document.content.file,
        file_digest=document.content.digest,
        file_lines={name: document.line(name) for name in places},
        **places,
    )
