"""Payloads in buckets of S3 and of Google Cloud Storage, on real servers: turns run, references fail safely (S42)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

from holdfast import Holdfast, Run, Settings, TurnInput
from holdfast.activities.process.command import build_environment
from holdfast.config.sections import GcsSettings, S3Settings, StorageSettings
from holdfast.errors import BadInput, StoreUnavailable
from holdfast.payloads.bucket_store import BucketStorage, build_buckets, build_drivers
from holdfast.payloads.file_store import MISSING
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine
from tests.support.secrets.encrypting import encryption, found_in
from tests.support.services.clouds import BUCKET, Cloud, gcs_server, s3_server
from tests.support.waiting import waiting

LONG = 40_000
CANARY = "canary-in-a-bucket"


async def _long(arguments: dict[str, Any], run: Run) -> str:
    return f"{CANARY} {arguments.get('number')} " + "r" * LONG


TOOLS = (FakeTool("long", _long, safe=True), FakeTool("asks", _long, asks=True, safe=True))


@pytest.fixture(params=["s3", "gcs"])
async def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Cloud]]:
    """A server of either kind."""
    serving = s3_server if request.param == "s3" else gcs_server
    async with serving(tmp_path, monkeypatch) as found:
        yield request.param, found


def storage(kind: str, cloud: Cloud, *, written: bool = True, **more: Any) -> StorageSettings:
    s3 = S3Settings(bucket=BUCKET, endpoint=cloud.url, region="us-east-1", **more) if kind == "s3" else None
    gcs = GcsSettings(bucket=BUCKET, **more) if kind == "gcs" else None
    return StorageSettings(kind=kind if written else "files", s3=s3, gcs=gcs)  # type: ignore[arg-type]


async def use(engine: Engine, **more: Any) -> None:
    engine.settings = replace(engine.settings, **more)
    engine.client = await engine.connect()
    engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)


async def objects(settings: Settings) -> dict[str, bytes]:
    """All that is in the bucket."""
    [buckets] = build_buckets(settings)
    return {found.name: await buckets.get(BUCKET, found.name) async for found in buckets.list_objects("")}


async def test_S42_large_payloads_are_objects_and_come_back(engine: Engine, cloud: tuple[str, Cloud]) -> None:
    await use(engine, storage=storage(*cloud, prefix="of/holdfast"))
    async with engine.worker(*TOOLS):
        calls = tuple(build_request("long", data="a" * 20_000, number=number) for number in range(20))
        turn = await engine.start(TurnInput(batches=(calls,)))
        result = await turn.result()
    assert [response.text.split()[1] for response in result.responses] == [str(number) for number in range(20)]
    found = await objects(engine.settings)
    assert len(found) > 20
    assert all(name.startswith("v0/ns/default/") for name in found)
    assert found_in(b"".join(found.values()), [CANARY]) == [CANARY]
    assert not list(engine.settings.payloads_folder.rglob("[0-9a-f]" * 64))


async def test_S42_S45_objects_are_encrypted_where_there_are_keys(
    engine: Engine, cloud: tuple[str, Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(engine, storage=storage(*cloud), encryption=encryption(monkeypatch, "a"))
    async with engine.worker(*TOOLS):
        turn = await engine.start(TurnInput(batches=((build_request("long"),),)))
        result = await turn.result()
    assert CANARY in result.responses[0].text
    found = await objects(engine.settings)
    assert found
    assert found_in(b"".join(found.values()), [CANARY]) == []


async def test_S42_a_turn_goes_on_when_the_store_is_another(engine: Engine, cloud: tuple[str, Cloud]) -> None:
    """Files before, a bucket then, files again: every reference is followed to where it leads."""
    calls = [(build_request("long", number=1), build_request("asks", number=2)), (build_request("long", number=3),)]
    async with engine.worker(*TOOLS):
        turn = await engine.start(TurnInput(batches=tuple(calls), keep_open=False))
        await wait_until(lambda: waiting(turn))
    await use(engine, storage=storage(*cloud))
    async with engine.worker(*TOOLS):
        view = await wait_until(lambda: waiting(engine.holdfast.get_turn(turn.id)))
        await engine.holdfast.approve(view.approvals[0].approval_id)
        result = await engine.holdfast.get_turn(turn.id).result()
    assert [response.text.split()[1] for response in result.responses] == ["1", "2", "3"]
    assert await objects(engine.settings)
    await use(engine, storage=storage(*cloud, written=False))
    assert (await engine.holdfast.get_turn(turn.id).result()).responses == result.responses


async def test_a_store_that_is_away_makes_turns_wait_and_clients_are_told(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gcs_server(tmp_path, monkeypatch) as server, engine_of(engine, server).worker(*TOOLS):
        await use(engine)
        turn = await engine.start(TurnInput(batches=((build_request("asks", number=1),),)))
        view = await wait_until(lambda: waiting(turn))
        await server.stop()
        await engine.holdfast.approve(view.approvals[0].approval_id)
        await wait_until(lambda: _logged(caplog, "a payload could not be written"), seconds=60)
        with pytest.raises(StoreUnavailable, match=f"the bucket '{BUCKET}'"):
            await engine.start(TurnInput(batches=((build_request("long", data="a" * 50_000),),)))
        await server.start()
        async with asyncio.timeout(60):
            result = await turn.result()
    assert result.responses[0].text.startswith(f"{CANARY} 1")


def engine_of(engine: Engine, server: Cloud) -> Engine:
    engine.settings = replace(engine.settings, storage=storage("gcs", server))
    return engine


async def test_S3_that_is_away_is_told(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with s3_server(tmp_path, monkeypatch) as server:
        driver = build_drivers(replace(engine.settings, storage=storage("s3", server)))[0]
        [claim] = await driver.store(StorageDriverStoreContext(), [Payload(data=b"x")])
        await server.stop()
        with pytest.raises(StoreUnavailable, match=r"could not be read: the bucket 'payloads' \(s3\)"):
            await driver.retrieve(StorageDriverRetrieveContext(), [claim])


async def _logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


def reference(driver: str, **claim: str) -> Payload:
    metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    return Payload(metadata=metadata, data=json.dumps({"driverName": driver, "claimData": claim}).encode())


def forged(kind: str) -> list[dict[str, str]]:
    """Claims that somebody made up."""
    name, digest = ("key" if kind == "s3" else "object_name"), "0" * 64
    good = {name: f"v0/d/sha256/{digest}", "hash_algorithm": "sha256", "hash_value": digest}
    return [
        {},
        {"bucket": BUCKET},
        {**good, "bucket": BUCKET},
        {**good, "bucket": "somebody-elses"},
        {**good, "bucket": BUCKET, name: "../../etc/passwd"},
        {**good, "bucket": BUCKET, name: "v0/d/sha256/" + "1" * 64},
        {**good, "bucket": BUCKET, "hash_algorithm": "md5"},
        {**good, "bucket": BUCKET, "hash_value": ""},
        {"bucket": BUCKET, name: f"v0/d/sha256/{digest}"},
    ]


async def test_S22_S42_forged_references_change_nothing_and_stop_nothing(
    engine: Engine, cloud: tuple[str, Cloud]
) -> None:
    kind, _ = cloud
    driver = {"s3": "aws.s3driver", "gcs": "gcp.gcsdriver"}[kind]
    await use(engine, storage=storage(*cloud))
    async with engine.worker(*TOOLS):
        turn = await engine.start(TurnInput(batches=((build_request("asks"),),)))
        view = await wait_until(lambda: waiting(turn))
        bare = (await Client.connect(engine.address)).get_workflow_handle(turn.id)
        for claim in forged(kind):
            await bare.signal("decide", RawValue(reference(driver, **claim)))
            with pytest.raises(Exception):  # noqa: B017, PT011 - refused, in whatever words
                await bare.execute_update("decide", RawValue(reference(driver, **claim)))
        assert (await turn.fetch_view()).approvals == view.approvals
        await engine.holdfast.approve(view.approvals[0].approval_id)
        assert (await turn.result()).responses[0].status == "success"


async def test_an_object_that_was_changed_or_is_gone_is_a_missing_payload(
    engine: Engine, cloud: tuple[str, Cloud]
) -> None:
    settings = replace(engine.settings, storage=storage(*cloud))
    [buckets], driver = build_buckets(settings), build_drivers(settings)[0]
    assert isinstance(driver, BucketStorage)
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"x"')
    [claim] = await driver.store(StorageDriverStoreContext(), [payload])
    assert await retrieved(driver, claim) == payload
    name = claim.claim_data.get("key") or claim.claim_data["object_name"]
    await buckets.put(BUCKET, name, b"something else")
    assert (await retrieved(driver, claim)).metadata["encoding"] == MISSING
    [found] = [found async for found in buckets.list_objects("v0/")]
    assert await buckets.remove(found)
    assert not await buckets.remove(found)
    assert (await retrieved(driver, claim)).metadata["encoding"] == MISSING


async def retrieved(driver: BucketStorage, claim: StorageDriverClaim) -> Payload:
    [found] = await driver.retrieve(StorageDriverRetrieveContext(), [claim])
    return found


async def test_what_old_references_call_another_bucket_is_read_there(engine: Engine, cloud: tuple[str, Cloud]) -> None:
    kind, server = cloud
    old = build_drivers(replace(engine.settings, storage=storage(kind, server)))[0]
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"x"')
    [claim] = await old.store(StorageDriverStoreContext(), [payload])
    table = storage(kind, server).model_dump()
    for formerly, found in (((BUCKET,), payload.metadata["encoding"]), ((), MISSING)):
        table[kind] = {**table[kind], "bucket": "other", "formerly": formerly}
        new = build_drivers(replace(engine.settings, storage=StorageSettings.model_validate(table)))[0]
        [seen] = await new.retrieve(StorageDriverRetrieveContext(), [claim])
        assert seen.metadata["encoding"] == found


async def test_S45_credentials_of_the_store_are_kept_from_commands(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with s3_server(tmp_path, monkeypatch) as server:
        await use(engine, storage=storage("s3", server))
        async with engine.worker():
            found = build_environment({})
    assert not {name for name in found if name.startswith("AWS_") and "s3-secret-canary" in found[name]}
    assert "AWS_SECRET_ACCESS_KEY" not in found


@pytest.mark.parametrize(("kind", "package"), [("s3", "aioboto3"), ("gcs", "gcloud.aio.storage")])
def test_a_package_that_is_missing_is_told_with_what_to_install(
    kind: str, package: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"holdfast.payloads.{kind}", raising=False)
    table = {"kind": kind, kind: {"bucket": "abc"}}
    with pytest.raises(BadInput, match=rf"pip install 'holdfast\[{kind}\]'"):
        build_buckets(replace(engine.settings, storage=StorageSettings.model_validate(table)))


async def test_no_credentials_and_no_bucket_are_told_in_words(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with s3_server(tmp_path, monkeypatch) as server:
        table = {"kind": "s3", "s3": {"bucket": "no-such-bucket", "endpoint": server.url, "region": "us-east-1"}}
        [driver, _] = build_drivers(replace(engine.settings, storage=StorageSettings.model_validate(table)))
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            await driver.store(StorageDriverStoreContext(), [Payload(data=b"x")])
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        [driver, _] = build_drivers(replace(engine.settings, storage=StorageSettings.model_validate(table)))
        with pytest.raises(StoreUnavailable, match="credentials"):
            await driver.store(StorageDriverStoreContext(), [Payload(data=b"x")])
