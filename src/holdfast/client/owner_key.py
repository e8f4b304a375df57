"""The key of a data folder: what makes signed decisions the default for one person (S22).

`holdfast up` makes it, readable by its owner alone. Workers on the folder take it for an approver's, and the command
line, the gateway and the Python client sign with it. So nobody approves who merely reaches the namespace: no web page,
no other user of the machine. It counts only where the settings give no approver a key: a team's keys stand alone.

`decisions = "unsigned"` in the settings switches it off, for a namespace that is guarded by other means.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.client.handle import whoami
from holdfast.client.signing_keys import Signer, make_key, read_key
from holdfast.config.settings import Settings
from holdfast.domain.approvals.actors import ANYONE, Approver
from holdfast.domain.approvals.signing import format_public_key
from holdfast.errors import BadInput

UNSIGNED_WARNING = (
    "Decisions are not signed here: whoever may write to the Temporal namespace can approve calls, in any name. "
    "Guard the namespace, or give the approvers keys (docs/how-to/approvers.md)."
)


def ensure_owner_key(settings: Settings) -> None:
    """Make the folder's key, unless it is there or not wanted. BadInput when it cannot be written or used."""
    if not _is_wanted(settings):
        return
    with suppress(FileExistsError):
        make_key(settings.owner_key_file)
    read_key(settings.owner_key_file)


def find_approvers(settings: Settings) -> tuple[Approver, ...]:
    """Whose decisions count on this worker: those of the settings, and the owner of the data folder.

    BadInput when there is a key that cannot be used, or when the settings want signatures and nobody could give one.
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
    """Who signs with the folder's key: in whatever name a decision is given, else in ours. None where there is none.

    A key that others own or could read is passed over: then decisions go unsigned, and are refused where that matters.
    """
    if not _is_wanted(settings):
        return None
    try:
        return (
            Signer(whoami(), read_key(settings.owner_key_file), vouches=True)
            if settings.owner_key_file.exists()
            else None
        )
    except (BadInput, OSError):
        return None


def _is_wanted(settings: Settings) -> bool:
    """Does the folder's key count? Not beside keys of approvers."""
    return settings.decisions != "unsigned" and all(approver.key is None for approver in settings.approvers)
