"""The key of a data folder, which makes signed decisions the default for a single user (S22).

`holdfast up` creates it, readable by its owner alone. Workers on the folder accept it as an approver's key, and the
command line, the gateway and the Python client sign with it. So write access to the namespace alone approves nothing,
whether from a web page or another user of the machine. It applies only where the settings give no approver a key.

`decisions = "unsigned"` in the settings switches it off, for a namespace that is guarded by other means.

Why: docs/decisions/0006-decisions-are-signed.md.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.client.signing_keys import Signer, make_key, read_key
from holdfast.client.workflow_connection import get_login_name
from holdfast.config.settings import Settings
from holdfast.domain.approvals.approval import ANYONE, Approver
from holdfast.domain.approvals.signing import format_public_key
from holdfast.errors import BadInput

UNSIGNED_WARNING = (
    "Decisions are not signed here: anyone who can write to the Temporal namespace can approve calls, in any name. "
    "Guard the namespace, or give the approvers keys (docs/how-to/approvers.md)."
)


def ensure_owner_key(settings: Settings) -> None:
    """Create the folder's key unless it exists or is switched off. BadInput when it cannot be written or read."""
    if not _is_wanted(settings):
        return
    with suppress(FileExistsError):
        make_key(settings.owner_key_file)
    read_key(settings.owner_key_file)


def find_approvers(settings: Settings) -> tuple[Approver, ...]:
    """Return the approvers of this worker: those of the settings, and the owner of the data folder.

    BadInput when a key is unusable, or when the settings require signatures and nobody has a key.
    """
    if not _is_wanted(settings):
        return settings.approvers
    if not settings.owner_key_file.exists():
        if settings.decisions == "signed":
            raise BadInput(
                'decisions = "signed", and nobody has a key: name approvers with keys (docs/how-to/approvers.md), '
                "or start `holdfast up`, which makes one for its data folder"
            )
        return settings.approvers
    public = format_public_key(read_key(settings.owner_key_file).public_key())
    return (*settings.approvers, Approver(name=ANYONE, key=public, vouches=True))


def find_owner_signer(settings: Settings) -> Signer | None:
    """Return the signer with the folder's key, or None. It may sign in any name; the default is the login name.

    A key that other users own or can read is ignored: decisions then go unsigned, and are refused where signatures
    matter.
    """
    if not _is_wanted(settings):
        return None
    try:
        return (
            Signer(get_login_name(), read_key(settings.owner_key_file), vouches=True)
            if settings.owner_key_file.exists()
            else None
        )
    except (BadInput, OSError):
        return None


def _is_wanted(settings: Settings) -> bool:
    """Is the key of the folder used? Not if any approver has a key."""
    return settings.decisions != "unsigned" and all(approver.key is None for approver in settings.approvers)
