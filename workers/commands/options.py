"""What the commands share: options, the way to a connected `Holdfast`, the exit codes.

Imports here are light: `holdfast --help` must not load Temporal. Commands import what they need when they run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.keys import Signer
    from holdfast.settings import Settings

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


def _folder(value: str) -> Path:
    """An empty path would be the current folder, which nobody means who gives an unset variable."""
    if not value.strip():
        raise typer.BadParameter("the folder's name is empty")
    return Path(value)


def seconds(value: str) -> int:
    """A time as people write it: 90s, 15m, 1h30m."""
    from holdfast.durations import seconds_of

    try:
        return seconds_of(value)
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
        parser=_folder,
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
        parser=_folder,
    ),
]
ApprovalDeadline = Annotated[
    int | None,
    typer.Option(
        "--approval-deadline",
        metavar="1h30m",
        help="How long an approval waits; what nobody answered by then is denied.",
        parser=seconds,
    ),
]
Expires = Annotated[
    int | None,
    typer.Option("--expires", metavar="1h30m", help="Counts so long: 90s, 15m, 1h30m, 7d.", parser=seconds),
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
class Choice:
    """Which settings file the command line asks for. With a digest, only with exactly this content."""

    file: Path | None = None
    none: bool = False
    digest: str | None = None


_CHOICE: ContextVar[Choice] = ContextVar("holdfast_config_choice")


def choose_config(config: str | None, no_config: bool, digest: str | None) -> None:
    """Remember what the command line says about the settings file."""
    if config is not None and no_config:
        raise typer.BadParameter("give --config or --no-config, not both")
    if config is not None and not config.strip():
        raise typer.BadParameter("the settings file's name is empty")
    _CHOICE.set(Choice(Path(config) if config else None, no_config, digest))


def chosen_config() -> Choice:
    """What was said before the command's name."""
    return _CHOICE.get(Choice())


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "Example:\n\n\b\n" + "\n".join(f"  {line}" for line in lines) + f"\n\n{EXIT_CODES}"


def settings_of(data: Path | None = None, workspace: Path | None = None) -> Settings:
    """The settings of this process: options win over the environment, the environment over the file."""
    from holdfast.settings import Settings, load_settings

    choice = chosen_config()
    usual = Settings() if choice.none else load_settings(choice.file, digest=choice.digest)
    return with_options(usual, data, workspace)


def with_options(usual: Settings, data: Path | None, workspace: Path | None) -> Settings:
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


def client_settings(data: Path | None) -> Settings:
    """Settings for a command that only talks to a server: it runs nothing that a file names, so it goes on without.

    Not without keys, if it has any: nothing could be read, and what is said here would be sent in the clear.
    """
    from holdfast.settings import Settings
    from holdfast.trust import Untrusted

    try:
        return settings_of(data)
    except Untrusted as error:
        if error.encrypts:
            raise
        note(f"Left out: {error}.")
        return with_options(Settings(), data, None)


def find_signer(settings: Settings) -> Signer | None:
    """Who signs what this command decides: the key that HOLDFAST_KEY names, else that of the data folder."""
    from holdfast.keys import signer_of
    from holdfast.owner_key import find_owner_signer

    named = os.environ.get("HOLDFAST_KEY", "").strip()
    return signer_of(named, settings.approvers) if named else find_owner_signer(settings)


async def open_holdfast(data: Path | None, address: str | None) -> Holdfast:
    """A client for one command."""
    from holdfast.client import Holdfast
    from holdfast.workers import logs
    from holdfast.workers.connecting import connect

    logs.silence()
    settings = client_settings(data)
    signer = find_signer(settings)
    client = await connect(settings, address=address)
    return Holdfast(client, task_queue=settings.task_queue, signer=signer)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work; nobody waits for what it leaves behind."""
    with asyncio.Runner() as runner:
        return runner.run(work)


def emit(value: Any) -> None:
    """One JSON document, on one line when it is read line by line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True, indent=2 if sys.stdout.isatty() else None) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """One line for whoever waits for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(json: bool, text: str, **body: Any) -> None:
    """What a command did: a sentence, or the same as JSON."""
    from holdfast.content import plain

    if json:
        emit(body)
    else:
        say(plain(text))


def harmless(value: object) -> str:
    """One line in which every character shows: names of others may hold anything."""
    from holdfast.workers.outline import harmless

    return harmless(str(value))


def note(text: str) -> None:
    """A remark beside the answer. Names in it may be anybody's."""
    from holdfast.content import plain

    sys.stderr.write(plain(text) + "\n")
    sys.stderr.flush()


def interactive() -> bool:
    """Is a person at both ends?"""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
