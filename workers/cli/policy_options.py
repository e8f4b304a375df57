"""The options that `holdfast policy` and `holdfast policy diff` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.activities.policy.load_policy import PolicySource
from holdfast.activities.policy.rules import Tier
from holdfast.config.trust import resolve_file
from holdfast.util.suggestions import did_you_mean
from holdfast.workers.terminal.output import escape_line

Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", metavar="[TIER=]FILE", help="Add a file: workspace=, user= (the default) or admin=."),
]
TierName = Annotated[str, typer.Option("--tier", metavar="TIER", help="workspace, user or admin.")]


def parse_source(text: str) -> PolicySource:
    """Parse `TIER=FILE`; a file without a tier is of the tier `user`."""
    tier, mark, file = text.partition("=")
    if mark and tier in (Tier.WORKSPACE, Tier.USER, Tier.ADMIN):
        return PolicySource(parse_path(file), Tier(tier))
    return PolicySource(parse_path(text), Tier.USER)


def parse_path(file: str) -> Path:
    """The absolute path of a file; BadParameter for an empty name."""
    if not file.strip():
        raise typer.BadParameter("the file's name is empty")
    return resolve_file(Path(file))


def parse_choice(what: str, text: str, known: tuple[str, ...]) -> str:
    """The text if it is one of the `known` words; BadParameter otherwise."""
    if text not in known:
        hint = did_you_mean(text, known) or f"It is one of {', '.join(known)}."
        raise typer.BadParameter(f"no {what} is called {escape_line(text)!r}. {hint}")
    return text
