"""Making a bundle: everything that a turn or a session left, in one file that verifies and replays anywhere."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from temporalio.converter import DataConverter

from holdfast import __version__
from holdfast.activities.records import Kind, Records
from holdfast.approvals import canonical_bytes
from holdfast.errors import BadInput
from holdfast.keys import Signer
from holdfast.settings import Settings
from holdfast.signing import public_text
from holdfast.whole_files import replacing
from holdfast.workers.audit.bundle import (
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
    reference_line,
    signed_bytes,
)
from holdfast.workers.audit.chain import Chain, Record, digest
from holdfast.workers.audit.container import Writer
from holdfast.workers.audit.facts import type_of
from holdfast.workers.audit.judged import judged_by
from holdfast.workers.audit.runs import Gathered, Run, Tell
from holdfast.workers.audit.stored import Fetch, Reference, is_missing, reference_of
from holdfast.workers.audit.telling import told
from holdfast.workers.audit.timeline import Said, Timeline
from holdfast.workers.reaching import payloads_in


async def export(
    gathered: Gathered,
    converter: DataConverter,
    fetch: Fetch,
    settings: Settings,
    file: Path,
    *,
    namespace: str = "",
    signer: Signer | None = None,
    tell: Tell = lambda words: None,
) -> Manifest:
    """Write a bundle, whole or not at all; what its manifest says. BadInput when it cannot be written."""
    try:
        with replacing(file) as opened:
            return await _Making(opened, settings, tell).fill(gathered, converter, fetch, namespace, signer)
    except OSError as error:
        raise BadInput(f"{str(file)!r} cannot be written: {error.strerror}") from None


class _Making:
    def __init__(self, file: BinaryIO, settings: Settings, tell: Tell) -> None:
        self._writer = Writer(file)
        self._chain = Chain()
        self._settings = settings
        self._records = Records(settings.records)
        self._tell = tell
        self._absent: list[str] = []
        self._runs: list[BundledRun] = []
        self._added: set[str] = set()

    async def fill(
        self, gathered: Gathered, converter: DataConverter, fetch: Fetch, namespace: str, signer: Signer | None
    ) -> Manifest:
        """Everything, in order."""
        self._absent += gathered.lacking
        for number, run in enumerate(gathered.runs, start=1):
            self._history(number, run)
        await self._payloads(gathered, fetch)
        self._tell("telling what happened")
        timeline = await told(gathered, converter)
        self._outputs(timeline)
        for run in gathered.runs:
            await self._texts(run, converter)
        self._lines(DECISIONS, "decision", list(_decisions(timeline)))
        self._whole(TIMELINE, "timeline", "the timeline", timeline.model_dump_json(exclude_defaults=True).encode())
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
            signer=public_text(signer.key.public_key()) if signer else None,
        )
        return self._finish(manifest, signer)

    def _finish(self, unchained: Manifest, signer: Signer | None) -> Manifest:
        self._chain.add(Record("manifest", MANIFEST, "the manifest", digest(unchained.chained())))
        manifest = unchained.model_copy(update={"records": self._chain.length, "head": self._chain.head})
        self._writer.add(CHAIN, self._chain.text())
        text = canonical_bytes(manifest.model_dump(mode="json"))
        self._writer.add(MANIFEST, text)
        if signer:
            self._writer.add(SIGNATURE, canonical_bytes(signed(text, signer).model_dump(mode="json")))
        self._writer.close()
        return manifest

    def _history(self, number: int, run: Run) -> None:
        file = f"histories/{number:04}.jsonl"
        self._tell(f"history {number:,}, {run.workflow}")
        head = {"workflow": run.workflow, "run": run.run, "type": run.type, "parent": run.parent}
        lines = [(f"which run {file} is of", canonical_bytes(head))]
        for event, said in zip(run.events, run.history.to_json_dict()["events"], strict=True):
            about = f"event {event.event_id} ({type_of(event)}) of {run.name}, run {run.run}"
            lines.append((about, canonical_bytes(said)))
        self._lines(file, "event", lines)
        self._runs.append(
            BundledRun(file=file, workflow=run.workflow, run=run.run, type=run.type, events=len(run.events))
        )

    async def _payloads(self, gathered: Gathered, fetch: Fetch) -> None:
        lines: dict[Reference, bytes] = {}
        kept: set[str] = set()
        for reference, where in _referred(gathered):
            if reference in lines:
                continue
            payload = await fetch(reference)
            if is_missing(payload):
                self._absent.append(f"payload {reference.name}, of {where}")
                continue
            data = payload.SerializeToString(deterministic=True)
            lines[reference] = reference_line(reference, data)
            name = f"payloads/{digest(data)}"
            if name not in kept:
                kept.add(name)
                self._whole(name, "payload", f"payload {digest(data)}, of {where}", data)
            self._tell(f"{len(lines):,} payloads")
        about = [(f"where payload {reference.name} is", line) for reference, line in lines.items()]
        self._lines(REFERENCES, "reference", about)

    def _outputs(self, timeline: Timeline) -> None:
        for path, where in dict(_kept_outputs(timeline)).items():
            name = Path(path).name
            self._tell(f"output {name}")
            if not self._file(f"outputs/{name}", "output", self._settings.outputs / name, name.partition(".")[0]):
                self._absent.append(f"output {name}, of {where}")

    async def _texts(self, run: Run, converter: DataConverter) -> None:
        judged = await judged_by(run, converter)
        wanted: list[tuple[Kind, tuple[str, ...]]] = [
            ("policy", judged.policy),
            ("hooks", judged.hooks),
            ("catalogue", judged.catalogue),
            ("definition", judged.definitions),
        ]
        for kind, digests in wanted:
            for one in digests:
                if not self._file(f"records/{kind}/{one}.json", kind, self._records.file(kind, one), one):
                    self._absent.append(f"{kind} {one}, of {run.name}")

    def _file(self, name: str, kind: str, source: Path, sha256: str) -> bool:
        """A file whose name says what it holds; False when it is not there, or holds something else."""
        if name in self._added:
            return True
        if not self._writer.add_file(name, source, sha256):
            return False
        self._added.add(name)
        self._chain.add(Record(kind, name, f"{kind} {sha256}", sha256))
        return True

    def _whole(self, name: str, kind: str, about: str, data: bytes) -> None:
        self._writer.add(name, data)
        self._chain.add(Record(kind, name, about, digest(data)))

    def _lines(self, name: str, kind: str, lines: list[tuple[str, bytes]]) -> None:
        if not lines:
            return
        self._writer.add(name, b"".join(line + b"\n" for _, line in lines))
        for place, (about, line) in enumerate(lines, start=1):
            self._chain.add(Record(kind, name, about, digest(line), place))


def signed(manifest: bytes, signer: Signer) -> Signature:
    """A signature over a manifest."""
    unsigned = Signature(key=public_text(signer.key.public_key()), name=signer.name)
    signature = base64.b64encode(signer.key.sign(signed_bytes(unsigned, manifest))).decode()
    return unsigned.model_copy(update={"signature": signature})


def _referred(gathered: Gathered) -> Iterator[tuple[Reference, str]]:
    for run in gathered.runs:
        for event in run.events:
            for payload in payloads_in(event):
                if reference := reference_of(payload):
                    yield reference, f"event {event.event_id} of {run.name}, run {run.run}"


def _kept_outputs(timeline: Timeline) -> Iterator[tuple[str, str]]:
    for call in timeline.calls:
        yield from ((path, f"call {call.id} of {timeline.id}") for path in call.outputs)
    for turn in timeline.turns:
        yield from _kept_outputs(turn)


def _decisions(timeline: Timeline) -> Iterator[tuple[str, bytes]]:
    for call in timeline.calls:
        for said in call.decisions:
            yield _decision(timeline.id, call.id, said)
    for said in timeline.messages:
        if said.approval:
            yield _decision(timeline.id, "", said)
    for turn in timeline.turns:
        yield from _decisions(turn)


def _decision(turn: str, call: str, said: Said) -> tuple[str, bytes]:
    body: dict[str, Any] = {"turn": turn, "call": call, **said.model_dump(mode="json")}
    return f"decision {said.outcome!r} of {said.by or 'somebody'} on {said.approval}", canonical_bytes(body)
