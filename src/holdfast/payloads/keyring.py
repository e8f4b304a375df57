"""The encryption keys of payloads, read from the environment, a file or a command, as the settings say.

A key is 32 random bytes in base64 (`holdfast encryption new-key`). An error names the line of the settings file, and
never quotes what was read.
"""

from __future__ import annotations

import base64
import binascii
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import BadInput
from holdfast.util.findings import Finding, report_ok, report_problem
from holdfast.util.private_files import UnfitFile, check_secret, read_regular_file

if TYPE_CHECKING:
    from holdfast.config.sections import KeySettings
    from holdfast.config.settings import Settings

KEY_SIZE = 32
_LIMIT = 10_000
"""Bytes that are read; a key has 44."""
_KEY_HINT = "`holdfast encryption new-key` makes one"


@dataclass(frozen=True)
class Key:
    """A key of 32 bytes, and its id, which everything encrypted with it names."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Keyring:
    """All keys that decrypt; the first one encrypts. Without keys, nothing is encrypted."""

    keys: tuple[Key, ...] = ()
    refuses_plain: bool = False
    """Refuse payloads that are not encrypted?"""
    retired: frozenset[str] = frozenset()
    """Ids of keys that are no longer used: a payload that names one counts as forged."""

    @property
    def active_key(self) -> Key | None:
        """The key that encrypts; None without keys."""
        return self.keys[0] if self.keys else None


@dataclass(frozen=True)
class KeyFound:
    """One key of the settings, or why it cannot be read."""

    id: str
    origin: str
    """The source of the key, for people."""
    key: Key | None = None
    problem: str | None = None


def generate_key() -> str:
    """A new random key, in base64."""
    return base64.b64encode(os.urandom(KEY_SIZE)).decode()


def load_keyring(settings: Settings) -> Keyring:
    """The keys of the settings. BadInput with all of their problems."""
    found = check_keys(settings)
    problems = [one.problem for one in found if one.problem]
    if problems:
        raise BadInput("\n".join(problems))
    encryption = settings.encryption
    keys = tuple(one.key for one in found if one.key)
    return Keyring(keys, encryption.plain == "refuse", frozenset(encryption.retired))


def check_keys(settings: Settings) -> list[KeyFound]:
    """Every key of the settings, read or with its problem."""
    found: list[KeyFound] = []
    for place, given in enumerate(settings.encryption.keys, start=1):
        one = _read_key(given, os.environ)
        twin = next((other.id for other in found if one.key and other.key and other.key.secret == one.key.secret), None)
        if twin:
            one = KeyFound(given.id, one.origin, problem=f"it is the same as {twin!r}: a new id needs a new key")
        found.append(_add_line(one, settings, place))
    return found


def _add_line(found: KeyFound, settings: Settings, place: int) -> KeyFound:
    """The result with the line of the settings file in its problem."""
    if found.problem is None:
        return found
    line = settings.file_lines.get(f"encryption.keys.{place}")
    where = f"{settings.file}, line {line}: " if line else ""
    text = f"{where}the encryption key {found.id!r} cannot be read from {found.origin}: {found.problem}"
    return KeyFound(found.id, found.origin, problem=text)


def _read_key(given: KeySettings, environment: Mapping[str, str]) -> KeyFound:
    origin = _describe_origin(given)
    try:
        if given.env:
            text = _read_environment_key(given.env, environment)
        elif given.file:
            text = _read_file_key(given.file)
        else:
            text = _read_command_key(given)
        return KeyFound(given.id, origin, key=Key(given.id, _decode_key(text)))
    except ValueError as error:
        return KeyFound(given.id, origin, problem=str(error))


def _describe_origin(given: KeySettings) -> str:
    if given.env:
        return f"the variable {given.env}"
    return f"the file {str(given.file)!r}" if given.file else f"the command {(given.command or ('',))[0]!r}"


def _read_environment_key(name: str, environment: Mapping[str, str]) -> bytes:
    if not environment.get(name, "").strip():
        raise ValueError("it is not set")
    return environment[name].encode("utf-8", "replace")


def _read_file_key(file: Path) -> bytes:
    """Read a file without waiting. ValueError for one that others may read or write."""
    try:
        return read_regular_file(file, _LIMIT, check_secret)
    except FileNotFoundError:
        raise ValueError(f"there is no such file; {_KEY_HINT}") from None
    except UnfitFile as error:
        raise ValueError(f"it {error}; {_KEY_HINT}") from None


def _read_command_key(given: KeySettings) -> bytes:
    """The output of a command. Its standard error may hold secrets, and is dropped."""
    try:
        process = subprocess.Popen(
            given.command or (),
            cwd=given.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(f"it does not start: {(error.strerror or 'no reason is known').lower()}") from None
    deadline = time.monotonic() + given.timeout_seconds
    with process:
        try:
            output = _read_output(process, deadline)
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, ValueError) as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            late = f"it did not end within {given.timeout_seconds:g} seconds"
            raise (error if isinstance(error, ValueError) else ValueError(late)) from None
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        raise ValueError(f"it {how}; run it yourself to see its error")
    return output


def _read_output(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """The output of a process, up to a limit; through a pipe, so that no key is on a disk."""
    output, pipe = b"", process.stdout
    assert pipe
    while len(output) < _LIMIT:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise subprocess.TimeoutExpired(process.args, 0)
        chunk = os.read(pipe.fileno(), _LIMIT)
        if not chunk:
            return output
        output += chunk
    raise ValueError("it prints far more than a key")


def _decode_key(text: bytes) -> bytes:
    """The key in a text, in either alphabet of base64. Raises ValueError."""
    words = text.strip().replace(b"-", b"+").replace(b"_", b"/")
    try:
        secret = base64.b64decode(words + b"=" * (-len(words) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"its content is not base64; {_KEY_HINT}") from None
    if len(secret) != KEY_SIZE:
        raise ValueError(f"its content is base64 of {len(secret):,} bytes, and a key has {KEY_SIZE}; {_KEY_HINT}")
    return secret


def check_keyring(settings: Settings) -> Iterator[Finding]:
    """Check that every key can be read."""
    found = check_keys(settings)
    do = "put it where the settings say: without it no worker starts, and payloads encrypted with it cannot be read"
    yield from (report_problem(one.problem, do) for one in found if one.problem)
    if not found:
        yield report_ok("nothing is encrypted: the settings have no [[encryption.keys]]")
    elif not any(one.problem for one in found):
        yield report_ok(f"{len(found)} keys; {found[0].id!r} encrypts")
