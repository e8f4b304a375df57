"""The schema of the settings file `holdfast.toml`, with all defaults (docs/reference/settings.md). Frozen data.

`trust` finds the file and decides whether to use it; `settings` adds the environment and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from holdfast.config.ledger_address import check_ledger_address
from holdfast.config.sections import DeploymentSettings, EncryptionSettings, StorageSettings, TelemetrySettings
from holdfast.config.toml_document import Document, FileContent, parse_document
from holdfast.config.types import (
    BesideTheFile,
    Command,
    Environment,
    Flag,
    Header,
    Limit,
    Name,
    NonEmpty,
    SettingPath,
    Word,
    check_destination,
    check_glob,
    check_host_name,
    check_listen_address,
    check_not_empty,
    check_person_name,
    check_plain_web_address,
    check_public_key,
    check_queue_name,
    check_reference,
    check_secret_reference,
    check_tool_glob,
    check_tool_name,
    check_unique,
    check_variable_reference,
    check_web_address,
)
from holdfast.domain.approvals.approval import Approver
from holdfast.domain.base import StrictData
from holdfast.domain.calls.tool import Effect
from holdfast.domain.content import OUTPUT_LIMIT
from holdfast.domain.modes import Confirming, Mode


class ShellSettings(StrictData):
    """`[tools.shell]`: the environment, limits and sandbox of shell commands."""

    environment: Environment = Field(default_factory=dict)
    inherit_environment: Flag = True
    timeout_seconds: Limit = 600
    lease_seconds: Annotated[float, Field(strict=True, ge=5, le=86_400)] = 120
    """How long a command runs on when no worker is there."""
    background: Literal["session", "turn", "detached", "off"] = "session"
    """When a background command is stopped: with its session, with its turn, or never. `off` forbids them."""
    background_commands: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 10
    """The number of background commands that run at once in a session."""
    background_seconds: Annotated[float, Field(strict=True, ge=1, le=30 * 86_400)] = 86_400
    """The time limit of a background command."""
    sandbox: Literal["none", "bwrap"] = "none"
    network: Flag = False
    """May a command in a sandbox use the network?"""

    @model_validator(mode="after")
    def _check_network(self) -> ShellSettings:
        if self.network and self.sandbox == "none":
            raise ValueError(
                "has `network = true`, which needs a `sandbox`: without one, commands can always use the network"
            )
        return self


class FetchSettings(StrictData):
    """`[tools.fetch]`: the private hosts that may be fetched, and the limit of an answer in bytes."""

    allow: tuple[Annotated[str, AfterValidator(check_destination)], ...] = ()
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 5_000_000


class ToolSettings(StrictData):
    """`[tools]`: the sources of tools, and the settings of built-in ones."""

    modules: tuple[Annotated[str, AfterValidator(check_reference)], ...] = ()
    entry_points: Flag = True
    disable: tuple[Annotated[str, AfterValidator(check_tool_name)], ...] = ()
    shell: ShellSettings = ShellSettings()
    fetch: FetchSettings = FetchSettings()


class DiscoverySettings(BesideTheFile):
    """`[[discovery]]`: a command that declares tools, and one that calls them."""

    name: Name
    discovery_command: Command
    call_command: Command
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    call_timeout_seconds: Limit = 600
    effect: Effect = Effect.ONCE
    environment: Environment = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _check_unique(cls, value: str, info: ValidationInfo) -> str:
        return check_unique(value, "discovery", info)


class When(StrEnum):
    """When a hook runs: before a call, or after it."""

    BEFORE = "before"
    AFTER = "after"


class OnFailure(StrEnum):
    """What happens when a hook fails."""

    DENY = "deny"
    """Before a call, the call is denied. After it, its result is withheld."""
    IGNORE = "ignore"
    """The hook has no effect."""


class HookTraits(StrictData):
    """When a hook runs, for which tools, and what happens when it fails."""

    when: When
    tools: Annotated[
        tuple[Annotated[NonEmpty, AfterValidator(check_tool_glob)], ...], AfterValidator(check_not_empty)
    ] = ("*",)
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    on_failure: OnFailure = OnFailure.DENY


class HookSettings(HookTraits, BesideTheFile):
    """`[[hooks]]`: a hook that is a command, or a function of a module."""

    name: Name
    command: Command | None = None
    python: Annotated[str, AfterValidator(check_reference)] | None = None
    environment: Environment = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _check_unique(cls, value: str, info: ValidationInfo) -> str:
        return check_unique(value, "hooks", info)

    @model_validator(mode="after")
    def _check_one_way(self) -> HookSettings:
        if (self.command is None) == (self.python is None):
            raise ValueError("needs `command` or `python`, and not both")
        if self.python and self.environment:
            raise ValueError("has `python`: `environment` is for a `command`")
        return self


class ApproverSettings(Approver):
    """`[[approvers]]`: a person or a gateway who may decide, with a unique name and key."""

    name: Annotated[str, AfterValidator(check_person_name)]
    key: Annotated[str, AfterValidator(check_public_key)] | None = None
    roles: tuple[NonEmpty, ...] = ()
    vouches: Flag = False

    @field_validator("name")
    @classmethod
    def _check_unique(cls, value: str, info: ValidationInfo) -> str:
        return check_unique(value, "approvers", info)

    @field_validator("key")
    @classmethod
    def _check_own_key(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.context and value is not None:
            keys = info.context["names"].setdefault("keys of approvers", set())
            if value in keys:
                raise ValueError("is taken: another [[approvers]] has the same key")
            keys.add(value)
        return value

    @model_validator(mode="after")
    def _check_vouching(self) -> ApproverSettings:
        if self.is_for_anyone:
            raise ValueError(f"cannot be called {self.name!r}: that name belongs to the key of the data folder")
        if self.vouches and self.key is None:
            raise ValueError("has `vouches = true`, and needs a `key` for it")
        return self


class McpOauthSettings(StrictData):
    """`[mcp.servers.NAME.oauth]`: OAuth settings that `holdfast mcp login` cannot find out, or that replace a login."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """A person logs in once, or the worker uses credentials of its own."""
    client_id: NonEmpty | None = None
    """The OAuth client id. Without one, each login registers a client."""
    client_secret: Annotated[NonEmpty, AfterValidator(check_secret_reference)] | None = None
    issuer: Annotated[str, AfterValidator(check_web_address)] | None = None
    """The authorization server of this client. The secret is sent to no other."""
    scopes: tuple[NonEmpty, ...] = ()
    """The requested scopes; by default those that the server names."""
    redirect_port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 0
    """The local port for the redirect of a login; 0 for any free one."""

    @model_validator(mode="after")
    def _check_complete(self) -> McpOauthSettings:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            raise ValueError('has `grant = "client_credentials"`, and needs `client_id` and `client_secret` for it')
        if self.client_secret and not (self.client_id and self.issuer):
            raise ValueError(
                "has a `client_secret`, and needs `client_id` and `issuer`: the client, and the server that may get it"
            )
        return self


class McpServerSettings(BesideTheFile):
    """`[mcp.servers.NAME]`: an MCP server with a command or a URL. One with neither adds to a server of `files`."""

    command: NonEmpty | None = None
    args: tuple[Word, ...] = ()
    env: Environment = Field(default_factory=dict)
    cwd: SettingPath | None = None
    """The working folder of the command; by default the folder of the file."""
    url: Annotated[str, AfterValidator(check_web_address)] | None = None
    headers: Mapping[Header, Word] = Field(default_factory=dict)
    oauth: McpOauthSettings | None = None
    include: Annotated[tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...], AfterValidator(check_not_empty)] = (
        "*",
    )
    exclude: tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...] = ()
    trust: Flag = False
    """Trust the server's own hints about the effects of its tools?"""
    effects: Mapping[NonEmpty, Effect] = Field(default_factory=dict)
    """The effects of its tools, by their names on the server. They override the server's hints."""
    timeout_seconds: Limit = 300
    """The time limit of one call."""
    start_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 30
    """The time limit for connecting and listing the tools."""

    @model_validator(mode="after")
    def _check_one_way(self, info: ValidationInfo) -> McpServerSettings:
        named = bool(info.context and info.context["names"].get("mcp.files"))
        ways = (self.command is not None) + (self.url is not None)
        if ways > 1 or (ways == 0 and not named):
            raise ValueError("needs `command` or `url`, and not both")
        if self.url and (self.args or self.env or self.cwd):
            raise ValueError("has a `url`: `args`, `env` and `cwd` are for a `command`")
        if self.command and (self.headers or self.oauth):
            raise ValueError("has a `command`: `headers` and `oauth` are for a `url`")
        if self.oauth and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("has an Authorization header and `oauth`: leave one out")
        return self


