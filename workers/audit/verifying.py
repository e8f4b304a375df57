"""Verifying a bundle, with no server: exactly what was changed, is missing, was added or moved.

What holds it together is the chain, whose head the manifest names and a signature covers. Without a signature, or the
head noted elsewhere, whoever can write the whole file anew can make another that holds together.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from holdfast.approvals import canonical_bytes
from holdfast.errors import BadInput
from holdfast.signing import KIND, key_id
from holdfast.workers.audit.bundle import (
    CHAIN,
    MANIFEST,
    OUTSIDE_CHAIN,
    SIGNATURE,
    Manifest,
    Signature,
    by_line,
    opened,
    read_manifest,
    signed_bytes,
)
from holdfast.workers.audit.chain import FIRST, Link, Record, check_links, digest, lines_of, read_chain
from holdfast.workers.audit.comparing import differences
from holdfast.workers.audit.container import Container


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
    head: str = ""
    records: int = 0

    @property
    def intact(self) -> bool:
        """Is everything as it was when the bundle was made?"""
        return not self.findings


def verify(file: Path, *, key: str | None = None, head: str | None = None) -> Verified:
    """Look at every byte of a bundle. `key`: only this one may have signed. `head`: as it was noted elsewhere.

    BadInput when the file is no bundle at all.
    """
    container = opened(file)
    try:
        manifest = read_manifest(container)
    except BadInput as error:
        return Verified(Manifest(format="", version=0, subject="?"), (*container.problems, f"changed: {error}"), "none")
    links, broken = _links(container)
    findings = [*container.problems, *broken, *check_links(links)]
    findings += _against_manifest(container, manifest, links)
    findings += _contents(container, [link.record for link in links])
    signature, signer, wrong = _signature(container, key)
    findings += wrong
    if head is not None and head != manifest.head:
        findings.append(f"changed: the head of the chain is {manifest.head}, not {head}")
    return Verified(manifest, tuple(findings), signature, signer, manifest.head, len(links))


def _links(container: Container) -> tuple[list[Link], list[str]]:
    if CHAIN not in container.members:
        return [], [f"missing: {CHAIN}"]
    found = list(read_chain(container.read(CHAIN)))
    return [one for one in found if isinstance(one, Link)], [one for one in found if isinstance(one, str)]


def _against_manifest(container: Container, manifest: Manifest, links: list[Link]) -> Iterator[str]:
    if canonical_bytes(json.loads(container.read(MANIFEST))) != container.read(MANIFEST):
        yield f"changed: {MANIFEST} is not written as it was"
    head = links[-1].link if links else FIRST
    if manifest.head != head:
        yield f"changed: the manifest names the head {manifest.head}, and the chain ends with {head}"
    if manifest.records != len(links):
        yield f"changed: the manifest counts {manifest.records:,} records, and the chain has {len(links):,}"


def _contents(container: Container, records: list[Record]) -> Iterator[str]:
    """Each member against what the chain has of it."""
    files: dict[str, list[Record]] = {}
    for record in records:
        files.setdefault(record.file, []).append(record)
    for file, expected in files.items():
        if file not in container.members:
            yield f"missing: {file}" if by_line(file) else f"missing: {expected[0].about} ({file})"
        elif by_line(file):
            found = [digest(line) for line in lines_of(container.read(file))]
            yield from differences(expected, found, file)
        elif _hash(container, file) != expected[0].sha256 or len(expected) > 1:
            yield f"changed: {expected[0].about} ({file})"
    for name in container.members:
        if name not in files and name not in OUTSIDE_CHAIN:
            yield f"added: {name}"
    yield from _order([*files, CHAIN, MANIFEST, SIGNATURE], list(container.members))


def _order(expected: list[str], found: list[str]) -> Iterator[str]:
    """Members that are there, and in another place."""
    wanted = [Record("member", name, name, name) for name in expected if name in found]
    yield from differences(wanted, [name for name in found if name in expected], "the bundle")


def _hash(container: Container, name: str) -> str:
    found = hashlib.sha256()
    for piece in container.pieces(name):
        found.update(piece)
    return found.hexdigest()


def _signature(container: Container, wanted: str | None) -> tuple[str, str | None, list[str]]:
    """Whether it holds, whose it is, and what is wrong with it."""
    if SIGNATURE not in container.members:
        return "none", None, ["missing: a signature by the key that was given"] if wanted else []
    try:
        text = container.read(SIGNATURE)
        found = Signature.model_validate_json(text)
        if canonical_bytes(json.loads(text)) != text:
            return "changed", found.key, [f"changed: {SIGNATURE} is not written as it was"]
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(found.key.removeprefix(KIND), validate=True))
        signature = base64.b64decode(found.signature, validate=True)
        public.verify(signature, signed_bytes(found, container.read(MANIFEST)))
    except InvalidSignature:
        return "does not hold", found.key, ["changed: the manifest, or its signature: it does not hold"]
    except (ValidationError, ValueError):
        return "cannot be read", None, [f"changed: {SIGNATURE} cannot be read"]
    if wanted is not None and wanted != found.key:
        return "by another key", found.key, [f"changed: signed by key {key_id(found.key)}, not {key_id(wanted)}"]
    return "valid", found.key, []
