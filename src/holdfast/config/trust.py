"""Which settings file counts: one that was named, the user's own, or one found here that was looked at.

The file names commands that run at start, and whoever may write in a folder may leave one there: a model, an archive,
a colleague. So a file that is merely found in the current folder counts only while its path and its content are on
record (`holdfast config trust`), as direnv does it, and the content of the policy files, scripts and modules that it
names (`named_files`). The record is the user's own, outside of any workspace.

    --config FILE, HOLDFAST_CONFIG                named: counts
    ./holdfast.toml                               found: counts while it is trusted
    $XDG_CONFIG_HOME/holdfast/holdfast.toml       the user's own: counts                  (~/.config)

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
    """A file that was found and does not count."""

    def __init__(self, message: str, *, encrypts: bool = False) -> None:
        super().__init__(message)
        self.encrypts = encrypts
        """Does it seem to have keys for encryption?"""


@dataclass(frozen=True)
class SettingsSource:
    """A settings file and how we came to it: by name, in the current folder, in the user's own."""

    file: Path
    origin: Literal["option", "environment", "folder", "user"]


def find_settings_file(named: Path | None = None) -> SettingsSource | None:
    """The file that would be used. One that is named need not exist: that is for the reader to say."""
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
    """Where the user's own settings are; None without a home."""
    return _find_own_folder("XDG_CONFIG_HOME", ".config")


def find_records_folder() -> Path:
    """Where records of trust are kept. BadInput when there is no place for them."""
    folder = _find_own_folder("XDG_STATE_HOME", ".local/state")
    if not folder:
        raise BadInput("you have no home folder to keep records of trust in: set XDG_STATE_HOME")
    return folder / "trusted"


def resolve_file(file: Path) -> Path:
    """A file's one true path. The folder is resolved; the file itself may be a link, and counts where the link is."""
    try:
        file = file.expanduser()
        return file.parent.resolve() / file.name
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"{str(file)!r} cannot be read: {error}") from None


def read_source(source: SettingsSource, digest: str | None = None) -> FileContent:
    """Read the file if it counts; BadInput if it was found and is not trusted, or is not what `digest` says."""
    content = read_content(source.file)
    if content.problem:
        return content
    if digest and combine_digests(content.digest, _find_names(content)) != digest:
        what = f"{source.file}, or a file that it names, has changed since `holdfast up` read it"
        raise BadInput(f"{what}: start `holdfast up` again")
    if source.origin == "folder" and not is_trusted(content):
        encrypts = _mentions_keys(content)
        keys = ". It has [encryption]: without its keys nothing encrypted is read, and what you say goes in the clear"
        raise UntrustedFile(f"{source.file} {explain_untrusted(content)}{keys if encrypts else ''}", encrypts=encrypts)
    return content


def _mentions_keys(content: FileContent) -> bool:
    """Does it look as if it had keys? Nothing else of it counts."""
    try:
        return "encryption" in tomllib.loads(content.data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False


def explain_untrusted(content: FileContent) -> str:
    """Why a file does not count, and what to do."""
    kept, now = _load_record(content.file), _build_record(content)
    why = "has changed since it was trusted"
    if kept is None:
        why = "was found here and is not trusted"
    elif kept.get("sha256") == content.digest and isinstance(before := kept.get("names"), dict):
        changed = ", ".join(list_changed_files(before, now["names"]))
        why = f"names files that have changed since it was trusted ({shorten_text(escape_controls(changed), 500)})"
    return (
        f"{why}: it decides which commands run. Look at it, then `holdfast config trust`; "
        "or name it with --config; or leave it out with --no-config"
    )


def is_trusted(content: FileContent) -> bool:
    """Is exactly this content of this file, and of all that it names, on record?"""
    return not content.problem and _load_record(content.file) == _build_record(content)


def _load_record(file: Path) -> dict[str, Any] | None:
    """What is on record of a file. A record that somebody else could write is none."""
    record = _locate_record(file)
    try:
        status = record.stat()
        kept = json.loads(record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    safe = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return kept if safe and isinstance(kept, dict) else None


def trust_file(content: FileContent) -> None:
    """Put it on record, for the user alone to read and write."""
    record = _locate_record(content.file)
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(record, json.dumps(_build_record(content)).encode())
    except OSError as error:
        raise BadInput(f"the record of trust cannot be written in {record.parent}: {error.strerror}") from error


def distrust_file(file: Path) -> bool:
    """Take it off the record; False when it was not there."""
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
    """What the file names; nothing when it cannot be read, and so runs nothing."""
    found = parse_configuration(content).value
    return find_named_files(found, content.file.parent) if found else NamedFiles()


def _locate_record(file: Path) -> Path:
    return find_records_folder() / f"{hashlib.sha256(os.fsencode(file)).hexdigest()}.json"


def _find_local_file() -> Path | None:
    """A dangling link is there as well: whoever left it may yet fill it."""
    with suppress(OSError):
        here = Path.cwd() / FILE_NAME
        return here if os.path.lexists(here) else None
    return None


def _find_own_folder(variable: str, usual: str) -> Path | None:
    """Our folder among the user's. A relative path in the variable does not count, as the standard has it."""
    value = Path(os.environ.get(variable) or f"~/{usual}")
    with suppress(RuntimeError):
        folder = value if value.is_absolute() else Path("~", usual).expanduser()
        return folder / "holdfast"
    return None
