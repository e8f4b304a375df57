"""A table of the settings file that names something found or run from the file's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from holdfast.model import Message


class BesideTheFile(Message):
    """Something that a file names, and that is found or run from the file's folder."""

    folder: Annotated[Path, Field(exclude=True, validate_default=True)] = Path()
    """The file's folder. Not a key of the file."""

    @field_validator("folder", mode="before")
    @classmethod
    def _take_file_folder(cls, value: object, info: ValidationInfo) -> object:
        if not info.context:
            return value
        if value != Path():
            raise PydanticCustomError("extra_forbidden", "not a setting")
        return info.context["folder"]
