"""Writing a bundle: everything that a turn or a session left, in one file that can be verified and replayed
anywhere.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from temporalio.converter import DataConverter

from holdfast import __version__
from holdfast.activities.gate.records import RecordFolder, RecordKind
from holdfast.client.signing_keys import Signer
from holdfast.config.settings import Settings
from holdfast.domain.approvals.signing import format_public_key
from holdfast.errors import BadInput
from holdfast.util.files import replace_file
from holdfast.util.json_values import encode_canonical
from holdfast.workers.audit.bundle.bundle import (
    CHAIN,
    DECISIONS,
    FORMAT,
    MANIFEST,
    REFERENCES,
    SIGNATURE,
    TIMELINE,
    VERSION,
    BundledRun,
    Manifest,
    Signature,
    encode_reference,
    signed_bytes,
)
from holdfast.workers.audit.bundle.chain import Chain, Record, digest_bytes
from holdfast.workers.audit.bundle.tar import ContainerWriter
from holdfast.workers.audit.read.examined_run import read_validation_facts
from holdfast.workers.audit.read.history_facts import format_event_type
from holdfast.workers.audit.read.stored_payloads import Fetch, Reference, find_reference, is_missing
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, ReportProgress, Run
from holdfast.workers.audit.timeline.build import build_timeline
from holdfast.workers.audit.timeline.timeline import MessageStory, Timeline
from holdfast.workers.storage.referenced import list_payloads


async def export_bundle(
    gathered: GatheredRuns,
    converter: DataConverter,
    fetch: Fetch,
    settings: Settings,
    file: Path,
    *,
    namespace: str = "",
    signer: Signer | None = None,
    tell: ReportProgress = lambda words: None,
) -> Manifest:
    """Write a bundle, whole or not at all, and return its manifest. BadInput when the file cannot be written."""
    try:
        with replace_file(file) as opened:
            return await _BundleBuilder(opened, settings, tell).write_bundle(
                gathered, converter, fetch, namespace, signer
            )
    except OSError as error:
        raise BadInput(f"{str(file)!r} cannot be written: {error.strerror}") from None


class _BundleBuilder:
    def __init__(self, file: BinaryIO, settings: Settings, tell: ReportProgress) -> None:
        self._writer = ContainerWriter(file)
        self._chain = Chain()
        self._settings = settings
        self._records = RecordFolder(settings.records_folder)
        self._tell = tell
        self._absent: list[str] = []
        self._runs: list[BundledRun] = []
        self._added: set[str] = set()

    async def write_bundle(
        self, gathered: GatheredRuns, converter: DataConverter, fetch: Fetch, namespace: str, signer: Signer | None
    ) -> Manifest:
        """Write all members, in order."""
        self._absent += gathered.lacking
        for number, run in enumerate(gathered.runs, start=1):
            self._write_history(number, run)
        await self._write_payloads(gathered, fetch)
        self._tell("building the timeline")
        timeline = await build_timeline(gathered, converter)
        self._write_outputs(timeline)
        for run in gathered.runs:
            await self._write_records(run, converter)
        self._write_lines(DECISIONS, "decision", list(_list_decisions(timeline)))
        self._write_member(
            TIMELINE, "timeline", "the timeline", timeline.model_dump_json(exclude_defaults=True).encode()
        )
        manifest = Manifest(
            format=FORMAT,
            version=VERSION,
            holdfast=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            subject=gathered.id,
            kind=gathered.kind,
            namespace=namespace,
            runs=tuple(self._runs),
            absent=tuple(dict.fromkeys(self._absent)),
            signer=format_public_key(signer.key.public_key()) if signer else None,
        )
        return self._finish_bundle(manifest, signer)

    def _finish_bundle(self, unchained: Manifest, signer: Signer | None) -> Manifest:
        self._chain.add(Record("manifest", MANIFEST, "the manifest", digest_bytes(unchained.chained_bytes())))
        manifest = unchained.model_copy(update={"records": self._chain.length, "head": self._chain.head})
        self._writer.add(CHAIN, self._chain.encode_lines())
        text = encode_canonical(manifest.model_dump(mode="json"))
        self._writer.add(MANIFEST, text)
        if signer:
            self._writer.add(SIGNATURE, encode_canonical(sign_manifest(text, signer).model_dump(mode="json")))
        self._writer.close()
        return manifest

    def _write_history(self, number: int, run: Run) -> None:
        file = f"histories/{number:04}.jsonl"
        self._tell(f"history {number:,}, {run.workflow}")
        head = {"workflow": run.workflow, "run": run.run, "type": run.type, "parent": run.parent}
        lines = [(f"which run {file} is of", encode_canonical(head))]
        for event, value in zip(run.events, run.history.to_json_dict()["events"], strict=True):
            about = f"event {event.event_id} ({format_event_type(event)}) of {run.title}, run {run.run}"
            lines.append((about, encode_canonical(value)))
        self._write_lines(file, "event", lines)
        self._runs.append(
            BundledRun(file=file, workflow=run.workflow, run=run.run, type=run.type, events=len(run.events))
        )

    async def _write_payloads(self, gathered: GatheredRuns, fetch: Fetch) -> None:
        lines: dict[Reference, bytes] = {}
        written: set[str] = set()
        for reference, where in _list_references(gathered):
            if reference in lines:
                continue
            payload = await fetch(reference)
            if is_missing(payload):
                self._absent.append(f"payload {reference.name}, of {where}")
                continue
            data = payload.SerializeToString(deterministic=True)
            lines[reference] = encode_reference(reference, data)
            name = f"payloads/{digest_bytes(data)}"
            if name not in written:
                written.add(name)
                self._write_member(name, "payload", f"payload {digest_bytes(data)}, of {where}", data)
            self._tell(f"{len(lines):,} payloads")
        about = [(f"where payload {reference.name} is", line) for reference, line in lines.items()]
        self._write_lines(REFERENCES, "reference", about)

    def _write_outputs(self, timeline: Timeline) -> None:
        for path, where in dict(_list_outputs(timeline)).items():
            name = Path(path).name
            self._tell(f"output {name}")
            if not self._write_file(
                f"outputs/{name}", "output", self._settings.outputs_folder / name, name.partition(".")[0]
            ):
                self._absent.append(f"output {name}, of {where}")

    async def _write_records(self, run: Run, converter: DataConverter) -> None:
        judged = await read_validation_facts(run, converter)
        wanted: list[tuple[RecordKind, tuple[str, ...]]] = [
            ("policy", judged.policy),
            ("hooks", judged.hooks),
            ("catalogue", judged.catalogue),
            ("definition", judged.definitions),
        ]
        for kind, digests in wanted:
            for one in digests:
                if not self._write_file(f"records/{kind}/{one}.json", kind, self._records.locate_file(kind, one), one):
                    self._absent.append(f"{kind} {one}, of {run.title}")

    def _write_file(self, name: str, kind: str, source: Path, sha256: str) -> bool:
        """Add a file that is named by its hash; False when it is missing or has other content."""
        if name in self._added:
            return True
        if not self._writer.add_file(name, source, sha256):
            return False
        self._added.add(name)
        self._chain.add(Record(kind, name, f"{kind} {sha256}", sha256))
        return True

    def _write_member(self, name: str, kind: str, about: str, data: bytes) -> None:
        self._writer.add(name, data)
        self._chain.add(Record(kind, name, about, digest_bytes(data)))

    def _write_lines(self, name: str, kind: str, lines: list[tuple[str, bytes]]) -> None:
        if not lines:
            return
        self._writer.add(name, b"".join(line + b"\n" for _, line in lines))
        for place, (about, line) in enumerate(lines, start=1):
            self._chain.add(Record(kind, name, about, digest_bytes(line), place))


def sign_manifest(manifest: bytes, signer: Signer) -> Signature:
    """Sign a manifest."""
    unsigned = Signature(key=format_public_key(signer.key.public_key()), name=signer.name)
    signature = base64.b64encode(signer.key.sign(signed_bytes(unsigned, manifest))).decode()
    return unsigned.model_copy(update={"signature": signature})


def _list_references(gathered: GatheredRuns) -> Iterator[tuple[Reference, str]]:
    for run in gathered.runs:
        for event in run.events:
            for payload in list_payloads(event):
                if reference := find_reference(payload):
                    yield reference, f"event {event.event_id} of {run.title}, run {run.run}"


def _list_outputs(timeline: Timeline) -> Iterator[tuple[str, str]]:
    for call in timeline.calls:
        yield from ((path, f"call {call.id} of {timeline.id}") for path in call.outputs)
    for turn in timeline.turns:
        yield from _list_outputs(turn)


def _list_decisions(timeline: Timeline) -> Iterator[tuple[str, bytes]]:
    for call in timeline.calls:
        for decision in call.decisions:
            yield _encode_decision(timeline.id, call.id, decision)
    for message in timeline.messages:
        if message.approval:
            yield _encode_decision(timeline.id, "", message)
    for turn in timeline.turns:
        yield from _list_decisions(turn)


def _encode_decision(turn: str, call: str, decision: MessageStory) -> tuple[str, bytes]:
    body: dict[str, Any] = {"turn": turn, "call": call, **decision.model_dump(mode="json")}
    return f"decision {decision.outcome!r} of {decision.by or 'somebody'} on {decision.approval}", encode_canonical(
        body
    )
