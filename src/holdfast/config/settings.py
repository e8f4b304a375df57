"""Where Holdfast keeps things, where its tools work, and what the settings file says besides.

    HOLDFAST_DATA        server database, payloads, outputs     (~/.local/share/holdfast)
    HOLDFAST_WORKSPACE   the folder the tools are confined to   (the current folder)
    HOLDFAST_TASK_QUEUE  the task queue of turns and calls      (holdfast)
    HOLDFAST_BUILD       which version of the code a worker is  (none)

The command line wins over the environment, the environment over the file, the file over the defaults. `Settings()`
reads no file; `load_settings` does. Which Temporal server is Temporal's own configuration (TEMPORAL_ADDRESS …).
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
"""The settings that the environment may give."""
BUILD_VARIABLE = "HOLDFAST_BUILD"
"""The variable by which an image says which version of the code it holds."""


def _find_default_data() -> Path:
    share = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(os.environ.get("HOLDFAST_DATA") or f"{share}/holdfast").expanduser().absolute()


def _find_default_workspace() -> Path:
    return Path(os.environ.get("HOLDFAST_WORKSPACE") or ".").expanduser().absolute()


def _apply_build(deployment: DeploymentSettings) -> DeploymentSettings:
    """The same with the build that the environment names; BadInput when that is none."""
    named = os.environ.get(BUILD_VARIABLE)
    if not named:
        return deployment
    try:
        return deployment.model_copy(update={"build": check_build_name(named)})
    except ValueError as error:
        raise BadInput(f"{BUILD_VARIABLE}={named[:150]!r}: a build {error}") from None


@dataclass(frozen=True)
class Settings:
    """The settings of one process."""

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
    """Which version of the code the workers are."""
    policy: tuple[Path, ...] = ()
    """The user's policy files."""
    modes: tuple[Mode, ...] | None = None
    """The modes this worker permits; None for those that are permitted unless somebody says otherwise."""
    confirm: Confirming = Confirming.POLICY
    """Which calls of all turns are asked about."""
    yolo_asks: bool = True
    """Does mode `yolo` ask about what destroys or cannot be read?"""
    approvers: tuple[Approver, ...] = ()
    """Whose decisions count. With a key for anybody, only signed ones do."""
    decisions: Literal["signed", "unsigned"] | None = None
    """Must decisions be signed? None: where there is a key, of an approver or of the data folder (see `owner_key`)."""
    hooks: tuple[HookSettings, ...] = ()
    hook_entry_points: bool = True
    """Do the hooks of installed packages count?"""
    ledger: str | None = field(default=None, repr=False)
    """Where a ledger is that workers share, as the file has it; else it is a file of this host."""
    ledger_days: int = 30
    """How long the results of calls that must run once are kept."""
    file: Path | None = None
    """The settings file that was read."""
    file_digest: str | None = None
    """SHA-256 of what was read, and of the files that it names."""
    file_lines: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Of `data`, `workspace` and `task_queue`, those that the file decides, and of `hooks.1`, `encryption.keys.1` …,
    with their lines."""

    @property
    def payloads_folder(self) -> Path:
        """Payloads kept outside the history."""
        return self.data / "payloads"

    @property
    def outputs_folder(self) -> Path:
        """Whole outputs of which the model read a part."""
        return self.data / "outputs"

    @property
    def records_folder(self) -> Path:
        """What histories know by its digest: definitions of tools, rules, hooks."""
        return self.data / "records"

    @property
    def permitted_modes(self) -> tuple[Mode, ...]:
        """The modes this worker permits. Where approvers have keys, none that lets anything proceed unsigned."""
        if self.modes is not None:
            return self.modes
        keyed = any(approver.key is not None for approver in self.approvers)
        return (Mode.DEFAULT, Mode.PLAN) if keyed else DEFAULT_PERMITTED

    @property
    def owner_key_file(self) -> Path:
        """The private key of this data folder's owner."""
        return self.data / "owner.key"

    @property
    def host_file(self) -> Path:
        """The name of this host, as workers with this data folder know it."""
        return self.data / "host"

    @property
    def runs_folder(self) -> Path:
        """Commands that go on without their worker."""
        return self.data / "runs"

    @property
    def grants_file(self) -> Path:
        """Standing answers that were given for good."""
        return self.data / "granted.toml"

    @property
    def ledger_file(self) -> Path:
        """What calls that must run once did on this host, unless workers share a ledger."""
        return self.data / "ledger.db"

    @property
    def database_file(self) -> Path:
        """The embedded server's SQLite file."""
        return self.data / "temporal.db"

    @property
    def mcp_tools_folder(self) -> Path:
        """What is known of the tools of MCP servers."""
        return self.data / "mcp"

    @property
    def mcp_logins_folder(self) -> Path:
        """Logins at MCP servers."""
        return self.data / "mcp" / "tokens"

    @property
    def tokens_file(self) -> Path:
        """Who may use the HTTP endpoint."""
        return self.data / "tokens.json"

    @property
    def server_file(self) -> Path:
        """Where the embedded server says where it is."""
        return self.data / "server.json"


def load_settings(file: Path | None = None, *, digest: str | None = None) -> Settings:
    """The settings with those of a file: the one named here, else by HOLDFAST_CONFIG, else one that is found.

    BadInput with every problem of the file, or when it was found and is not trusted, or has not this SHA-256 digest.
    """
    source = find_settings_file(file)
    return combine_settings(parse_configuration(read_source(source, digest))) if source else Settings()


def combine_settings(document: Document[Configuration]) -> Settings:
    """What a file says, where the environment does not say otherwise; BadInput with every problem of the file."""
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
