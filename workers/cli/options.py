"""What the commands share: options, the way to a connected `Holdfast`, the exit codes.

Imports here are light: `holdfast --help` must not load Temporal. Commands import what they need when they run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.workers.terminal.output import print_note

if TYPE_CHECKING:
    from holdfast.client.client import Holdfast
    from holdfast.client.signing_keys import Signer
    from holdfast.config.settings import Settings


T = TypeVar("T")

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed or refused; 2 wrong usage or unreadable input; 3 no server or no worker answers; "
    "130 interrupted by Ctrl-C."
)

Json = Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Temporal server; else Temporal's configuration, else `holdfast up`."
    ),
]


def _parse_folder(value: str) -> Path:
    """Refuse an empty path: it would be the current folder, and usually comes from an unset variable."""
    if not value.strip():
        raise typer.BadParameter("the folder's name is empty")
    return Path(value)


def parse_seconds(value: str) -> int:
    """A time as people write it: 90s, 15m, 1h30m."""
    from holdfast.util.durations import parse_duration

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
        help="The folder the tools are confined to; else the current one.",
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
        help="How long an approval waits; what nobody answered by then is denied.",
        parser=parse_seconds,
    ),
]
Expires = Annotated[
    int | None,
    typer.Option("--expires", metavar="1h30m", help="Counts so long: 90s, 15m, 1h30m, 7d.", parser=parse_seconds),
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file; else HOLDFAST_CONFIG, else ./holdfast.toml if it is trusted, else the one in ~/.config.",
    ),
]
NoConfig = Annotated[bool, typer.Option("--no-config", help="Read no settings file.")]
ConfigDigest = Annotated[str | None, typer.Option("--config-digest", metavar="SHA256", hidden=True)]
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]


@dataclass(frozen=True)
class ConfigChoice:
    """Which settings file the command line asks for. With a digest, only with exactly this content."""

    file: Path | None = None
    none: bool = False
    digest: str | None = None


_CONFIG_CHOICE: ContextVar[ConfigChoice] = ContextVar("holdfast_config_choice")


def choose_config(config: str | None, no_config: bool, digest: str | None) -> None:
    """Remember the options that choose the settings file."""
    if config is not None and no_config:
        raise typer.BadParameter("give --config or --no-config, not both")
    if config is not None and not config.strip():
        raise typer.BadParameter("the settings file's name is empty")
    _CONFIG_CHOICE.set(ConfigChoice(Path(config) if config else None, no_config, digest))


def chosen_config() -> ConfigChoice:
    """The options about the settings file, which stand before the command's name."""
    return _CONFIG_CHOICE.get(ConfigChoice())


def format_example(*lines: str) -> str:
    """The end of a command's help."""
    return "Example:\n\n\b\n" + "\n".join(f"  {line}" for line in lines) + f"\n\n{EXIT_CODES}"


def resolve_settings(data: Path | None = None, workspace: Path | None = None) -> Settings:
    """The settings of this process: options win over the environment, the environment over the file."""
    from holdfast.config.settings import Settings, load_settings

    choice = chosen_config()
    usual = Settings() if choice.none else load_settings(choice.file, digest=choice.digest)
    return apply_options(usual, data, workspace)


def apply_options(usual: Settings, data: Path | None, workspace: Path | None) -> Settings:
    """Settings with the folders that a command's options name."""
    given = {
        name: folder.expanduser().absolute()
        for name, folder in (("data", data), ("workspace", workspace))
        if folder is not None
    }
    lines = {name: line for name, line in usual.file_lines.items() if name not in given}
    return replace(
        usual,
        data=given.get("data", usual.data),
        workspace=given.get("workspace", usual.workspace),
        file_lines=lines,
    )


def resolve_client_settings(data: Path | None) -> Settings:
    """Settings for a command that only talks to a server: it runs nothing that a file names, so it goes on without.

    Not without keys, if it has any: nothing could be read, and what is said here would be sent in the clear.
    """
    from holdfast.config.settings import Settings
    from holdfast.config.trust import UntrustedFile

    try:
        return resolve_settings(data)
    except UntrustedFile as error:
        if error.encrypts:
            raise
        _note_once(f"Left out: {error}.")
        return apply_options(Settings(), data, None)


@cache
def _note_once(text: str) -> None:
    """A command may load its settings more than once."""
    print_note(text)


def find_signer(settings: Settings) -> Signer | None:
    """Who signs what this command decides: the key that HOLDFAST_KEY names, else that of the data folder."""
    from holdfast.client.owner_key import find_owner_signer
    from holdfast.client.signing_keys import load_signer

    named = os.environ.get("HOLDFAST_KEY", "").strip()
    return load_signer(named, settings.approvers) if named else find_owner_signer(settings)


async def open_holdfast(data: Path | None, address: str | None) -> Holdfast:
    """A client for one command."""
    from holdfast.client.client import Holdfast
    from holdfast.workers.runtime import log_setup
    from holdfast.workers.runtime.connect import connect_client

    log_setup.silence_logging()
    settings = resolve_client_settings(data)
    signer = find_signer(settings)
    client = await connect_client(settings, address=address)
    return Holdfast(client, task_queue=settings.task_queue, signer=signer)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in an event loop of its own."""
    with asyncio.Runner() as runner:
        return runner.run(work)
