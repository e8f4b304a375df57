"""Payloads outside the history: what was stored comes back, and what a stranger claims comes to nothing."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from holdfast.payloads.file_store import THRESHOLD, FileStorage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "payloads"


@pytest.fixture
def storage(folder: Path) -> FileStorage:
    return FileStorage(folder)


def payload(data: bytes, **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=data)


async def store(storage: FileStorage, *payloads: Payload) -> list[StorageDriverClaim]:
    return await storage.store(StorageDriverStoreContext(), payloads)


async def retrieve(storage: FileStorage, *claims: StorageDriverClaim) -> list[Payload]:
    return await storage.retrieve(StorageDriverRetrieveContext(), claims)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def check_undecodable(found: Payload) -> None:
    with pytest.raises((RuntimeError, KeyError), match="holdfast/missing"):
        pydantic_data_converter.payload_converter.from_payloads([found])


async def test_S42_what_is_stored_comes_back_in_order(storage: FileStorage) -> None:
    given = [payload(b"[1]", other=b"\x00\xff"), payload(b"x" * 3_000_000), payload(b""), Payload()]
    claims = await store(storage, *given)
    assert await retrieve(storage, *claims) == given
    assert await retrieve(storage, *reversed(claims)) == given[::-1]


async def test_S42_same_content_is_stored_once_and_other_content_apart(storage: FileStorage, folder: Path) -> None:
    claims = await store(storage, payload(b"[1]"), payload(b"[1]"), payload(b"[2]"))
    assert claims[0] == claims[1] != claims[2]
    [first, *_] = await store(storage, payload(b"[1]"))
    assert first == claims[0]
    assert len(files(folder)) == 2


async def test_S42_files_are_named_by_their_hash_and_for_their_owner_only(storage: FileStorage, folder: Path) -> None:
    [claim] = await store(storage, payload(b"secret"))
    [path] = files(folder)
    assert path.name == hashlib.sha256(path.read_bytes()).hexdigest() == claim.claim_data["sha256"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"sha256": ""},
        {"sha256": "../../etc/passwd"},
        {"sha256": "/etc/passwd"},
        {"sha256": "0" * 63},
        {"sha256": "0" * 65},
        {"sha256": "0" * 64 + "\n"},
        {"sha256": "A" * 64},
        {"sha256": "../" * 20 + "abcd"},
        {"sha256": "0" * 61 + "\0.."},
        {"md5": "0" * 64},
        {"sha256": "0" * 64},
    ],
)
async def test_S42_claim_that_names_nothing_gives_what_nothing_can_decode(
    storage: FileStorage, data: dict[str, str]
) -> None:
    [kept] = await store(storage, payload(b"[1]"))
    lost, found = await retrieve(storage, StorageDriverClaim(claim_data=data), kept)
    check_undecodable(lost)
    assert found == payload(b"[1]")


async def test_S42_file_outside_the_folder_is_not_read(storage: FileStorage, folder: Path) -> None:
    (folder.parent / "secret").mkdir(parents=True)
    [found] = await retrieve(storage, StorageDriverClaim(claim_data={"sha256": "../secret"}))
    check_undecodable(found)


@pytest.mark.parametrize("changed", [b"", b"garbage", payload(b"[2]").SerializeToString()])
async def test_S42_changed_file_gives_what_nothing_can_decode(
    storage: FileStorage, folder: Path, changed: bytes
) -> None:
    [claim] = await store(storage, payload(b"[1]"))
    [path] = files(folder)
    path.write_bytes(changed)
    check_undecodable(*await retrieve(storage, claim))


async def test_S42_storing_again_repairs_a_changed_file(storage: FileStorage, folder: Path) -> None:
    [claim] = await store(storage, payload(b"[1]"))
    files(folder)[0].write_bytes(b"garbage")
    await store(storage, payload(b"[1]"))
    assert await retrieve(storage, claim) == [payload(b"[1]")]


async def test_S42_removed_file_gives_what_nothing_can_decode_and_can_be_stored_again(
    storage: FileStorage, folder: Path
) -> None:
    [claim] = await store(storage, payload(b"[1]"))
    files(folder)[0].unlink()
    check_undecodable(*await retrieve(storage, claim))
    await store(storage, payload(b"[1]"))
    assert await retrieve(storage, claim) == [payload(b"[1]")]


async def test_S42_another_process_with_the_same_folder_reads_it(storage: FileStorage, folder: Path) -> None:
    claims = await store(storage, payload(b"[1]"))
    assert await retrieve(FileStorage(folder), *claims) == [payload(b"[1]")]


def test_S42_name_and_threshold_are_fixed(storage: FileStorage) -> None:
    assert storage.name() == "holdfast.files"
    assert THRESHOLD == 16 * 1_024
