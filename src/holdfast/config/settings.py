"""The settings of a process: data folder, workspace, task queue, and everything of the settings file.

    HOLDFAST_DATA        server database, payloads, outputs     (~/.local/share/holdfast)
    HOLDFAST_WORKSPACE   the folder the tools are confined to   (the current folder)
    HOLDFAST_TASK_QUEUE  the task queue of turns and calls      (holdfast)
    HOLDFAST_BUILD       the version of a worker's code         (none)

The command line overrides the environment, the environment the file, the file the defaults. `Settings()` reads no file;
`load_settings` does. Temporal's own variables (TEMPORAL_ADDRESS …) name the Temporal server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holdfast.config.named_files import combine_digests, find_named_files
from holdfast.config.schema import (
    Configuration,
    DiscoverySettings,
    GatewaySettings,
    HookSettings,
    LimitSettings,
    McpSettings,
    ModelsSettings,
    ToolSettings,
    WorkerSettings,
    parse_configuration,
)
from holdfast.config.sections import (
    DeploymentSettings,
    EncryptionSettings,
    StorageSettings,
    TelemetrySettings,
    check_build_name,
)
from holdfast.config.toml_document import Document
from holdfast.config.toml_lines import find_lines
from holdfast.config.trust import find_settings_file, read_source
from holdfast.domain.approvals.approval import Approver
from holdfast.domain.modes import DEFAULT_PERMITTED, Confirming, Mode
from holdfast.domain.turn.turn_io import TASK_QUEUE
from holdfast.errors import BadInput

VARIABLES = {"data": "HOLDFAST_DATA", "workspace": "HOLDFAST_WORKSPACE", "task_queue": "HOLDFAST_TASK_QUEUE"}
"""The settings that environment variables override."""
BUILD_VARIABLE = "HOLDFAST_BUILD"
"""The variable with which a container image names the version of its code."""


def _find_default_data() -> Path:
    share = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("HOLDFAST_DATA") or f"{share}/holdfast").expanduser().absolute()


def _find_default_workspace() -> Path:
    return Path(os.environ.get("HOLDFAST_WORKSPACE") or ".").expanduser().absolute()


def _apply_build(deployment: DeploymentSettings) -> DeploymentSettings:
    """Return the deployment with the build that the environment names. BadInput when that is invalid."""
    named = os.environ.get(BUILD_VARIABLE)
    if not named:
        return deployment
    try:
        return deployment.model_copy(update={"build": check_build_name(named)})
    except ValueError as error:
        raise BadInput(f"{BUILD_VARIABLE}={named[:150]!r}: a build {error}") from None


@dataclass(frozen=True)
class Settings:
    """The settings of one process.

    `Settings()` takes the data folder, workspace, task queue and build from the environment, and defaults for the rest.
    A field that `Configuration` has too means the same (`config.schema`).
    """

    data: Path = field(default_factory=_find_default_data)
    workspace: Path = field(default_factory=_find_default_workspace)
    task_queue: str = field(default_factory=lambda: os.environ.get("HOLDFAST_TASK_QUEUE") or TASK_QUEUE)
    tools: ToolSettings = field(default_factory=ToolSettings)
    discovery: tuple[DiscoverySettings, ...] = ()
    mcp: McpSettings = field(default_factory=McpSettings)
    models: ModelsSettings = field(default_factory=ModelsSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    deployment: DeploymentSettings = field(default_factory=lambda: _apply_build(DeploymentSettings()))
    """The worker deployment and the build of this process."""
    policy: tuple[Path, ...] = ()
    """The policy files of the user."""
    modes: tuple[Mode, ...] | None = None
    """The modes that this worker permits; None for the default (`permitted_modes`)."""
    confirm: Confirming = Confirming.POLICY
    """Which calls of all turns need an approval."""
    yolo_asks: bool = True
    """Does mode `yolo` ask about destructive or unreadable commands, and about destructive tools?"""
    approvers: tuple[Approver, ...] = ()
    """The people and gateways who may decide. If any has a key, decisions must be signed."""
    decisions: Literal["signed", "unsigned"] | None = None
    """Must decisions be signed? None: if an approver or the data folder has a key (`client.owner_key`)."""
    hooks: tuple[HookSettings, ...] = ()
    hook_entry_points: bool = True
    """Load hooks of installed packages?"""
    ledger: str | None = field(default=None, repr=False)
    """The address of a shared ledger (`config.ledger_address`); None for a file on this host."""
    ledger_days: int = 30
    """The days for which results of calls that must run once are kept."""
    file: Path | None = None
    """The settings file that was read."""
    file_digest: str | None = None
    """The SHA-256 digest of the file, and of the files that it names."""
    file_lines: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The lines of the file that set `data`, `workspace` and `task_queue`, and of `hooks.1`, `encryption.keys.1` …"""

    @property
    def payloads_folder(self) -> Path:
        """The folder of payloads that are stored outside the history."""
        return self.data / "payloads"

    @property
    def outputs_folder(self) -> Path:
        """The folder of whole outputs, of which the model read a part."""
        return self.data / "outputs"

    @property
    def records_folder(self) -> Path:
        """The folder of definitions of tools, rules and hooks, which histories name by digest."""
        return self.data / "records"

    @property
    def permitted_modes(self) -> tuple[Mode, ...]:
        """The modes that this worker permits. By default without `auto_edit`, if an approver has a key, and `yolo`."""
        if self.modes is not None:
            return self.modes
        keyed = any(approver.key is not None for approver in self.approvers)
        return (Mode.DEFAULT, Mode.PLAN) if keyed else DEFAULT_PERMITTED

    @property
    def owner_key_file(self) -> Path:
        """The private key of the owner of this data folder."""
        return self.data / "owner.key"

    @property
    def host_file(self) -> Path:
        """The file with the id of this host, which workers with this data folder share."""
        return self.data / "host"

    @property
    def runs_folder(self) -> Path:
        """The folder of supervised commands, which run on without their worker."""
        return self.data / "runs"

    @property
    def grants_file(self) -> Path:
        """The saved grants."""
        return self.data / "granted.toml"

    @property
    def ledger_file(self) -> Path:
        """The ledger of this host, used without a shared one."""
        return self.data / "ledger.db"

    @property
    def database_file(self) -> Path:
        """The SQLite database of the embedded server."""
        return self.data / "temporal.db"

    @property
    def mcp_tools_folder(self) -> Path:
        """The folder of known tool definitions of MCP servers."""
        return self.data / "mcp"

    @property
    def mcp_logins_folder(self) -> Path:
        """The folder of OAuth tokens for MCP servers."""
        return self.data / "mcp" / "tokens"

    @property
    def tokens_file(self) -> Path:
        """The tokens of the HTTP endpoint."""
        return self.data / "tokens.json"

    @property
    def server_file(self) -> Path:
        """The file with the address of the embedded server."""
        return self.data / "server.json"


