"""`[storage]` of the settings file: where payloads are kept that are too large for a history.

Credentials are the environment's, as the libraries of either cloud know them; none stand here.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from holdfast.model import Message
from holdfast.setting_values import NonEmpty, check_plain_web_address

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
