"""Verifying a bundle, with no server: exactly what was changed, is missing, was added or moved.

What holds it together is the chain, whose last record is over the manifest and whose head the manifest names, under a
signature. Without a signature, or the head noted elsewhere, whoever can write the whole file anew can make another that
holds together. A bundle may be a stranger's: whatever it holds is a finding, never an error of ours.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from holdfast.approvals import canonical_bytes
from holdfast.errors import BadInput
from holdfast.signing import KIND, key_id
from holdfast.workers.audit.bundle import (
    CHAIN,
    FORMAT,
    MANIFEST,
    OUTSIDE_CHAIN,
    SIGNATURE,
    SIGNATURE_LIMIT,
    VERSION,
    Manifest,
    OtherVersion,
    Signature,
    by_line,
    hash_in,
    opened,
    read_manifest,
    signed_bytes,
)
from holdfast.workers.audit.chain import FIRST, Link, Record, check_links, digest, read_chain
from holdfast.workers.audit.comparing import differences
from holdfast.workers.audit.container import Container

MORE = 10_000
"""Lines that a member may have beyond those of the chain before nobody counts them any more."""


@dataclass(frozen=True)
class Verified:
    """What was found."""

    manifest: Manifest
    findings: tuple[str, ...]
    """What is not as it was; empty when all is."""
    signature: str
    """`none`, `valid`, or why it does not hold."""
    key: str | None = None
    """The public key that signed."""
    name: str = ""
    """Whose key that is, as whoever signed says."""
    head: str = ""
    records: int = 0

    @property
    def intact(self) -> bool:
        """Is everything as it was when the bundle was made?"""
        return not self.findings


def verify(file: Path, *, key: str | None = None, head: str | None = None) -> Verified:
    """Look at every byte of a bundle. `key`: only this one may have signed. `head`: as it was noted elsewhere.

    BadInput when the file is no bundle at all, or that of another version.
    """
    container = opened(file)
    manifest, unread = _manifest(container)
    links, broken = _links(container)
    findings = [*container.problems, *unread, *broken, *check_links(links)]
    if not unread:
        findings += _against_manifest(container, manifest, links)
    findings += _contents(container, [link.record for link in links])
    signature = _signature(container, manifest, key)
    findings += signature.wrong
    if head is not None and head != manifest.head:
        findings.append(f"changed: the head of the chain is {manifest.head}, not {head}")
    by = signature.by or Signature(key="")
    return Verified(manifest, tuple(findings), signature.state, by.key or None, by.name, manifest.head, len(links))


def _manifest(container: Container) -> tuple[Manifest, list[str]]:
    try:
        return read_manifest(container), []
    except OtherVersion:
        raise
    except BadInput as error:
        return Manifest(format=FORMAT, version=VERSION, subject="?"), [f"changed: {error}"]


def _links(container: Container) -> tuple[list[Link], list[str]]:
    if CHAIN not in container.members:
        return [], [f"missing: {CHAIN}"]
    try:
        found = list(read_chain(container.lines(CHAIN)))
    except BadInput as error:
        return [], [f"changed: {error}"]
    return [one for one in found if isinstance(one, Link)], [one for one in found if isinstance(one, str)]


def _against_manifest(container: Container, manifest: Manifest, links: list[Link]) -> Iterator[str]:
    if canonical_bytes(manifest.model_dump(mode="json")) != container.read(MANIFEST):
        yield f"changed: {MANIFEST} is not written as it was"
    last = links[-1].record if links else None
    if last is None or (last.file, last.sha256) != (MANIFEST, digest(manifest.chained())):
        yield f"changed: {MANIFEST} is not the one that the chain ends with"
    head = links[-1].link if links else FIRST
    if manifest.head != head:
        yield f"changed: the manifest names the head {manifest.head}, and the chain ends with {head}"
    if manifest.records != len(links):
        yield f"changed: the manifest counts {manifest.records:,} records, and the chain has {len(links):,}"


def _contents(container: Container, records: list[Record]) -> Iterator[str]:
    """Each member against what the chain has of it."""
    files: dict[str, list[Record]] = {}
    for record in records:
        if record.file != MANIFEST:
            files.setdefault(record.file, []).append(record)
    for file, expected in files.items():
        if file not in container.members:
            yield f"missing: {file}" if by_line(file) else f"missing: {expected[0].about} ({file})"
        elif by_line(file):
            yield from _lines(container, file, expected)
        elif container.digest(file) != expected[0].sha256 or len(expected) > 1:
            yield f"changed: {expected[0].about} ({file})"
    yield from _named(container, files)
    yield from _order([*files, CHAIN, MANIFEST, SIGNATURE], list(container.members))


def _lines(container: Container, file: str, expected: list[Record]) -> Iterator[str]:
    if [record.line for record in expected] != list(range(1, len(expected) + 1)):
        yield f"changed: the records of the chain are not the lines of {file}"
    found = list(islice(container.line_digests(file), len(expected) + MORE))
    if len(found) == len(expected) + MORE:
        yield f"added: over {MORE:,} lines of {file}"
    yield from differences(expected, found, file)


def _named(container: Container, files: dict[str, list[Record]]) -> Iterator[str]:
    """Nothing in a bundle has another name, and what is named by its hash is that."""
    for name in container.members:
        try:
            sha256 = hash_in(name)
        except BadInput:
            sha256 = None
            yield f"added: {name}"
            continue
        if name not in files and name not in OUTSIDE_CHAIN:
            yield f"added: {name}"
        elif sha256 is not None and files[name][0].sha256 != sha256:
            yield f"changed: {name} does not hold what its name says"


def _order(expected: list[str], found: list[str]) -> Iterator[str]:
    """Members that are there, and in another place."""
    wanted, there = set(expected), set(found)
    records = [Record("member", name, name, name) for name in expected if name in there]
    yield from differences(records, [name for name in found if name in wanted], "the bundle")


@dataclass(frozen=True)
class _Signed:
    state: str
    by: Signature | None = None
    wrong: tuple[str, ...] = ()


def _signature(container: Container, manifest: Manifest, wanted: str | None) -> _Signed:
    """Whether it holds, whose it is, and what is wrong with it."""
    if SIGNATURE not in container.members:
        lost = f"missing: {SIGNATURE}, by key {_short(manifest.signer)}" if manifest.signer else None
        asked = "missing: a signature by the key that was given" if wanted else None
        return _Signed("none", None, tuple(filter(None, (lost, asked)))[:1])
    try:
        text = container.read(SIGNATURE, SIGNATURE_LIMIT)
        found = Signature.model_validate_json(text)
        if canonical_bytes(found.model_dump(mode="json")) != text or not _exact(found):
            return _Signed("changed", found, (f"changed: {SIGNATURE} is not written as it was",))
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(found.key.removeprefix(KIND), validate=True))
        public.verify(base64.b64decode(found.signature), signed_bytes(found, container.read(MANIFEST)))
    except InvalidSignature:
        return _Signed("does not hold", found, ("changed: the manifest, or its signature: it does not hold",))
    except (ValidationError, ValueError, KeyError, BadInput):
        return _Signed("cannot be read", None, (f"changed: {SIGNATURE} cannot be read",))
    if found.key != manifest.signer:
        return _Signed(
            "by another key", found, (f"changed: signed by key {_short(found.key)}, and not by whom it says",)
        )
    if wanted is not None and wanted != found.key:
        words = f"changed: signed by key {_short(found.key)}, not {_short(wanted)}"
        return _Signed("by another key", found, (words,))
    return _Signed("valid", found)


def _exact(found: Signature) -> bool:
    """Is it written in the one way there is? ValueError when it is no key, or no signature."""
    key_id(found.key)
    return base64.b64encode(base64.b64decode(found.signature, validate=True)).decode() == found.signature


def _short(key: str | None) -> str:
    try:
        return key_id(key or "")
    except ValueError:
        return json.dumps(key)[:80]
