"""A bundle: its members, and how it is opened without a server.

histories/0001.jsonl   one for each run: a line that names it, then a line for each event, as the server had it
references.jsonl       the payloads that histories refer to, and the hash of each here
payloads/<sha256>      those payloads, as they were stored
outputs/<sha256>.txt   whole outputs of which the model read a part
records/<kind>/<sha256>.json   definitions of tools, rules and hooks that verdicts were given by
decisions.jsonl        the decisions, with their signatures
timeline.json          the timeline, as it was when the bundle was made
chain.jsonl            a line for each of these lines and members, linked to the line before it
manifest.json          what the bundle is about, what it lacks, and the head of the chain
signature.json         the signature of the manifest, if there is one
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory

from holdfast.domain.base import Data, describe_problems
from holdfast.errors import BadInput
from holdfast.payloads.file_store import TOO_LARGE as PAYLOAD_LIMIT
from holdfast.util.json_values import encode_canonical
from holdfast.util.text import shorten_text
from holdfast.workers.audit.bundle.chain import digest_bytes
from holdfast.workers.audit.bundle.tar import Container, inspect_container
from holdfast.workers.audit.read.stored_payloads import Reference, build_missing_payload
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, Run, build_run

FORMAT = "holdfast-bundle"
VERSION = 1
PREFIX = b"holdfast-bundle-v1\n"
"""Domain separation: nothing else that a key signs begins like this."""
MANIFEST, CHAIN, SIGNATURE = "manifest.json", "chain.jsonl", "signature.json"
REFERENCES, DECISIONS, TIMELINE = "references.jsonl", "decisions.jsonl", "timeline.json"
UNCHAINED_MEMBERS = frozenset({MANIFEST, CHAIN, SIGNATURE})
LINE_MEMBERS = ("histories/", REFERENCES, DECISIONS)
"""Members of which each line is a record."""
SIGNATURE_LIMIT = 64 * 1024
_HASH = "[0-9a-f]{64}"
_MEMBER_NAMES = re.compile(
    rf"histories/[0-9]{{4,}}\.jsonl|payloads/({_HASH})|outputs/({_HASH})\.[a-z0-9]{{2,4}}"
    rf"|records/(?:catalogue|definition|hooks|policy)/({_HASH})\.json"
)
"""The names that members may have. A name with a hash is that of its content."""


class BundledRun(Data):
    """A run in the manifest."""

    file: str
    workflow: str
    run: str
    type: str
    events: int


class Manifest(Data):
    """What a bundle says of itself."""

    format: str
    version: int
    holdfast: str = ""
    created: str = ""
    subject: str
    kind: Literal["turn", "session"] = "turn"
    namespace: str = ""
    runs: tuple[BundledRun, ...] = ()
    absent: tuple[str, ...] = ()
    """What belongs to it and was missing when it was made."""
    signer: str | None = None
    """The public key that is to sign it."""
    records: int = 0
    head: str = ""

    def chained_bytes(self) -> bytes:
        """What the last record of the chain is over: all but the fields that this record determines."""
        return encode_canonical(self.model_dump(mode="json", exclude={"records", "head"}))


class Signature(Data):
    """The signature of a manifest."""

    key: str
    """The public key, in the form of the settings."""
    name: str = ""
    """The owner of the key, as the signer says."""
    signature: str = ""


def signed_bytes(by: Signature, manifest: bytes) -> bytes:
    """Build what a signature is over: its key and name, and the manifest."""
    return PREFIX + encode_canonical({"key": by.key, "name": by.name}) + b"\n" + manifest


@dataclass(frozen=True)
class Bundle:
    """An opened bundle."""

    container: Container
    manifest: Manifest
    references: dict[Reference, str] = field(default_factory=dict)

    async def fetch(self, reference: Reference) -> Payload:
        """Return a stored payload of the bundle, or a placeholder."""
        sha256 = self.references.get(reference)
        name = f"payloads/{sha256}"
        if name not in self.container.members:
            return build_missing_payload(reference)
        data = await asyncio.to_thread(self.container.read, name, PAYLOAD_LIMIT)
        return Payload.FromString(data) if digest_bytes(data) == sha256 else build_missing_payload(reference)

    def read_runs(self) -> GatheredRuns:
        """Read the runs of its histories. BadInput when one cannot be read."""
        runs = tuple(self._read_run(one) for one in self.manifest.runs)
        if not runs:
            raise BadInput("the bundle holds no history")
        return GatheredRuns(self.manifest.subject, runs, self.manifest.absent)

    def _read_run(self, one: BundledRun) -> Run:
        if one.file not in self.container.members:
            raise BadInput(f"the bundle has no {one.file!r}: see `holdfast audit verify`")
        try:
            _, *events = self.container.read_lines(one.file)
            history = WorkflowHistory.from_json(one.workflow, {"events": [json.loads(event) for event in events]})
            return build_run(history.events, one.workflow)
        except BadInput:
            raise
        except Exception as error:  # whatever is wrong with it, down to what protobuf raises
            raise BadInput(
                f"{one.file!r} cannot be read ({type(error).__name__}): see `holdfast audit verify`"
            ) from None


def open_bundle(file: Path) -> Bundle:
    """Open a bundle for reading, without verifying it. BadInput when it is not one."""
    container = open_container(file)
    return Bundle(container, read_manifest(container), dict(_read_references(container)))


def open_container(file: Path) -> Container:
    """Read the members of a file. BadInput when it cannot be read or has no members."""
    try:
        container = inspect_container(file)
    except OSError as error:
        raise BadInput(f"{str(file)!r} cannot be read: {error.strerror}") from None
    if not container.members:
        raise BadInput(f"{str(file)!r} is not a bundle of `holdfast audit export`")
    return container


def read_manifest(container: Container) -> Manifest:
    """Read the manifest. BadInput when it is missing or invalid, or of another version."""
    if MANIFEST not in container.members:
        raise BadInput(f"{str(container.file)!r} has no manifest: it is not a bundle, or is incomplete")
    try:
        manifest = Manifest.model_validate_json(container.read(MANIFEST))
    except ValidationError as error:
        raise BadInput(f"the manifest of the bundle cannot be read: {describe_problems(error, 'manifest')}") from None
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        made = f"{shorten_text(manifest.format, 50)!r} of version {manifest.version}"
        raise UnknownBundleVersion(f"this is a {made}; this program reads {FORMAT} {VERSION}: use the one that made it")
    return manifest


class UnknownBundleVersion(BadInput):
    """The bundle was made by another version of this program."""


def _read_references(container: Container) -> Iterable[tuple[Reference, str]]:
    if REFERENCES not in container.members:
        return
    for line in container.read_lines(REFERENCES):
        try:
            value: dict[str, Any] = json.loads(line)
            yield Reference(value["driver"], tuple(sorted(value["claim"].items()))), value["sha256"]
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # reported by verifying


def find_member_hash(member: str) -> str | None:
    """Return the hash in a member's name, if it has one. BadInput for a name that no bundle has."""
    if member in (REFERENCES, DECISIONS, TIMELINE, *UNCHAINED_MEMBERS):
        return None
    named = _MEMBER_NAMES.fullmatch(member)
    if named is None:
        raise BadInput(f"nothing in a bundle is called {member!r}")
    return next(filter(None, named.groups()), None)


def is_line_member(member: str) -> bool:
    """Whether each line of the member is a record."""
    return member.startswith(LINE_MEMBERS)


def encode_reference(reference: Reference, payload: bytes) -> bytes:
    """Encode where a payload of the bundle is."""
    return encode_canonical(
        {"driver": reference.driver, "claim": dict(reference.claim), "sha256": digest_bytes(payload)}
    )
