"""Verifying a bundle without a server: exactly what was changed, removed, added or moved.

The chain holds it together: its last record is over the manifest, and the manifest, which may be signed, names its
head. Without a signature, or a head that was noted elsewhere, anyone who can rewrite the whole file can make another
valid one. A bundle may come from a stranger: whatever it holds is a finding, never an exception.
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

from holdfast.domain.approvals.signing import KEY_PREFIX, derive_key_id
from holdfast.errors import BadInput
from holdfast.util.json_values import encode_canonical
from holdfast.workers.audit.bundle.bundle import (
    CHAIN,
    FORMAT,
    MANIFEST,
    SIGNATURE,
    SIGNATURE_LIMIT,
    UNCHAINED_MEMBERS,
    VERSION,
    Manifest,
    Signature,
    UnknownBundleVersion,
    find_member_hash,
    is_line_member,
    open_container,
    read_manifest,
    signed_bytes,
)
from holdfast.workers.audit.bundle.chain import (
    FIRST_LINK,
    Link,
    Record,
    digest_bytes,
    find_chain_problems,
    find_differences,
    read_chain,
)
from holdfast.workers.audit.bundle.tar import Container

MORE_LIMIT = 10_000
"""How many lines beyond those of the chain are counted in a member."""


@dataclass(frozen=True)
class VerifyResult:
    """The result of verifying a bundle."""

    manifest: Manifest
    findings: tuple[str, ...]
    """What has been changed; empty if nothing has."""
    signature: str
    """`none`, `valid`, or why it does not hold."""
    key: str | None = None
    """The public key that signed."""
    name: str = ""
    """The owner of the key, as the signer says."""
    head: str = ""
    records: int = 0

    @property
    def is_intact(self) -> bool:
        """Whether everything is as it was when the bundle was made."""
        return not self.findings


def verify_bundle(file: Path, *, key: str | None = None, head: str | None = None) -> VerifyResult:
    """Verify every byte of a bundle. `key`: the only key that may have signed. `head`: the head as it was noted
    elsewhere.

    BadInput when the file is not a bundle, or of another version.
    """
    container = open_container(file)
    manifest, unread = _read_manifest(container)
    links, broken = _read_links(container)
    findings = [*container.problems, *unread, *broken, *find_chain_problems(links)]
    if not unread:
        findings += _compare_manifest(container, manifest, links)
    findings += _verify_members(container, [link.record for link in links])
    signature = _verify_signature(container, manifest, key)
    findings += signature.wrong
    if head is not None and head != manifest.head:
        findings.append(f"changed: the head of the chain is {manifest.head}, not {head}")
    by = signature.by or Signature(key="")
    return VerifyResult(manifest, tuple(findings), signature.state, by.key or None, by.name, manifest.head, len(links))


def _read_manifest(container: Container) -> tuple[Manifest, list[str]]:
    try:
        return read_manifest(container), []
    except UnknownBundleVersion:
        raise
    except BadInput as error:
        return Manifest(format=FORMAT, version=VERSION, subject="?"), [f"changed: {error}"]


def _read_links(container: Container) -> tuple[list[Link], list[str]]:
    if CHAIN not in container.members:
        return [], [f"missing: {CHAIN}"]
    try:
        found = list(read_chain(container.read_lines(CHAIN)))
    except BadInput as error:
        return [], [f"changed: {error}"]
    return [one for one in found if isinstance(one, Link)], [one for one in found if isinstance(one, str)]


def _compare_manifest(container: Container, manifest: Manifest, links: list[Link]) -> Iterator[str]:
    if encode_canonical(manifest.model_dump(mode="json")) != container.read(MANIFEST):
        yield f"changed: {MANIFEST} is not canonical JSON"
    last = links[-1].record if links else None
    if last is None or (last.file, last.sha256) != (MANIFEST, digest_bytes(manifest.chained_bytes())):
        yield f"changed: {MANIFEST} is not the one that the chain ends with"
    head = links[-1].link if links else FIRST_LINK
    if manifest.head != head:
        yield f"changed: the manifest names the head {manifest.head}, and the chain ends with {head}"
    if manifest.records != len(links):
        yield f"changed: the manifest counts {manifest.records:,} records, and the chain has {len(links):,}"


def _verify_members(container: Container, records: list[Record]) -> Iterator[str]:
    """Compare each member with its records."""
    files: dict[str, list[Record]] = {}
    for record in records:
        if record.file != MANIFEST:
            files.setdefault(record.file, []).append(record)
    for file, expected in files.items():
        if file not in container.members:
            yield f"missing: {file}" if is_line_member(file) else f"missing: {expected[0].about} ({file})"
        elif is_line_member(file):
            yield from _verify_lines(container, file, expected)
        elif container.digest_member(file) != expected[0].sha256 or len(expected) > 1:
            yield f"changed: {expected[0].about} ({file})"
    yield from _verify_names(container, files)
    yield from _verify_order([*files, CHAIN, MANIFEST, SIGNATURE], list(container.members))


def _verify_lines(container: Container, file: str, expected: list[Record]) -> Iterator[str]:
    if [record.line for record in expected] != list(range(1, len(expected) + 1)):
        yield f"changed: the records of the chain are not the lines of {file}"
    found = list(islice(container.digest_lines(file), len(expected) + MORE_LIMIT))
    if len(found) == len(expected) + MORE_LIMIT:
        yield f"added: over {MORE_LIMIT:,} lines of {file}"
    yield from find_differences(expected, found, file)


def _verify_names(container: Container, files: dict[str, list[Record]]) -> Iterator[str]:
    """Check that no member has another name, and that a hash in a name is that of its content."""
    for name in container.members:
        try:
            sha256 = find_member_hash(name)
        except BadInput:
            sha256 = None
            yield f"added: {name}"
            continue
        if name not in files and name not in UNCHAINED_MEMBERS:
            yield f"added: {name}"
        elif sha256 is not None and files[name][0].sha256 != sha256:
            yield f"changed: {name} does not hold what its name says"


def _verify_order(expected: list[str], found: list[str]) -> Iterator[str]:
    """Check the order of the members."""
    wanted, there = set(expected), set(found)
    records = [Record("member", name, name, name) for name in expected if name in there]
    yield from find_differences(records, [name for name in found if name in wanted], "the bundle")


@dataclass(frozen=True)
class _SignatureState:
    state: str
    by: Signature | None = None
    wrong: tuple[str, ...] = ()


def _verify_signature(container: Container, manifest: Manifest, wanted_key: str | None) -> _SignatureState:
    """Whether the signature holds, whose it is, and what is wrong with it."""
    if SIGNATURE not in container.members:
        lost = f"missing: {SIGNATURE}, by key {_format_key(manifest.signer)}" if manifest.signer else None
        asked = "missing: a signature by the key that was given" if wanted_key else None
        return _SignatureState("none", None, tuple(filter(None, (lost, asked)))[:1])
    try:
        text = container.read(SIGNATURE, SIGNATURE_LIMIT)
        found = Signature.model_validate_json(text)
        if encode_canonical(found.model_dump(mode="json")) != text or not _is_canonical(found):
            return _SignatureState("changed", found, (f"changed: {SIGNATURE} is not canonical JSON",))
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(found.key.removeprefix(KEY_PREFIX), validate=True))
        public.verify(base64.b64decode(found.signature), signed_bytes(found, container.read(MANIFEST)))
    except InvalidSignature:
        return _SignatureState("does not hold", found, ("changed: the manifest, or its signature: it does not hold",))
    except (ValidationError, ValueError, KeyError, BadInput):
        return _SignatureState("cannot be read", None, (f"changed: {SIGNATURE} cannot be read",))
    if found.key != manifest.signer:
        return _SignatureState(
            "by another key",
            found,
            (f"changed: signed by key {_format_key(found.key)}, not by the one that the manifest names",),
        )
    if wanted_key is not None and wanted_key != found.key:
        words = f"changed: signed by key {_format_key(found.key)}, not {_format_key(wanted_key)}"
        return _SignatureState("by another key", found, (words,))
    return _SignatureState("valid", found)


def _is_canonical(found: Signature) -> bool:
    """Whether it is written in its only form. ValueError when it is not a key or a signature."""
    derive_key_id(found.key)
    return base64.b64encode(base64.b64decode(found.signature, validate=True)).decode() == found.signature


def _format_key(key: str | None) -> str:
    try:
        return derive_key_id(key or "")
    except ValueError:
        return json.dumps(key)[:80]
