"""The settings of one command: its options, the environment, and the settings file that the command line chose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from holdfast.activities.policy.find_protected import check_places
from holdfast.config.settings import Settings, load_settings
from holdfast.config.trust import UntrustedFile
from holdfast.errors import BadInput
from holdfast.workers.cli.options import chosen_config
from holdfast.workers.terminal.output import print_note


def resolve_settings(data: Path | None = None, workspace: Path | None = None) -> Settings:
    """The settings of this process: options win over the environment, the environment over the file."""
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
    """Settings for a command that only talks to a server, and so may ignore a file that is not trusted.

    UntrustedFile if the file has encryption keys: without them nothing could be read, and messages would be sent in the
    clear.
    """
    try:
        return resolve_settings(data)
    except UntrustedFile as error:
        if error.encrypts:
            raise
        _note_once(f"Ignored the settings file: {error}.")
        return apply_options(Settings(), data, None)


@cache
def _note_once(text: str) -> None:
    """Print a note once, although a command may load its settings more than once."""
    print_note(text)


def check_workspace(settings: Settings) -> None:
    """BadInput when the workspace is not a folder, or contains the data folder or a private key."""
    if not settings.workspace.is_dir():
        line = settings.file_lines.get("workspace")
        where = f"{settings.file}, line {line}: " if line else ""
        raise BadInput(f"{where}the workspace {str(settings.workspace)!r} is not a folder")
    check_places(settings)
