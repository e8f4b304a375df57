"""Every kind of tampering with a bundle is found, and told by what was done to what (S43)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import WorkflowHistory

from holdfast import Settings
from holdfast.client.signing_keys import Signer
from holdfast.domain.approvals.signing import format_public_key
from holdfast.errors import BadInput
from holdfast.payloads.converter import build_data_converter
from holdfast.util.json_values import encode_canonical
from holdfast.workers.audit.bundle.bundle import CHAIN, MANIFEST, SIGNATURE, Manifest, UnknownBundleVersion
from holdfast.workers.audit.bundle.chain import Chain, Record, digest_bytes
from holdfast.workers.audit.bundle.export import export_bundle, sign_manifest
from holdfast.workers.audit.bundle.verify import VerifyResult, verify_bundle
from holdfast.workers.audit.read.stored_payloads import build_read_only_converter, build_storage_fetch
from holdfast.workers.audit.read.workflow_runs import GatheredRuns, build_run
from tests.support.bundles import Members, archive, members

HISTORIES = Path(__file__).parents[4] / "replay" / "histories"
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
HISTORY = "histories/0001.jsonl"
FLIPS = 600


async def _bundle(folder: Path, *, signer: Signer | None = None) -> Path:
    said = json.loads((HISTORIES / "large_payloads.json").read_text())
    run = build_run(WorkflowHistory.from_json("large", said).events)
    base = build_data_converter(None, HISTORIES / "payloads")
    fetch = build_storage_fetch(base)
    file = folder / "bundle.tar"
    settings = Settings(data=folder / "data")
    await export_bundle(
        GatheredRuns(run.workflow, (run,)), build_read_only_converter(base, fetch), fetch, settings, file, signer=signer
    )
    return file


@pytest.fixture(scope="module")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await _bundle(tmp_path_factory.mktemp("signed"), signer=Signer("auditor", KEY))


@pytest.fixture(scope="module")
async def unsigned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await _bundle(tmp_path_factory.mktemp("unsigned"))


def looked_at(folder: Path, data: bytes, **how: str) -> VerifyResult:
    file = folder / "tampered.tar"
    file.write_bytes(data)
    return verify_bundle(file, **how)


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def in_history(change: Callable[[list[bytes]], object]) -> Callable[[Members], Members]:
    """What is done to the lines of the history."""
    return in_member(HISTORY, change)


def in_member(name: str, change: Callable[[list[bytes]], object]) -> Callable[[Members], Members]:
    def tamper(found: Members) -> Members:
        rows = lines(dict(found)[name])
        change(rows)
        return [(one, b"".join(rows) if one == name else data) for one, data in found]

    return tamper


def swap(rows: list[bytes]) -> None:
    rows[5], rows[6] = rows[6], rows[5]


def edit(rows: list[bytes]) -> None:
    rows[5] = rows[5].replace(b'"eventId"', b'"eventID"')


def without(prefix: str) -> Callable[[Members], Members]:
    def tamper(found: Members) -> Members:
        gone = next(name for name, _ in found if name.startswith(prefix))
        return [(name, data) for name, data in found if name != gone]

    return tamper


def _payload(found: Members) -> int:
    return next(place for place, (name, _) in enumerate(found) if name.startswith("payloads/"))


def _changed_payload(found: Members) -> Members:
    place = _payload(found)
    name, data = found[place]
    found[place] = (name, data[:-1] + b"?")
    return found


def _spare_bits(data: bytes) -> bytes:
    """The last character before the padding carries bits that nobody reads."""
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    place = data.index(b'=="}') - 1 if b'=="}' in data else data.index(b'=="') - 1
    return data[:place] + bytes([letters[letters.index(data[place]) ^ 1]]) + data[place + 1 :]


def _renamed_payload(found: Members) -> Members:
    """In the chain as well, so that only the name tells."""
    name = found[_payload(found)][0]
    other = "payloads/" + "0" * 64
    held = [(other if one == name else one, content) for one, content in found]
    return [(n, d.replace(name.encode(), other.encode()) if n == CHAIN else d) for n, d in held]


TAMPERINGS: dict[str, tuple[Callable[[Members], Members], str]] = {
    "an event changed": (in_history(edit), "changed: event 5 (MarkerRecorded) of turn "),
    "an event removed": (in_history(lambda rows: rows.pop(5)), "missing: event 5 (MarkerRecorded) of turn "),
    "an event added": (in_history(lambda rows: rows.insert(5, b"{}\n")), f"added: line 6 of {HISTORY}"),
    "an event doubled": (
        in_history(lambda rows: rows.insert(5, rows[5])),
        f"added: line 7 of {HISTORY}",
    ),
    "events reordered": (in_history(swap), "moved: event "),
    "the last event removed": (in_history(lambda rows: rows.pop()), "missing: event 18 (WorkflowExecutionCompleted)"),
    "which run it is of changed": (in_history(lambda rows: rows.__setitem__(0, b"{}\n")), "changed: which run"),
    "a history removed": (without("histories/"), f"missing: {HISTORY}"),
    "a payload removed": (without("payloads/"), "missing: payload "),
    "a payload changed": (_changed_payload, "changed: payload "),
    "a payload added": (lambda found: [("payloads/0", b""), *found], "added: payloads/0"),
    "where a payload is changed": (
        in_member("references.jsonl", lambda rows: rows.__setitem__(0, b"{}\n")),
        "changed: where payload ",
    ),
    "the timeline removed": (without("timeline.json"), "missing: the timeline"),
    "a file added at the end": (lambda found: [*found, ("note.txt", b"hello")], "added: note.txt"),
    "the chain removed": (without(CHAIN), f"missing: {CHAIN}"),
    "a record of the chain removed": (in_member(CHAIN, lambda rows: rows.pop(3)), "missing: record 4 of the chain"),
    "records of the chain reordered": (in_member(CHAIN, swap), "missing: record 6 of the chain, or moved behind"),
    "a record of the chain doubled": (in_member(CHAIN, lambda rows: rows.insert(3, rows[3])), "moved: record 4 of the"),
    "a record of the chain changed": (
        in_member(CHAIN, lambda rows: rows.__setitem__(3, rows[3].replace(b"event 3", b"event 9"))),
        "changed: record 4 of the chain, event 9",
    ),
    "a member twice": (lambda found: [*found, found[0]], f"added: a second '{HISTORY}'"),
    "the manifest changed": (
        lambda found: [(n, d.replace(b"holdfast.turn", b"holdfast.tern") if n == MANIFEST else d) for n, d in found],
        "changed: the manifest, or its signature",
    ),
    "the manifest written otherwise": (
        lambda found: [(n, b" " + d if n == MANIFEST else d) for n, d in found],
        f"changed: {MANIFEST} is not canonical JSON",
    ),
    "the name beside the signature changed": (
        lambda found: [(n, d.replace(b"auditor", b"emperor") if n == SIGNATURE else d) for n, d in found],
        "changed: the manifest, or its signature",
    ),
    "the signature removed": (without(SIGNATURE), f"missing: {SIGNATURE}, by key "),
    "a field added to the signature": (
        lambda found: [(n, d[:-1] + b',"z":1}' if n == SIGNATURE else d) for n, d in found],
        f"changed: {SIGNATURE} is not canonical JSON",
    ),
    "spare bits of the signature changed": (
        lambda found: [(n, _spare_bits(d) if n == SIGNATURE else d) for n, d in found],
        f"changed: {SIGNATURE} is not canonical JSON",
    ),
    "a key that is none": (
        lambda found: [(n, d.replace(b"ed25519:", b"") if n == SIGNATURE else d) for n, d in found],
        f"changed: {SIGNATURE} cannot be read",
    ),
    "a field added to the manifest": (
        lambda found: [(n, d[:-1] + b',"z":NaN}' if n == MANIFEST else d) for n, d in found],
        f"changed: {MANIFEST} is not canonical JSON",
    ),
    "the manifest garbage": (
        lambda found: [(n, b"[]" if n == MANIFEST else d) for n, d in found],
        "changed: the manifest of the bundle cannot be read",
    ),
    "a member with a name of its own": (lambda found: [*found, ("../../x", b"")], "added: ../../x"),
    "a payload under another's name": (_renamed_payload, "changed: payloads/"),
    "garbage for a signature": (
        lambda found: [(n, b"{}" if n == SIGNATURE else d) for n, d in found],
        f"changed: {SIGNATURE} cannot be read",
    ),
}


@pytest.mark.parametrize("kind", TAMPERINGS)
def test_S43_every_kind_of_tampering_is_found_and_told(bundle: Path, tmp_path: Path, kind: str) -> None:
    tamper, words = TAMPERINGS[kind]
    found = looked_at(tmp_path, archive(tamper(members(bundle))))
    assert not found.is_intact
    assert any(finding.startswith(words) for finding in found.findings), found.findings


def test_S43_members_in_another_order_are_told(bundle: Path, tmp_path: Path) -> None:
    held = members(bundle)
    held[0], held[1] = held[1], held[0]
    found = looked_at(tmp_path, archive(held))
    assert [words.split(":")[0] for words in found.findings] == ["moved"]


def test_S43_a_changed_byte_is_found_wherever_it_is(bundle: Path, tmp_path: Path) -> None:
    whole = bundle.read_bytes()
    some = random.Random(9)
    for place in sorted(some.sample(range(len(whole)), FLIPS)):
        changed = bytearray(whole)
        changed[place] ^= 1 << some.randrange(8)
        try:
            assert not looked_at(tmp_path, bytes(changed)).is_intact, f"byte {place}"
        except UnknownBundleVersion:  # the byte was one of the format's name or version
            continue


@pytest.mark.parametrize("change", [{"subject": "another"}, {"runs": []}, {"absent": ["x"]}, {"created": "1999"}])
def test_S43_the_head_is_over_the_manifest_too(unsigned: Path, tmp_path: Path, change: dict[str, object]) -> None:
    held = [(n, encode_canonical({**json.loads(d), **change}) if n == MANIFEST else d) for n, d in members(unsigned)]
    found = looked_at(tmp_path, archive(held), head=verify_bundle(unsigned).head)
    assert f"changed: {MANIFEST} is not the one that the chain ends with" in found.findings


def test_a_bundle_of_another_version_is_none_that_was_tampered_with(unsigned: Path, tmp_path: Path) -> None:
    held = [(n, d.replace(b'"version":1', b'"version":2') if n == MANIFEST else d) for n, d in members(unsigned)]
    with pytest.raises(BadInput, match="use the one that made it"):
        looked_at(tmp_path, archive(held))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_S43_a_bundle_that_was_cut_off_is_told(bundle: Path, tmp_path: Path, share: float) -> None:
    whole = bundle.read_bytes()
    found = looked_at(tmp_path, whole[: int(len(whole) * share)])
    assert not found.is_intact


def _rewritten(held: Members, key: Ed25519PrivateKey | None) -> bytes:
    """All of it anew, as whoever can write the whole file would: another event, another chain, another manifest."""
    files = dict(in_history(edit)(held))
    chain = Chain()
    signer = format_public_key(key.public_key()) if key else None
    manifest = Manifest.model_validate_json(files[MANIFEST]).model_copy(update={"signer": signer})
    for row in files[CHAIN].splitlines():
        said = json.loads(row)
        data = files[said["file"]].splitlines()[said["line"] - 1] if "line" in said else files[said["file"]]
        data = manifest.chained_bytes() if said["file"] == MANIFEST else data
        chain.add(Record(said["kind"], said["file"], said["about"], digest_bytes(data), said.get("line")))
    text = encode_canonical(manifest.model_copy(update={"head": chain.head}).model_dump(mode="json"))
    signature = [(SIGNATURE, _signed(text, key))] if key else []
    rest = [(name, data) for name, data in files.items() if name not in (CHAIN, MANIFEST, SIGNATURE)]
    return archive([*rest, (CHAIN, chain.encode_lines()), (MANIFEST, text), *signature])


def _signed(text: bytes, key: Ed25519PrivateKey) -> bytes:
    return encode_canonical(sign_manifest(text, Signer("auditor", key)).model_dump(mode="json"))


def test_S43_what_was_written_anew_is_told_by_the_key_or_the_head(bundle: Path, unsigned: Path, tmp_path: Path) -> None:
    """Without either it holds together: docs/how-to/audit.md says what that proves."""
    forged = _rewritten(members(unsigned), None)
    assert looked_at(tmp_path, forged).is_intact
    head = verify_bundle(unsigned).head
    [told] = looked_at(tmp_path, forged, head=head).findings
    assert told.startswith("changed: the head of the chain is ")
    assert verify_bundle(unsigned, head=head).is_intact
    key = format_public_key(KEY.public_key())
    assert verify_bundle(bundle, key=key).is_intact
    [told] = looked_at(tmp_path, _rewritten(members(bundle), OTHER), key=key).findings
    assert told.startswith("changed: signed by key ")
    [told] = looked_at(tmp_path, forged, key=key).findings
    assert told == "missing: a signature by the key that was given"


@pytest.mark.parametrize("data", [b"", b"hello", bytes(10_240), b"\xff" * 5_000])
def test_what_is_no_bundle_is_told_as_that(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadInput, match="is not a bundle"):
        looked_at(tmp_path, data)


def test_a_tar_of_other_things_is_no_bundle(tmp_path: Path) -> None:
    found = looked_at(tmp_path, archive([("a.txt", b"hello")]))
    assert not found.is_intact
    assert any("has no manifest" in finding for finding in found.findings)
