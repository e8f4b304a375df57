"""The bodies of the signals and updates of a turn, and the results of its updates.

Field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.domain.base import Data, StrictData, max_items
from holdfast.domain.calls.call import Calls
from holdfast.domain.modes import Mode


class SubmitBatch(StrictData):
    """Body of the update `submit`."""

    calls: Calls


class SubmitResult(Data):
    """Result of the update `submit`: the id of the batch."""

    batch: str


class AddCalls(StrictData):
    """Body of the update and the signal `add_calls`: further calls of a stream."""

    stream: str = Field(min_length=1, max_length=200)
    """The sender's name for the reply that the calls belong to."""
    attempt: int = Field(default=1, ge=1, le=1_000_000)
    """The attempt at the reply. A new attempt discards the calls of the one before."""
    at: int = Field(default=0, ge=0)
    """The place of the first of these calls in the reply, from 0. Calls that are sent twice are added once."""
    calls: Calls = ()
    complete: bool = False
    """These are the last calls of the reply."""
    reason: str | None = Field(default=None, max_length=2_000)
    """With a new attempt: why the one before is discarded."""


class AddCallsResult(Data):
    """Result of the update `add_calls`: the batch id, and its number of calls."""

    batch: str
    calls: int


class Interruption(StrictData):
    """Body of the signals `interrupt` and `append`: a message of the user while the turn runs (S18)."""

    message: str = Field(min_length=1, max_length=1_000_000)
    by: str | None = Field(default=None, max_length=500)
    id: str | None = Field(default=None, max_length=200)
    """The id of a session's message. The result of the turn lists those that its model has read."""


class BatchAddress(StrictData):
    """Body of the updates `withdraw` and `cancel_batch`."""

    batch: str
    reason: str | None = Field(default=None, max_length=2_000)


class CallAddress(StrictData):
    """Body of the update `cancel_call`."""

    call: str
    reason: str | None = Field(default=None, max_length=2_000)


class ModeChange(StrictData):
    """Body of the update `set_mode`."""

    mode: Mode
    by: str | None = Field(default=None, max_length=500)


class SetModeResult(Data):
    """Result of the update `set_mode`: the mode that the worker permits; None if no worker has judged by it yet."""

    counts: Mode | None = None


class EditingNotice(StrictData):
    """Body of the update `editing`: a person opened an approval in an editor, or has closed it."""

    approval_id: str = Field(max_length=2_000)
    by: str = Field(min_length=1, max_length=500)
    seconds: float = Field(default=900, ge=0, le=86_400, allow_inf_nan=False)
    """How long others see it as being edited; 0 when the editor is closed."""


class GrantAddress(StrictData):
    """Body of the update `revoke`."""

    grant: str = Field(max_length=100)
    by: str | None = Field(default=None, max_length=500)


class RevokeDecisions(StrictData):
    """Body of the signal `take_back`: grants that were revoked, by the decisions that left them."""

    decisions: Annotated[tuple[Annotated[str, Field(max_length=2_500)], ...], max_items(1_000)]
    """The keys of the decisions (`Decision.key`)."""
    by: str | None = Field(default=None, max_length=500)


class DecisionResult(Data):
    """Result of the update `decide`: the status of the call after the decision."""

    call: str
    status: str
    grant: str | None = None
    """The id of the grant that the decision left, if any."""
