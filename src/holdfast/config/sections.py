"""The tables `[storage]`, `[encryption]`, `[telemetry]` and `[deployment]` of `holdfast.toml`.

Credentials are the environment's, as the libraries of either cloud know them; none stand here.

Never a key itself: the file is shown and kept about.

Without a build a worker has no version, and takes up whatever there is. With one, a turn stays with the version that it
began on. docs/how-to/upgrading.md tells both ways.
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
from holdfast.domain.base import Message

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


class BucketSettings(Message):
    """A bucket: where objects are written and read, and where they were before."""

    bucket: Bucket
    prefix: Prefix | None = None
    """Before every object's name, for a bucket that holds other things too."""
    formerly: tuple[Bucket, ...] = ()
    """Buckets that old references name; they are only read."""

    @property
    def bucket_names(self) -> frozenset[str]:
        """All that a reference may name."""
        return frozenset((self.bucket, *self.formerly))


class S3Settings(BucketSettings):
    """A bucket of S3, or of something that speaks as S3 does."""

    region: NonEmpty | None = None
    """Else AWS_REGION, or what AWS's own files say."""
    endpoint: Annotated[str, AfterValidator(check_plain_web_address)] | None = None
    """Of a store that is not AWS's."""


class GcsSettings(BucketSettings):
    """A bucket of Google Cloud Storage."""


class StorageSettings(Message):
    """Which store is written to. Every store that is told of here is read from; the data folder's always is."""

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
        """Variables with our credentials: no command inherits them."""
        return (*(S3_SECRETS if self.s3 else ()), *(GCS_SECRETS if self.gcs else ()))


_VARIABLE = re.compile(r"HOLDFAST_[A-Za-z0-9_]+")


def _check_variable_name(text: str) -> str:
    """Text that may be a key is not repeated by a complaint about it, and so not by this one either."""
    if not _VARIABLE.fullmatch(text):
        raise ValueError(
            "must be the name of a variable that begins with HOLDFAST_, as `HOLDFAST_ENCRYPTION_KEY`: "
            "only those are kept from commands"
        )
    return text


class KeySettings(BesideTheFile):
    """A key: its id, which stands beside everything it encrypts, and where it comes from."""

    id: Name
    env: Annotated[str, AfterValidator(_check_variable_name)] | None = None
    """A variable of the environment that holds it."""
    file: SettingPath | None = None
    """A file that holds it, for its owner alone."""
    command: Command | None = None
    """A program that prints it."""
    timeout_seconds: Annotated[float, Field(strict=True, ge=1, le=300)] = 10
    """Of the command."""

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


class EncryptionSettings(Message):
    """The keys: the first is written with, all of them are read with. None, and nothing is encrypted."""

    keys: tuple[KeySettings, ...] = ()
    plain: Literal["accept", "refuse"] = "accept"
    """What becomes of payloads that are not encrypted."""
    retired: tuple[Name, ...] = ()
    """Ids of keys that are over, and that nobody waits for any more."""

    @model_validator(mode="after")
    def _check_over(self) -> EncryptionSettings:
        if both := [key.id for key in self.keys if key.id in self.retired]:
            raise ValueError(f"has {both[0]!r} among `keys` and among `retired`: leave it out of one of them")
        return self

    @model_validator(mode="after")
    def _check_refusal(self) -> EncryptionSettings:
        if self.plain == "refuse" and not self.keys:
            raise ValueError('has `plain = "refuse"`, and no `keys` that anything could be encrypted with')
        return self


def check_listening_address(text: str) -> str:
    """Where something listens: an address and a port."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_address = re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", bare) and all(int(part) < 256 for part in bare.split("."))
    is_six = host.startswith("[") and re.fullmatch(r"[0-9A-Fa-f:.]{2,45}", bare)
    if not (is_address or is_six) or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("must be an address and a port, as 127.0.0.1:9464 or [::1]:9464")
    return text


class TelemetrySettings(Message):
    """Traces, metrics and logs. None of them holds what calls are given or give back, unless `content` says so."""

    traces: Literal["none", "otlp"] = "none"
    """Where to, and with which credentials, is in OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT …"""
    metrics: Annotated[str, AfterValidator(check_listening_address)] | None = None
    """Where a worker answers Prometheus."""
    logs: Literal["text", "json"] = "text"
    content: Annotated[bool, Field(strict=True)] = False
    """May logs and traces hold titles, reasons and the texts of exceptions? They may quote arguments and output."""


DEFAULT_NAME = "holdfast"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,127}")


def check_deployment_name(text: str) -> str:
    """A name that Temporal takes: it writes versions as `name.build` and as `name:build`."""
    if not _NAME.fullmatch(text):
        raise ValueError("must be 1 to 80 letters, digits, `_` or `-`, a letter or a digit first")
    return text


def check_build_name(text: str) -> str:
    """A build that Temporal takes, and that can stand in a command without quotes."""
    if not _BUILD.fullmatch(text):
        raise ValueError("must be 1 to 128 letters, digits, `.`, `_`, `+`, `@` or `-`, a letter or a digit first")
    return text


class DeploymentSettings(Message):
    """The deployment that a worker belongs to, and its version there."""

    name: Annotated[str, AfterValidator(check_deployment_name)] = DEFAULT_NAME
    build: Annotated[str, AfterValidator(check_build_name)] | None = None
