"""The settings file `holdfast.toml`: what may stand in it, with defaults for all of it (docs/reference/settings.md).

Frozen data. Where the file comes from and whether it counts is in `trust`; what the environment and the command line
say besides is in `settings`.
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
from holdfast.domain.base import Message
from holdfast.domain.calls.tool import Effect
from holdfast.domain.content import OUTPUT_LIMIT
from holdfast.domain.modes import Confirming, Mode


class ShellSettings(Message):
    """What commands get: variables beside or instead of the worker's own, limits, and perhaps a sandbox."""

    environment: Environment = Field(default_factory=dict)
    inherit_environment: Flag = True
    timeout_seconds: Limit = 600
    lease_seconds: Annotated[float, Field(strict=True, ge=5, le=86_400)] = 120
    """How long a command goes on without any worker."""
    background: Literal["session", "turn", "detached", "off"] = "session"
    """What ends a background command, beside its own end; `off`: there are none."""
    background_commands: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 10
    """At once, in one session."""
    background_seconds: Annotated[float, Field(strict=True, ge=1, le=30 * 86_400)] = 86_400
    """How long one may run."""
    sandbox: Literal["none", "bwrap"] = "none"
    network: Flag = False
    """Of a command in a sandbox."""

    @model_validator(mode="after")
    def _check_network(self) -> ShellSettings:
        if self.network and self.sandbox == "none":
            raise ValueError(
                "has `network = true`, which is for a `sandbox`: without one nothing keeps commands from it"
            )
        return self


class FetchSettings(Message):
    """Private hosts that may be fetched all the same, and how much of an answer is read."""

    allow: tuple[Annotated[str, AfterValidator(check_destination)], ...] = ()
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 5_000_000


class ToolSettings(Message):
    """Which tools there are, and how the built-in ones behave."""

    modules: tuple[Annotated[str, AfterValidator(check_reference)], ...] = ()
    entry_points: Flag = True
    disable: tuple[Annotated[str, AfterValidator(check_tool_name)], ...] = ()
    shell: ShellSettings = ShellSettings()
    fetch: FetchSettings = FetchSettings()


class DiscoverySettings(BesideTheFile):
    """A command that declares tools, and one that calls them."""

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
    """When a hook is asked: before a call may run, or after it ran."""

    BEFORE = "before"
    AFTER = "after"


class OnFailure(StrEnum):
    """What it means when a hook fails."""

    DENY = "deny"
    """Before a call: it does not run. After it: its result is withheld."""
    IGNORE = "ignore"
    """As if the hook were not there."""


class HookTraits(Message):
    """When a hook is asked, about which tools, and what it means when it fails."""

    when: When
    tools: Annotated[
        tuple[Annotated[NonEmpty, AfterValidator(check_tool_glob)], ...], AfterValidator(check_not_empty)
    ] = ("*",)
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    on_failure: OnFailure = OnFailure.DENY


class HookSettings(HookTraits, BesideTheFile):
    """A hook: a command, or a function of a module."""

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
    """Somebody who may decide, with a name and a key that nobody else has."""

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
            raise ValueError(f"cannot be called {self.name!r}: that name is the data folder's own key's")
        if self.vouches and self.key is None:
            raise ValueError("vouches, and has no `key` to do it with")
        return self


class McpOauthSettings(Message):
    """OAuth with a server, where `holdfast mcp login` needs to be told something, or is not needed."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """A person logs in once, or the worker has credentials of its own."""
    client_id: NonEmpty | None = None
    """As whom we are known there; registered at each login when left out."""
    client_secret: Annotated[NonEmpty, AfterValidator(check_secret_reference)] | None = None
    issuer: Annotated[str, AfterValidator(check_web_address)] | None = None
    """The authorization server that knows this client: its secret goes nowhere else."""
    scopes: tuple[NonEmpty, ...] = ()
    """What is asked for; else what the server says."""
    redirect_port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 0
    """Where a login is answered, on this machine; 0 is any that is free."""

    @model_validator(mode="after")
    def _check_complete(self) -> McpOauthSettings:
        if self.grant == "client_credentials" and not (self.client_id and self.client_secret):
            raise ValueError('has `grant = "client_credentials"`, and needs `client_id` and `client_secret` for it')
        if self.client_secret and not (self.client_id and self.issuer):
            raise ValueError(
                "has a `client_secret`, and needs `client_id` and `issuer`: whose it is, and who may see it"
            )
        return self


class McpServerSettings(BesideTheFile):
    """An MCP server: a command to start, or a URL to reach. One with neither adds to a server of `files`."""

    command: NonEmpty | None = None
    args: tuple[Word, ...] = ()
    env: Environment = Field(default_factory=dict)
    cwd: SettingPath | None = None
    """Where the command runs; in the file's folder when left out."""
    url: Annotated[str, AfterValidator(check_web_address)] | None = None
    headers: Mapping[Header, Word] = Field(default_factory=dict)
    oauth: McpOauthSettings | None = None
    include: Annotated[tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...], AfterValidator(check_not_empty)] = (
        "*",
    )
    exclude: tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...] = ()
    trust: Flag = False
    """Is what it says of its tools' effects true?"""
    effects: Mapping[NonEmpty, Effect] = Field(default_factory=dict)
    """Of its tools, by the names that the server has for them, whatever it says itself."""
    timeout_seconds: Limit = 300
    """Of one call."""
    start_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 30
    """Until it is connected and has listed its tools."""

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
            raise ValueError("has an Authorization header and `oauth`, which are two ways: leave one out")
        return self


