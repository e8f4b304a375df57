"""Finding the settings file, and trust in a file that is found in the current folder.

The file names commands that run at start, and anything that can write to a folder may have put it there: a model, an
archive, a colleague. So a file in the current folder is used only while its path, its content and the content of the
files that it names (`named_files`) match a record, which `holdfast config trust` makes, as direnv does. The records are
in the user's state folder, outside of any workspace.

    --config FILE, HOLDFAST_CONFIG                named: used
    ./holdfast.toml                               found: used while it is trusted
    $XDG_CONFIG_HOME/holdfast/holdfast.toml       the user's own: used                    (~/.config)

Why: docs/decisions/0035-settings-are-trusted.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.config.named_files import NamedFiles, combine_digests, find_named_files, list_changed_files
from holdfast.config.schema import parse_configuration
from holdfast.config.toml_document import FileContent, read_content
from holdfast.errors import BadInput
from holdfast.util.files import write_whole
from holdfast.util.text import escape_controls, shorten_text

FILE_NAME = "holdfast.toml"
CONFIG_VARIABLE = "HOLDFAST_CONFIG"


class UntrustedFile(BadInput):
    """A settings file was found that is not trusted."""

    def __init__(self, message: str, *, encrypts: bool = False) -> None:
        super().__init__(message)
        self.encrypts = encrypts
        """Does it have a table [encryption]?"""


@dataclass(frozen=True)
class SettingsSource:
    """A settings file, and how it was found."""

    file: Path
    origin: Literal["option", "environment", "folder", "user"]


def find_settings_file(named: Path | None = None) -> SettingsSource | None:
    """Find the settings file. A named one need not exist; reading it reports that."""
    if named:
        return SettingsSource(resolve_file(named), "option")
    if variable := os.environ.get(CONFIG_VARIABLE):
        return SettingsSource(resolve_file(Path(variable)), "environment")
    folder = find_user_folder()
    own = resolve_file(folder / FILE_NAME) if folder else None
    here = _find_local_file()
    if here and here != own:
        return SettingsSource(here, "folder")
    return SettingsSource(own, "user") if own and os.path.lexists(own) else None


def find_user_folder() -> Path | None:
    """Return the folder of the user's own settings; None without a home folder."""
    return _find_own_folder("XDG_CONFIG_HOME", ".config")


def find_records_folder() -> Path:
    """Return the folder of the records of trust. BadInput without a home folder."""
    folder = _find_own_folder("XDG_STATE_HOME", ".local/state")
    if not folder:
        raise BadInput("you have no home folder to keep records of trust in: set XDG_STATE_HOME")
    return folder / "trusted"


def resolve_file(file: Path) -> Path:
    """Return the path of a file with its folder resolved. The file itself may be a link, which is not followed."""
    try:
        file = file.expanduser()
        return file.parent.resolve() / file.name
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"{str(file)!r} cannot be read: {error}") from None


def read_source(source: SettingsSource, digest: str | None = None) -> FileContent:
    """Read a settings file. UntrustedFile if it is not trusted, BadInput if its digest is not `digest`."""
    content = read_content(source.file)
    if content.problem:
        return content
    if digest and combine_digests(content.digest, _find_names(content)) != digest:
        what = f"{source.file}, or a file that it names, has changed since `holdfast up` read it"
        raise BadInput(f"{what}: start `holdfast up` again")
    if source.origin == "folder" and not is_trusted(content):
        encrypts = _mentions_keys(content)
        keys = ". It has [encryption]: without its keys nothing encrypted can be read, and nothing new is encrypted"
        raise UntrustedFile(f"{source.file} {explain_untrusted(content)}{keys if encrypts else ''}", encrypts=encrypts)
    return content


def _mentions_keys(content: FileContent) -> bool:
    """Does the file have a table [encryption]?"""
    try:
        return "encryption" in tomllib.loads(content.data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False


def explain_untrusted(content: FileContent) -> str:
    """Describe why a file is not trusted, and what to do."""
    record, now = _load_record(content.file), _build_record(content)
    why = "has changed since it was trusted"
    if record is None:
        why = "was found here and is not trusted"
    elif record.get("sha256") == content.digest and isinstance(before := record.get("names"), dict):
        changed = ", ".join(list_changed_files(before, now["names"]))
        why = f"names files that have changed since it was trusted ({shorten_text(escape_controls(changed), 500)})"
    return (
        f"{why}: it decides which commands run. Read it, then run `holdfast config trust`; "
        "or name it with --config; or leave it out with --no-config"
    )


def is_trusted(content: FileContent) -> bool:
    """Does the content of the file, and of all files that it names, match the record?"""
    return not content.problem and _load_record(content.file) == _build_record(content)


def _load_record(file: Path) -> dict[str, Any] | None:
    """Load the record of a file; None when there is none, or when other users can write it."""
    path = _locate_record(file)
    try:
        status = path.stat()
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    safe = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return record if safe and isinstance(record, dict) else None


def trust_file(content: FileContent) -> None:
    """Record the content of a file and of the files that it names as trusted."""
    record = _locate_record(content.file)
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(record, json.dumps(_build_record(content)).encode())
    except OSError as error:
        raise BadInput(f"the record of trust cannot be written in {record.parent}: {error.strerror}") from error


def distrust_file(file: Path) -> bool:
    """Remove the record of a file. Returns False when there was none."""
    try:
        _locate_record(file).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BadInput(f"the record of trust cannot be removed: {error.strerror}") from error
    return True


def _build_record(content: FileContent) -> dict[str, Any]:
    return {"file": str(content.file), "sha256": content.digest, "names": _find_names(content).digests}


def _find_names(content: FileContent) -> NamedFiles:
    """Find the files that a settings file names; none when it is invalid, and so runs nothing."""
    found = parse_configuration(content).value
    return find_named_files(found, content.file.parent) if found else NamedFiles()


def _locate_record(file: Path) -> Path:
    return find_records_folder() / f"{hashlib.sha256(os.fsencode(file)).hexdigest()}.json"


def _find_local_file() -> Path | None:
    """Find the file in the current folder. A dangling link counts: its target may be created later."""
    with suppress(OSError):
        here = Path.cwd() / FILE_NAME
        return here if os.path.lexists(here) else None
    return None


def _find_own_folder(variable: str, usual: str) -> Path | None:
    """Return Holdfast's folder below an XDG base folder. A relative path in the variable is ignored, as XDG says."""
    value = Path(os.environ.get(variable) or f"~/{usual}")
    with suppress(RuntimeError):
        folder = value if value.is_absolute() else Path("~", usual).expanduser()
        return folder / "holdfast"
    return None
