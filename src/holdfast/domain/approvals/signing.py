"""Signed decisions: the bytes that a signature is over, and whether a signature counts (S22).

Ed25519 over the whole decision as JSON (docs/how-to/approvers.md has the format): changing any field breaks the
signature. Pure: `client.signing_keys` stores keys, and callers say when a decision is checked.

Why: docs/decisions/0006-decisions-are-signed.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from holdfast.domain.approvals.approval import Approver, Decision
from holdfast.errors import DecisionRefused
from holdfast.util.json_values import encode_canonical
from holdfast.util.text import shorten_text

SIGNED_PREFIX = b"holdfast-decision-v1\n"
"""The prefix of all signed bytes: a key may sign other things."""
KEY_PREFIX = "ed25519:"
_FIELD = 2**255 - 19
_ORDER_EIGHT = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_WEAK = frozenset({0, 1, _FIELD - 1, _ORDER_EIGHT, _FIELD - _ORDER_EIGHT})
"""The y coordinates of points of small order: anybody can sign for these as a key (zero bytes are one)."""


with suppress(InvalidSignature):
    # cryptography imports its exception when it first raises it. In the sandbox of a workflow, which imports modules
    # again, that aborts the process, so that a bad signature could end workers. So it is raised here once.
    Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().verify(bytes(64), b"")


class _PublicKey(NamedTuple):
    id: str
    public: Ed25519PublicKey


def encode_signed_text(decision: Decision) -> bytes:
    """The bytes that a signature is over: every field but the signature, without those that have their default.

    So a field that is added later keeps old signatures valid. ValueError for values that JSON cannot express.
    """
    fields = decision.model_dump(exclude={"signature"}, exclude_defaults=True)
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_format_moment
    )
    return SIGNED_PREFIX + text.encode()


def digest_decision(decision: Decision) -> str:
    """The digest of a decision over its signed bytes, so that it is the same for every encoding of them."""
    try:
        encoded = encode_signed_text(decision)
    except (ValueError, OverflowError, RecursionError):  # nobody can have signed it
        encoded = encode_canonical(decision.model_dump(mode="json", exclude={"signature"}))
    return hashlib.sha256(encoded).hexdigest()


def sign_decision(decision: Decision, private_key: Ed25519PrivateKey) -> Decision:
    """The decision with a signature of this key. ValueError for values that JSON cannot express."""
    signer = derive_key_id(format_public_key(private_key.public_key()))
    named = decision.model_copy(update={"signer": signer, "signature": None})
    signature = base64.b64encode(private_key.sign(encode_signed_text(named))).decode()
    return named.model_copy(update={"signature": signature})


def format_public_key(key: Ed25519PublicKey) -> str:
    """A public key in the form of the settings."""
    return KEY_PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def derive_key_id(public: str) -> str:
    """The id of a key in decisions. ValueError for an invalid key."""
    return hashlib.sha256(_decode_public_key(public)).hexdigest()[:16]


def check_signature(decision: Decision, approvers: Iterable[Approver], now: datetime) -> None:
    """DecisionRefused when the decision has expired or, if any approver has a key, is not signed by its `by`."""
    known = tuple(approvers)
    if any(approver.key is not None for approver in known):
        _check_signer(decision, _find_signer(decision, known), known)
    if decision.expires is not None and now >= decision.expires:
        raise DecisionRefused("expired_decision", f"this decision counted until {decision.expires}: decide again")


def find_roles(by: str | None, approvers: Iterable[Approver]) -> frozenset[str]:
    """The roles of the person with this name."""
    return frozenset(role for approver in approvers if approver.name == by for role in approver.roles)


def _find_signer(decision: Decision, approvers: tuple[Approver, ...]) -> Approver:
    """The approver whose key made the signature, after checking it. Raises DecisionRefused."""
    if decision.signature is None:
        raise DecisionRefused(
            "unsigned", "only signed decisions count here: `holdfast sign` makes one, HOLDFAST_KEY names the key"
        )
    signature = _decode_exactly(decision.signature, 64)
    if signature is None:
        raise _build_refusal("a signature is 64 bytes in base64")
    for approver in approvers:
        key = _load_public_key(approver.key) if approver.key else None
        if key and key.id == decision.signer:
            _verify_signature(decision, signature, key)
            return approver
    named = shorten_text(repr(decision.signer), 80)
    raise DecisionRefused("unknown_key", f"no approver has the key {named}: see [[approvers]] in the settings file")


def _verify_signature(decision: Decision, signature: bytes, key: _PublicKey) -> None:
    try:
        key.public.verify(signature, encode_signed_text(decision))
    except InvalidSignature:
        raise _build_refusal("it was made for another decision") from None
    except (ValueError, OverflowError, RecursionError):
        raise _build_refusal(
            "the decision holds a value that JSON cannot express, so nobody can have signed it"
        ) from None


def _check_signer(decision: Decision, signer: Approver, approvers: tuple[Approver, ...]) -> None:
    by = shorten_text(repr(decision.by), 80)
    if signer.is_for_anyone and not decision.by:
        raise DecisionRefused("other_name", "the decision lacks `by`")
    listed = signer.is_for_anyone or any(approver.name == decision.by for approver in approvers)
    if signer.vouches and not listed:
        raise DecisionRefused("other_name", f"{signer.name!r} vouches for approvers only, and {by} is none")
    if not signer.vouches and decision.by != signer.name:
        raise DecisionRefused("other_name", f"the key is that of {signer.name!r} and the decision says `by` {by}")
    if decision.is_grant and decision.scope is None:
        raise DecisionRefused("scope_not_signed", "a signed grant names its `scope`: one that was offered")


def _build_refusal(why: str) -> DecisionRefused:
    return DecisionRefused("bad_signature", f"the signature does not hold: {why}")


@lru_cache(maxsize=1_000)
def _load_public_key(public: str) -> _PublicKey | None:
    """The key; None for an invalid one, for which nobody can sign."""
    try:
        return _PublicKey(derive_key_id(public), Ed25519PublicKey.from_public_bytes(_decode_public_key(public)))
    except ValueError:
        return None


def _decode_public_key(public: str) -> bytes:
    found = _decode_exactly(public.removeprefix(KEY_PREFIX), 32) if public.startswith(KEY_PREFIX) else None
    if found is None:
        raise ValueError(f"must be `{KEY_PREFIX}` and 32 bytes in base64, as `holdfast keys show` prints it")
    if int.from_bytes(found, "little") % 2**255 % _FIELD in _WEAK:
        raise ValueError("is a key for which anybody can sign: make one with `holdfast keys create`")
    return found


def _decode_exactly(text: str, size: int) -> bytes | None:
    """The bytes of a text in canonical base64, so that a key or signature has one form; else None."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return found if len(found) == size and base64.b64encode(found).decode() == text else None


def _format_moment(value: object) -> str:
    """A time to the microsecond, in UTC when its zone is known."""
    if not isinstance(value, datetime):
        raise ValueError(f"JSON cannot express {type(value).__name__}")
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
