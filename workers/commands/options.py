"""What the commands share: options, the way to a connected `Holdfast`, the exit codes.

Imports here are light: `holdfast --help` must not load Temporal. Commands import what they need when they run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from holdfast.client import Holdfast
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
TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]


def example(*lines: str) -> str:
    """The end of a command's help."""
    return "Example:\n\n\b\n" + "\n".join(f"  {line}" for line in lines) + f"\n\n{EXIT_CODES}"


def settings_of(data: Path | None = None, workspace: Path | None = None) -> Settings:
    """The settings of this process: options win over the environment."""
    from holdfast.settings import Settings

    usual = Settings()
    return replace(
        usual,
        data=data.expanduser().absolute() if data else usual.data,
        workspace=workspace.expanduser().absolute() if workspace else usual.workspace,
    )


async def open_holdfast(data: Path | None, address: str | None) -> Holdfast:
    """A client for one command."""
    from holdfast.client import Holdfast
    from holdfast.plugin import HoldfastPlugin
    from holdfast.workers import logs
    from holdfast.workers.connecting import connect

    logs.silence()
    settings = settings_of(data)
    client = await connect(settings, HoldfastPlugin(settings), address=address)
    return Holdfast(client, task_queue=settings.task_queue)


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


def note(text: str) -> None:
    """A remark beside the answer."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def interactive() -> bool:
    """Is a person at both ends?"""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