class McpSettings(Message):
    """MCP servers by name: those of files that other programs read too, and our own."""

    files: tuple[SettingPath, ...] = ()
    servers: Mapping[Name, McpServerSettings] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _check_known(cls, value: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        if info.context and value:
            info.context["names"]["mcp.files"] = {"named"}
        return value


MediaKind = Literal["image", "document", "audio"]


class ModelServerSettings(Message):
    """A server of models at an address of yours, that speaks as a provider does."""

    url: Annotated[str, AfterValidator(check_plain_web_address)]
    speaks: Literal["openai", "anthropic"] = "openai"
    key: Annotated[NonEmpty, AfterValidator(check_variable_reference)] | None = None
    """By reference to the worker's environment; without one nothing secret is sent."""
    window: int | None = Field(default=None, ge=1_000, le=100_000_000)
    """Tokens that its models can read at once."""

    @property
    def key_variable(self) -> str | None:
        """The variable that holds its key."""
        return self.key[2:-1] if self.key else None


class ModelsSettings(Message):
    """Which models turns may ask, and servers beside those of the providers."""

    default: NonEmpty | None = None
    """What `holdfast chat` and `holdfast run` ask when nothing else is said."""
    allow: Annotated[tuple[Annotated[NonEmpty, AfterValidator(check_glob)], ...], AfterValidator(check_not_empty)] = (
        "*",
    )
    takes: Mapping[Annotated[NonEmpty, AfterValidator(check_glob)], tuple[MediaKind, ...]] = Field(default_factory=dict)
    """What models of these names are shown of what tools give beside text. The first that matches counts; without one
    a provider's model takes what its package knows, and a model of a server of yours nothing."""
    servers: Mapping[Name, ModelServerSettings] = Field(default_factory=dict)

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables that hold the servers' keys."""
        return tuple(server.key_variable for server in self.servers.values() if server.key_variable)


class GatewaySettings(Message):
    """Where the HTTP endpoint listens, and the names it answers to beside that one."""

    host: Annotated[NonEmpty, AfterValidator(check_host_name)] = "127.0.0.1"
    port: Annotated[int, Field(strict=True, ge=0, le=65_535)] = 8234
    """0 is any that is free."""
    names: tuple[Annotated[NonEmpty, AfterValidator(check_host_name)], ...] = ()
    """Of a proxy in front of it that passes on the name it was called by."""


class WorkerSettings(Message):
    """How a worker is asked how it is, and how long it takes to end."""

    health: Annotated[str, AfterValidator(check_listen_address)] | None = None
    """Where probes ask it: host:port."""
    grace_seconds: Annotated[float, Field(strict=True, ge=0, le=86_400)] | None = None
    """What running calls get to finish by themselves when it ends; None for a few seconds."""
    heartbeat_seconds: Annotated[float, Field(strict=True, ge=0.2, le=8)] = 0.2
    """At most how often it tells the server of a running call, and hears whether to stop it."""


class LimitSettings(Message):
    """How much is taken in at once."""

    output_characters: Annotated[int, Field(strict=True, ge=1_000, le=1_000_000)] = OUTPUT_LIMIT
    """Of a result, that reach the model."""
    concurrent_calls: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 100
    """Per worker."""
    saved_output_bytes: Annotated[int, Field(strict=True, ge=1, le=10**15)] = 5_000_000_000
    """Of one whole output, kept on disk."""


class Configuration(Message):
    """The whole file. None where it says nothing and the environment or a default decides."""

    workspace: SettingPath | None = None
    data: SettingPath | None = None
    task_queue: Annotated[NonEmpty, AfterValidator(check_queue_name)] | None = None
    policy: tuple[SettingPath, ...] = ()
    modes: Annotated[tuple[Mode, ...], AfterValidator(check_not_empty)] | None = None
    confirm: Confirming = Confirming.POLICY
    """Of all turns: which calls are asked about. A turn may want more of them."""
    yolo_asks: Flag = True
    """Does mode `yolo` ask about commands that destroy or cannot be read, and about tools that say they destroy?"""
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
    """Check a settings file. Relative paths count from the folder where it is."""
    return parse_document(content, Configuration, {"folder": content.file.parent, "names": {}})
