"""Every exception Holdfast raises on purpose.

    HoldfastError
    ├── InvalidTransition      the transition table does not have this move of a call (a bug in the caller)
    ├── Refused                a turn or session refused a message; `.code` says why
    │   ├── DecisionRefused    … a decision
    │   └── RequestRefused     … any other message: a batch, a withdrawal, a cancellation
    ├── BadInput               a file, an option, an id or a setting is invalid
    ├── TurnNotFound           no turn has this id
    ├── ServerUnavailable      no Temporal server answers
    ├── NoWorker               the server answers, but no worker does
    ├── PayloadUnreadable      this process cannot read a payload; the message says why
    │   └── KeyMissing         … because it lacks the encryption key
    ├── StoreUnavailable       the payload store does not answer, or returns errors
    ├── LedgerUnavailable      the ledger cannot be used (activities/ledger/ledger.py)
    └── LedgerRefused          the ledger works, and refuses an entry

A message says what happened, to which thing (`!r`), and what to do next.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of everything raised on purpose."""


class InvalidTransition(HoldfastError):
    """The transition table does not have this move of a call."""


class Refused(HoldfastError):
    """A turn or session refused a message. `code` is stable and meant for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class DecisionRefused(Refused):
    """A turn refused a decision: it is outdated, a duplicate, for another digest, or not for a pending approval."""


class RequestRefused(Refused):
    """A turn or session refused a request, such as a batch, a withdrawal or a cancellation."""


class BadInput(HoldfastError):
    """A file, an option, an identifier or a setting is invalid."""


class TurnNotFound(HoldfastError):
    """No turn has this id."""


class ServerUnavailable(HoldfastError):
    """No Temporal server answers at the address."""


class NoWorker(HoldfastError):
    """The server answers, but no worker handled the request in time."""


class PayloadUnreadable(HoldfastError):
    """This process cannot read a payload: it is encrypted, was changed, or is missing in its store."""


class KeyMissing(PayloadUnreadable):
    """A payload is encrypted with one of our keys that this process does not have."""


class StoreUnavailable(HoldfastError):
    """The payload store does not answer, or returns errors."""
