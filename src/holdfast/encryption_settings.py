"""`[encryption]` of the settings file: where keys come from. Never a key itself: the file is shown and kept about."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from holdfast.beside import BesideTheFile
from holdfast.model import Message
from holdfast.setting_values import Command, Name, SettingPath, check_unique

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
