"""Every exception Holdfast raises on purpose.

    HoldfastError
    ├── InvalidTransition      a call was asked to make a move the table does not have (a bug in the caller)
    ├── Refused                a message to a turn was not taken; `.code` says why
    │   ├── DecisionRefused    … a decision
    │   └── RequestRefused     … a batch, a withdrawal, a cancellation
    ├── BadInput               something outside gave us what cannot be read: a file, an option, an id
    ├── TurnNotFound           no turn has this id
    ├── ServerUnavailable      no Temporal server answers
    ├── NoWorker               the server answers, but no worker does
    ├── PayloadUnreadable      what a turn or somebody else wrote cannot be read here; the message says why
    │   └── KeyMissing         … since it is encrypted with a key that this process lacks
    ├── StoreUnavailable       the store of payloads does not answer, or not as it should
    ├── LedgerUnavailable      the ledger cannot be used (activities/ledger/ledger.py)
    └── LedgerRefused          … works, and does not take this

A message says what happened, to which thing (`!r`), and what to do next.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of everything raised on purpose."""


class InvalidTransition(HoldfastError):
    """A call was asked to make a move that the transition table does not have."""


class Refused(HoldfastError):
    """A turn did not take a message. `code` is stable and meant for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecisionRefused(Refused):
    """A decision did not count: stale, doubled, for another digest, or for nothing that waits."""


class RequestRefused(Refused):
    """A batch, withdrawal or cancellation was not taken."""


class BadInput(HoldfastError):
    """A file, an option or an identifier could not be read."""


class TurnNotFound(HoldfastError):
    """No turn has this id."""


class ServerUnavailable(HoldfastError):
    """No Temporal server answers at the address."""


class NoWorker(HoldfastError):
    """The server answers, but no worker took up the request in time."""


class PayloadUnreadable(HoldfastError):
    """A payload cannot be read in this process: it is locked, changed, or not where it was kept."""


class KeyMissing(PayloadUnreadable):
    """A payload is encrypted with a key of ours that this process does not have."""


class StoreUnavailable(HoldfastError):
    """Payloads cannot be written or read where they are kept: it does not answer, or refuses."""