class McpSettings(StrictData):
    """`[mcp]`: MCP servers by name, and files with servers that other programs share."""

    files: tuple[SettingPath, ...] = ()
    servers: Mapping[Name, McpServerSettings] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _check_known(cls, value: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        if info.context and value:
            info.context["names"]["mcp.files"] = {"named"}
        return value


MediaKind = Literal["image", "document", "audio"]


class ModelServerSettings(StrictData):
    """`[models.servers.NAME]`: a model server at your own address, with the API of a provider."""

    url: Annotated[str, AfterValidator(check_plain_web_address)]
    speaks: Literal["openai", "anthropic"] = "openai"
    key: Annotated[NonEmpty, AfterValidator(check_variable_reference)] | None = None
    """The API key, as a reference to a variable of the worker's environment; None sends none."""
    window: int | None = Field(default=None, ge=1_000, le=100_000_000)
    """The size of the context window of its models in tokens."""

    @property
    def key_variable(self) -> str | None:
        """The variable that holds the key."""
        return self.key[2:-1] if self.key else None


class ModelsSettings(StrictData):
    """`[models]`: the models that turns may use, and model servers of your own."""

    default: NonEmpty | None = None
    """The model of `holdfast chat` and `holdfast run` without `--model`."""
    allow: Annotated[tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...], AfterValidator(check_not_empty)] = (
        "*",
    )
    takes: Mapping[Annotated[NonEmpty, AfterValidator(check_glob)], tuple[MediaKind, ...]] = Field(default_factory=dict)
    """The kinds of media that models get from tools, by patterns of model names. The first match applies. Without one,
    a provider's model gets what its package knows it takes, and a model of your own server gets none."""
    servers: Mapping[Name, ModelServerSettings] = Field(default_factory=dict)

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables that hold the keys of the servers."""
        return tuple(server.key_variable for server in self.servers.values() if server.key_variable)


class GatewaySettings(StrictData):
    """`[gateway]`: the address of the HTTP endpoint, and further host names that it answers to."""

    host: Annotated[NonEmpty, AfterValidator(check_host_name)] = "127.0.0.1"
    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 8234
    """0 for any free port."""
    names: tuple[Annotated[NonEmpty, AfterValidator(check_host_name)], ...] = ()
    """The host names of a reverse proxy that passes on the Host header."""


class WorkerSettings(StrictData):
    """`[worker]`: health checks, shutdown and heartbeats of a worker."""

    health: Annotated[str, AfterValidator(check_listen_address)] | None = None
    """The address for health probes: host:port."""
    grace_seconds: Annotated[float, Field(strict=True, ge=0, le=86_400)] | None = None
    """The time that running calls get to finish at shutdown; None for a few seconds."""
    heartbeat_seconds: Annotated[float, Field(strict=True, ge=0.2, le=8)] = 0.2
    """The shortest interval between two heartbeats of a call. A stop reaches a call with a heartbeat."""


class LimitSettings(StrictData):
    """`[limits]`: the limits of outputs and of concurrency."""

    output_characters: Annotated[int, Field(strict=True, ge=1_000, le=1_000_000)] = OUTPUT_LIMIT
    """Characters of a result that reach the model."""
    concurrent_calls: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 100
    """Calls that run at once on a worker."""
    saved_output_bytes: Annotated[int, Field(strict=True, ge=1, le=10**15)] = 5_000_000_000
    """Bytes of one whole output on disk."""


class Configuration(StrictData):
    """The whole settings file. None: the environment or a default decides."""

    workspace: SettingPath | None = None
    data: SettingPath | None = None
    task_queue: Annotated[NonEmpty, AfterValidator(check_queue_name)] | None = None
    policy: tuple[SettingPath, ...] = ()
    modes: Annotated[tuple[Mode, ...], AfterValidator(check_not_empty)] | None = None
    confirm: Confirming = Confirming.POLICY
    """Which calls of all turns need an approval. A turn may require more."""
    yolo_asks: Flag = True
    """Does mode `yolo` ask about destructive or unreadable commands, and about destructive tools?"""
    hook_entry_points: Flag = True
    hooks: tuple[HookSettings, ...] = ()
    approvers: tuple[ApproverSettings, ...] = ()
    decisions: Literal["signed", "unsigned"] | None = None
    ledger: Annotated[str, AfterValidator(check_ledger_address)] | None = None
    ledger_days: Annotated[int, Field(strict=True, ge=1, le=3_650)] = 30
    tools: ToolSettings = ToolSettings()
    discovery: tuple[DiscoverySettings, ...] = ()
    mcp: McpSettings = McpSettings()
    models: ModelsSettings = ModelsSettings()
    limits: LimitSettings = LimitSettings()
    gateway: GatewaySettings = GatewaySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    worker: WorkerSettings = WorkerSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    storage: StorageSettings = StorageSettings()
    deployment: DeploymentSettings = DeploymentSettings()


def parse_configuration(content: FileContent) -> Document[Configuration]:
    """Parse and validate a settings file. Relative paths are relative to its folder."""
    return parse_document(content, Configuration, {"folder": content.file.parent, "names": {}})
