"""The options that several commands have, the choice of the settings file, and the end of a help text.

`holdfast --help` imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from holdfast.util.durations import parse_duration

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed or refused; 2 wrong usage or unreadable input; 3 no server or no worker answers; "
    "130 interrupted by Ctrl-C."
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Temporal server; default: Temporal's configuration, else `holdfast up`."
    ),
]


def _parse_folder(value: str) -> Path:
    """Refuse an empty path: it would be the current folder, and usually comes from an unset variable."""
    if not value.strip():
        raise typer.BadParameter("the folder's name is empty")
    return Path(value)


def parse_seconds(value: str) -> int:
    """The seconds of a duration such as 90s, 15m or 1h30m."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value[:40]!r} {error}") from None


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="Data folder.",
        envvar="HOLDFAST_DATA",
        show_envvar=True,
        parser=_parse_folder,
    ),
]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="FOLDER",
        help="Folder that tools are confined to; default: the current one.",
        envvar="HOLDFAST_WORKSPACE",
        show_envvar=True,
        parser=_parse_folder,
    ),
]
ApprovalDeadline = Annotated[
    int | None,
    typer.Option(
        "--approval-deadline",
        metavar="1h30m",
        help="How long a person has to decide; after that the call is denied.",
        parser=parse_seconds,
    ),
]
Expires = Annotated[
    int | None,
    typer.Option("--expires", metavar="1h30m", help="How long it is valid: 90s, 15m, 1h30m, 7d.", parser=parse_seconds),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file; default: HOLDFAST_CONFIG, ./holdfast.toml if it is trusted, or the one in ~/.config.",
    ),
]
NoConfig = Annotated[bool, typer.Option("--no-config", help="Read no settings file.")]
ConfigDigest = Annotated[str | None, typer.Option("--config-digest", metavar="SHA256", hidden=True)]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]


@dataclass(frozen=True)
class ConfigChoice:
    """The settings file that the command line chose. With a digest, only with exactly this content."""

    file: Path | None = None
    none: bool = False
    digest: str | None = None


_CONFIG_CHOICE: ContextVar[ConfigChoice] = ContextVar("holdfast_config_choice")


def choose_config(config: str | None, no_config: bool, digest: str | None) -> None:
    """Store the options that choose the settings file."""
    if config is not None and no_config:
        raise typer.BadParameter("give --config or --no-config, not both")
    if config is not None and not config.strip():
        raise typer.BadParameter("the settings file's name is empty")
    _CONFIG_CHOICE.set(ConfigChoice(Path(config) if config else None, no_config, digest))


def chosen_config() -> ConfigChoice:
    """The settings file that was chosen by options before the command's name."""
    return _CONFIG_CHOICE.get(ConfigChoice())


def format_example(*lines: str) -> str:
    """The end of a command's help."""
    return "Example:\n\n\b\n" + "\n".join(f"  {line}" for line in lines) + f"\n\n{EXIT_CODES}"
