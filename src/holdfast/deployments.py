"""Which version of the code a worker is: the settings of Temporal's worker deployments, and what names they take.

Without a build a worker has no version, and takes up whatever there is. With one, a turn stays with the version that it
began on. docs/upgrading.md tells both ways.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from holdfast.model import Message

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
