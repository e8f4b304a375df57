"""How this worker runs commands, as its settings have it."""

from __future__ import annotations

from holdfast.activities.supervision.launching import explain_unsupported
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import Sandbox
from holdfast.errors import BadInput
from holdfast.settings import Settings


def open_runs(settings: Settings) -> Runs | None:
    """The commands of this host; None where the system cannot have them supervised."""
    if explain_unsupported():
        return None
    return Runs(
        settings.runs_folder,
        lease_seconds=settings.tools.shell.lease_seconds,
        most_bytes=settings.limits.saved_output_bytes,
    )


def open_sandbox(settings: Settings) -> Sandbox | None:
    """What commands are closed in; None when they are not to be. BadInput when they are, and cannot."""
    shell = settings.tools.shell
    if shell.sandbox == "none":
        return None
    if why := explain_unsupported():
        raise BadInput(f"tools.shell.sandbox = {shell.sandbox!r} cannot be had here: {why}")
    return Sandbox(settings.workspace, network=shell.network, hidden=(settings.data,))
