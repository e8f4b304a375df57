"""The tables `[storage]`, `[encryption]`, `[telemetry]` and `[deployment]` of `holdfast.toml`.

The file holds no keys and no credentials, since it is shown and shared. The libraries of the clouds read their
credentials from the environment.

A worker without a build has no version, and runs any turn. With a build, a turn stays with the version on which it
started (docs/how-to/upgrading.md).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from holdfast.config.types import (
    BesideTheFile,
    Command,
    Name,
    NonEmpty,
    SettingPath,
    check_plain_web_address,
    check_unique,
)
from holdfast.domain.base import StrictData

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*/?")
S3_SECRETS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
GCS_SECRETS = ("GOOGLE_APPLICATION_CREDENTIALS",)


def _check_bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError("must be the name of a bucket, without an address before it or a path behind it")
    return text


def _check_prefix(text: str) -> str:
    if len(text) > 200 or not _PREFIX.fullmatch(text):
        raise ValueError("must be up to 200 letters, digits and `-_.`, with `/` between parts and none before them")
    return text if text.endswith("/") else f"{text}/"


Bucket = Annotated[NonEmpty, AfterValidator(_check_bucket)]
Prefix = Annotated[NonEmpty, AfterValidator(_check_prefix)]


class BucketSettings(StrictData):
    """A bucket for payloads, and former buckets to read from."""

    bucket: Bucket
    prefix: Prefix | None = None
    """The prefix of every object's name, for a bucket that holds other objects too."""
    formerly: tuple[Bucket, ...] = ()
    """The buckets of old references, which are only read."""

    @property
    def bucket_names(self) -> frozenset[str]:
        """The buckets that a reference may name."""
        return frozenset((self.bucket, *self.formerly))


class S3Settings(BucketSettings):
    """A bucket of S3, or of a store with the same API."""

    region: NonEmpty | None = None
    """The region; by default AWS_REGION, or that of AWS's own files."""
    endpoint: Annotated[str, AfterValidator(check_plain_web_address)] | None = None
    """The address of a store other than AWS."""


class GcsSettings(BucketSettings):
    """A bucket of Google Cloud Storage."""


class StorageSettings(StrictData):
    """`[storage]`: the store for new payloads. Every store that is configured is read, and so is the data folder."""

    kind: Literal["files", "s3", "gcs"] = "files"
    s3: S3Settings | None = None
    gcs: GcsSettings | None = None

    @model_validator(mode="after")
    def _check_store_named(self) -> StorageSettings:
        if self.kind != "files" and getattr(self, self.kind) is None:
            raise ValueError(f'has `kind = "{self.kind}"`, and needs [storage.{self.kind}] with its `bucket`')
        return self

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The variables with the stores' credentials, which no command inherits."""
        return (*(S3_SECRETS if self.s3 else ()), *(GCS_SECRETS if self.gcs else ()))


_VARIABLE = re.compile(r"HOLDFAST_[A-Za-z0-9_]+")


def _check_variable_name(text: str) -> str:
    """Check the name of a variable. The error does not repeat the text, which may be a key."""
    if not _VARIABLE.fullmatch(text):
        raise ValueError(
            "must be the name of a variable that begins with HOLDFAST_, as `HOLDFAST_ENCRYPTION_KEY`: "
            "commands do not inherit such variables"
        )
    return text


class KeySettings(BesideTheFile):
    """`[[encryption.keys]]`: a key by its id, which everything encrypted with it names, and its source."""

    id: Name
    env: Annotated[str, AfterValidator(_check_variable_name)] | None = None
    """The environment variable that holds the key."""
    file: SettingPath | None = None
    """The file that holds the key, readable by its owner alone."""
    command: Command | None = None
    """The command that prints the key."""
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    """The time limit of the command."""

    @field_validator("id")
    @classmethod
    def _check_unique(cls, value: str, info: ValidationInfo) -> str:
        return check_unique(value, "encryption.keys", info)

    @model_validator(mode="after")
    def _check_one_way(self) -> KeySettings:
        if sum(way is not None for way in (self.env, self.file, self.command)) != 1:
            raise ValueError("needs one of `env`, `file` and `command`: where the key comes from")
        if self.command is None and "timeout_seconds" in self.model_fields_set:
            raise ValueError("has `timeout_seconds`, which is for a `command`")
        return self


class EncryptionSettings(StrictData):
    """`[encryption]`: the keys. The first one encrypts, all of them decrypt; without keys nothing is encrypted."""

    keys: tuple[KeySettings, ...] = ()
    plain: Literal["accept", "refuse"] = "accept"
    """Accept or refuse payloads that are not encrypted."""
    retired: tuple[Name, ...] = ()
    """The ids of keys that no longer exist: payloads under them become unreadable, instead of waiting for the key."""

    @model_validator(mode="after")
    def _check_over(self) -> EncryptionSettings:
        if both := [key.id for key in self.keys if key.id in self.retired]:
            raise ValueError(f"has {both[0]!r} among `keys` and among `retired`: leave it out of one of them")
        return self

    @model_validator(mode="after")
    def _check_refusal(self) -> EncryptionSettings:
        if self.plain == "refuse" and not self.keys:
            raise ValueError('has `plain = "refuse"`, and needs `keys` to encrypt with')
        return self


def check_listening_address(text: str) -> str:
    """Check an IP address and a port to listen at, and return it."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_address = re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", bare) and all(int(part) < 256 for part in bare.split("."))
    is_six = host.startswith("[") and re.fullmatch(r"[0-9A-Fa-f:.]{2,45}", bare)
    if not (is_address or is_six) or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("must be an address and a port, as 127.0.0.1:9464 or [::1]:9464")
    return text


class TelemetrySettings(StrictData):
    """`[telemetry]`: traces, metrics and logs. They hold no arguments and results of calls, unless `content` is set."""

    traces: Literal["none", "otlp"] = "none"
    """The collector and its credentials are set in OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT …"""
    metrics: Annotated[str, AfterValidator(check_listening_address)] | None = None
    """The address at which a worker serves metrics to Prometheus."""
    logs: Literal["text", "json"] = "text"
    content: Annotated[bool, Field(strict=True)] = False
    """May logs and traces hold titles, reasons and the texts of exceptions? They may quote arguments and output."""


DEFAULT_NAME = "holdfast"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,127}")


def check_deployment_name(text: str) -> str:
    """Check the name of a deployment. Temporal writes versions as `name.build` and as `name:build`."""
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 80 letters, digits, `_` or `-`, a letter or a digit first")
    return text


def check_build_name(text: str) -> str:
    """Check a build: Temporal accepts it, and a shell needs no quotes for it."""
    if not _BUILD.fullmatch(text):
        raise ValueError("must be 1 to 128 letters, digits, `.`, `_`, `+`, `@` or `-`, a letter or a digit first")
    return text


class DeploymentSettings(StrictData):
    """`[deployment]`: the worker deployment of this process, and its build."""

    name: Annotated[str, AfterValidator(check_deployment_name)] = DEFAULT_NAME
    build: Annotated[str, AfterValidator(check_build_name)] | None = None
