"""What can be said to a turn while it runs: the bodies of its signals and updates, and their answers.

Their field names are in histories for ever. New fields get defaults.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.domain.base import Data, Message, max_items
from holdfast.domain.calls.call import Calls
from holdfast.domain.modes import Mode


class SubmitBatch(Message):
    """Body of the update `submit`."""

    calls: Calls


class SubmitResult(Data):
    """Answer of `submit`: the batch's id."""

    batch: str


class AddCalls(Message):
    """Body of the update and the signal `add_calls`: further calls of a stream, as they come."""

    stream: str = Field(min_length=1, max_length=200)
    """A name of the sender's for the reply that the calls are part of."""
    attempt: int = Field(default=1, ge=1, le=1_000_000)
    """Another attempt at the same reply discards what came from the one before."""
    at: int = Field(default=0, ge=0)
    """The place of the first of these calls in the reply. What is sent twice counts once."""
    calls: Calls = ()
    complete: bool = False
    """These were the last."""
    reason: str | None = Field(default=None, max_length=2_000)
    """Of a new attempt: why the one before is discarded."""


class AddCallsResult(Data):
    """Answer of `add_calls`: the batch, and how many calls it has."""

    batch: str
    calls: int


class Interruption(Message):
    """Body of the signals `interrupt` and `append`: what the user says meanwhile (S18)."""

    message: str = Field(min_length=1, max_length=1_000_000)
    by: str | None = Field(default=None, max_length=500)
    id: str | None = Field(default=None, max_length=200)
    """Of a message that its session must know to have been heard."""


class BatchAddress(Message):
    """Body of the updates `withdraw` and `cancel_batch`."""

    batch: str
    reason: str | None = Field(default=None, max_length=2_000)


class CallAddress(Message):
    """Body of the update `cancel_call`."""

    call: str
    reason: str | None = Field(default=None, max_length=2_000)


class ModeChange(Message):
    """Body of the update `set_mode`."""

    mode: Mode
    by: str | None = Field(default=None, max_length=500)


class SetModeResult(Data):
    """Answer of `set_mode`: the mode that counts, if a worker has judged by it."""

    counts: Mode | None = None


class EditingNotice(Message):
    """Body of the update `editing`: somebody opened an approval in an editor, or is done."""

    approval_id: str = Field(max_length=2_000)
    by: str = Field(min_length=1, max_length=500)
    seconds: float = Field(default=900, ge=0, le=86_400, allow_inf_nan=False)
    """How long others are told; 0 when done."""


class GrantAddress(Message):
    """Body of the update `revoke`."""

    grant: str = Field(max_length=100)
    by: str | None = Field(default=None, max_length=500)


class RevokeDecisions(Message):
    """Body of the signal `take_back`: allowances that were revoked, by the decisions that gave them."""

    decisions: Annotated[tuple[Annotated[str, Field(max_length=2_500)], ...], max_items(1_000)]
    """Their keys: the longest address of an approval, and the longest id."""
    by: str | None = Field(default=None, max_length=500)


class DecisionResult(Data):
    """Answer of `decide`: the state the call went to."""

    call: str
    status: str
    grant: str | None = None
    """The standing answer it left."""
