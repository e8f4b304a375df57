"""Where Holdfast keeps things and where its tools work. From the environment, with defaults that need none.

    HOLDFAST_DATA        server database, payloads, outputs     (~/.local/share/holdfast)
    HOLDFAST_WORKSPACE   the folder the tools are confined to   (the current folder)
    HOLDFAST_TASK_QUEUE  the task queue of turns and calls      (holdfast)

Which Temporal server is Temporal's own configuration (TEMPORAL_ADDRESS, TEMPORAL_PROFILE …).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.turns import TASK_QUEUE


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
