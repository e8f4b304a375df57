"""Finds the protected files of a worker from its settings, and checks that its data and keys are out of reach.

Known names are not enough: a policy file may have any name and place. See `protected_files`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import holdfast
from holdfast.activities.policy.load_policy import ADMIN_FILE, WORKSPACE_FILE
from holdfast.activities.policy.protected_files import ProtectedFiles
from holdfast.client.signing_keys import find_keys_folder, list_keys
from holdfast.config.named_files import find_named_files
from holdfast.config.settings import Settings
from holdfast.config.trust import find_records_folder, find_user_folder
from holdfast.errors import BadInput

_GIT_SECONDS = 5.0
"""The time that git may take to name the folder of hooks."""


def build_protected(settings: Settings) -> ProtectedFiles:
    """The files that these settings protect. Reads the disk, and asks git for the hooks folder of the workspace."""
    found: dict[Path, str] = {}
    for place, reason in _list_places(settings):
        for path in (Path(os.path.abspath(place)), place.resolve()):
            found.setdefault(path, reason)
    scripts = find_named_files(settings, _find_folder(settings)).run
    beside = {file.resolve().parent for file in scripts if file.suffix == ".py"}
    root = settings.workspace.resolve()
    above = {folder for folder in beside if root.is_relative_to(folder)}
    for folder in beside - above:
        found.setdefault(folder, "a script that the settings name imports from this folder")
    return ProtectedFiles(settings.workspace, found, frozenset(above))


def check_places(settings: Settings) -> None:
    """BadInput when our data or a private key is in the workspace, where tools could change it."""
    root = settings.workspace.resolve()
    advice = "choose another workspace (--workspace, or start it in the folder of a project)"
    if settings.data.resolve().is_relative_to(root):
        raise BadInput(
            f"the data folder {str(settings.data)!r} is in the workspace {str(settings.workspace)!r}, where tools "
            f"could write it: {advice}, or another data folder (--data)"
        )
    for key in _list_key_files(settings):
        if key.resolve().is_relative_to(root):
            raise BadInput(
                f"the key {str(key)!r} is in the workspace {str(settings.workspace)!r}, where tools could read and "
                f"replace it: {advice}, or keep the key elsewhere"
            )


def _list_places(settings: Settings) -> Iterator[tuple[Path, str]]:
    named = find_named_files(settings, _find_folder(settings))
    if settings.file:
        yield settings.file, "it is the settings file"
    yield from ((file, "the settings take rules or servers from it") for file in named.read)
    yield from ((file, "the settings run it") for file in named.run)
    yield settings.workspace / WORKSPACE_FILE.parent, "rules are in it"
    yield ADMIN_FILE.parent, "rules are in it"
    yield settings.data, "it is the data folder"
    yield from ((key, "it is a key") for key in _list_key_files(settings))
    yield from ((folder, "settings, keys and records of trust are in it") for folder in _list_own_folders())
    yield Path(holdfast.__file__).parent, "it is the code of Holdfast"
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix), "the worker runs from it"
    if hooks := _find_hooks_folder(settings.workspace):
        yield hooks, "git runs what is in it"


def _find_folder(settings: Settings) -> Path:
    return settings.file.parent if settings.file else Path.cwd()


def _list_key_files(settings: Settings) -> Iterator[Path]:
    """The private keys that sign decisions, and those that encrypt payloads."""
    yield from (key.file for key in settings.encryption.keys if key.file)
    named = os.environ.get("HOLDFAST_KEY", "").strip()
    if "/" in named:
        yield Path(named)
    try:
        yield from (key.file for key in list_keys())
    except BadInput:
        return


def _list_own_folders() -> Iterator[Path]:
    for folder in (find_user_folder, find_records_folder, find_keys_folder):
        try:
            if found := folder():
                yield found
        except BadInput:
            continue


def _find_hooks_folder(workspace: Path) -> Path | None:
    """The folder of the hooks of the workspace; None when it is in no git repository."""
    try:
        words = ["git", "-c", "safe.bareRepository=explicit", "rev-parse", "--git-path", "hooks"]
        done = subprocess.run(words, cwd=workspace, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return workspace / os.fsdecode(done.stdout.rstrip(b"\n")) if done.returncode == 0 else None