def load_settings(file: Path | None = None, *, digest: str | None = None) -> Settings:
    """Load settings from `file`, else from HOLDFAST_CONFIG, else from a file that is found (`config.trust`).

    BadInput with every problem of the file, or when a found file is not trusted, or when `digest` is another one.
    """
    source = find_settings_file(file)
    return combine_settings(parse_configuration(read_source(source, digest))) if source else Settings()


def combine_settings(document: Document[Configuration]) -> Settings:
    """Combine a file with the environment, which overrides it. BadInput with every problem of the file."""
    found = document.get_value()
    places = {
        name: value
        for name, variable in VARIABLES.items()
        if (value := getattr(found, name)) is not None and not os.environ.get(variable)
    }
    hooks = find_lines(document.text, [("hooks", place) for place in range(len(found.hooks))])
    keys = find_lines(document.text, [("encryption", "keys", place) for place in range(len(found.encryption.keys))])
    return Settings(
        **{name: value for name, value in found if name not in VARIABLES}
        | {"deployment": _apply_build(found.deployment)},
        **places,
        file=document.content.file,
        file_digest=combine_digests(document.content.digest, find_named_files(found, document.content.file.parent)),
        file_lines={name: document.find_line(name) for name in places}
        | {f"hooks.{place}": line for place, line in enumerate(hooks.values(), start=1)}
        | {f"encryption.keys.{place}": line for place, line in enumerate(keys.values(), start=1)},
    )
