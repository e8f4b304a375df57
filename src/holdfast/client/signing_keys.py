"""Private keys on disk, and the signer that is made of one.

A key is a file that only its owner may read, in PKCS#8 PEM without a passphrase, named after its owner:

    $XDG_CONFIG_HOME/holdfast/keys/NAME      (~/.config)

HOLDFAST_KEY says which key signs: a name, or a path. `domain/approvals/signing.py` says what a signature covers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from holdfast.domain.approvals.approval import Approver, Decision, DecisionAction
from holdfast.domain.approvals.signing import derive_key_id, format_public_key, sign_decision
from holdfast.errors import BadInput
from holdfast.util.private_files import UnfitFile, check_secret, read_regular_file
from holdfast.util.text import shorten_text

SIGNATURE_LIFETIME = timedelta(days=1)
"""How long a signed `proceed_once` is valid. So one that is withheld and sent later is refused."""
_LIMIT = 10_000
"""Bytes read of a key file; a key has 119."""


@dataclass(frozen=True)
class Signer:
    """Signs decisions as `name`. With `vouches` the decision keeps the name that it already has."""

    name: str
    key: Ed25519PrivateKey = field(repr=False)
    vouches: bool = False

    def sign(self, decision: Decision) -> Decision:
        """Return the decision with its signature, and an expiry of one day where it lets one call run.

        BadInput when its fields cannot be written as canonical JSON.
        """
        fields: dict[str, object] = {"by": (self.vouches and decision.by) or self.name}
        if decision.outcome is DecisionAction.PROCEED_ONCE and decision.expires is None:
            fields["expires"] = datetime.now(UTC) + SIGNATURE_LIFETIME
        try:
            return sign_decision(decision.model_copy(update=fields), self.key)
        except (ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"the decision cannot be signed: {shorten_text(str(error), 200)}") from error


@dataclass(frozen=True)
class StoredKey:
    """A key file: its public half, or the `problem` that makes it unusable."""

    name: str
    file: Path
    public: str | None = None
    problem: str | None = None

    @property
    def id(self) -> str | None:
        """The id by which decisions name the key."""
        return derive_key_id(self.public) if self.public else None


def find_keys_folder() -> Path:
    """The folder of keys. A relative XDG_CONFIG_HOME is ignored, as its specification says."""
    given = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    try:
        return (given if given.is_absolute() else Path("~/.config").expanduser()) / "holdfast" / "keys"
    except RuntimeError:
        raise BadInput("there is no home folder for keys: set XDG_CONFIG_HOME") from None


def create_key(name: str) -> StoredKey:
    """Create a key, readable by its owner alone. BadInput when the name is taken."""
    file = find_keys_folder() / _check_name(name)
    try:
        key = make_key(file)
    except FileExistsError:
        raise BadInput(f"the key {name!r} exists already and is not overwritten: {str(file)!r}") from None
    return StoredKey(name, file, format_public_key(key.public_key()))


def make_key(file: Path) -> Ed25519PrivateKey:
    """Create a key in this file. FileExistsError when it exists, BadInput when it cannot be written."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if os.path.lexists(file):
        raise FileExistsError(str(file))
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_new(file, text)
    except FileExistsError:
        raise
    except OSError as error:
        raise BadInput(f"the key cannot be written to {str(file)!r}: {error.strerror}") from error
    return key


def list_keys() -> list[StoredKey]:
    """Return every key in the folder, by name."""
    try:
        files = sorted(file for file in find_keys_folder().iterdir() if not file.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"the folder of keys cannot be read, {str(find_keys_folder())!r}: {error.strerror}") from error
    return [_check_key(file) for file in files]


def find_key(key_name: str) -> StoredKey:
    """Return the key with this name, or at this path if it holds a slash. BadInput when it is unusable."""
    file = _locate_key(key_name)
    return StoredKey(_read_owner(file), file, format_public_key(read_key(file).public_key()))


def load_signer(named: str, approvers: Iterable[Approver] = ()) -> Signer:
    """Return the signer with the key of this name or path.

    It is named as the approvers name its public key, else as the file is. BadInput when the key is unusable.
    """
    file = _locate_key(named)
    key = read_key(file)
    public = format_public_key(key.public_key())
    ours = next((approver for approver in approvers if approver.key == public), None)
    return Signer(ours.name, key, ours.vouches) if ours else Signer(_read_owner(file), key)


def read_key(file: Path) -> Ed25519PrivateKey:
    """Read a private key without blocking. BadInput when it is not one, or when others may read or write the file."""
    try:
        text = read_regular_file(file, _LIMIT, check_secret)
    except FileNotFoundError:
        raise BadInput(
            f"no key {str(file)!r}: see `holdfast keys list`, create one with `holdfast keys create NAME`, "
            "or give a path, which holds a slash"
        ) from None
    except UnfitFile as error:
        raise BadInput(f"the key {str(file)!r} {error}") from None
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError:
        raise BadInput(f"the key {str(file)!r} has a passphrase: save it without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise BadInput(f"{str(file)!r} is not a private key in PEM: make one with `holdfast keys create`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(f"the key {str(file)!r} is not for Ed25519: make one with `holdfast keys create`")
    return key


def _write_new(file: Path, text: bytes) -> None:
    """Write the whole file or none: half a key would block its name."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise


def _check_key(file: Path) -> StoredKey:
    try:
        return StoredKey(file.name, file, format_public_key(read_key(file).public_key()))
    except BadInput as error:
        return StoredKey(file.name, file, problem=str(error))


def _read_owner(file: Path) -> str:
    """The owner's name, from the file name."""
    return file.name.removesuffix(".pem")


def _locate_key(named: str) -> Path:
    if "/" not in named:
        return find_keys_folder() / _check_name(named)
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError:
        raise BadInput(f"{named!r}: unknown home folder") from None


def _check_name(name: str) -> str:
    """Return the name if it is fit for a file and a person. BadInput otherwise."""
    plain = name.isprintable() and name == name.strip() and "/" not in name and not name.startswith((".", "-", "~"))
    if not name or not plain or len(name.encode()) > 200:
        raise BadInput(
            f"{shorten_text(name, 80)!r} is not a valid key name: up to 200 bytes, printable, without a slash, and not "
            "beginning with `.`, `-` or `~`"
        )
    return name
