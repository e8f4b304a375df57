"""Sweeping by reachability on real servers: what any history needs stays; when anything is unclear nothing goes."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec
from temporalio.common import RawValue
from temporalio.converter import StorageDriverStoreContext

from holdfast import Holdfast, Run, TurnInput
from holdfast.activities.ledger.ledger import EffectKey
from holdfast.activities.ledger.sqlite import SqliteLedger
from holdfast.config.sections import StorageSettings
from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError
from holdfast.payloads.file_store import (
    SHARED_FOLDER,
    SWEPT_PREFIX,
    FileStorage,
    forget_namespaces,
    list_namespaces,
    list_stored_files,
    note_namespace,
)
from holdfast.testing import FakeTool, build_request, wait_until
from holdfast.workers.runtime.connect import connect_client
from holdfast.workers.storage.referenced import NamespaceUsage, read_namespaces
from holdfast.workers.storage.sweep import (
    DAY,
    SweepPlan,
    SweepResult,
    sweep_bucket,
    sweep_outputs,
    sweep_payloads,
    sweep_shared,
)
from tests.support.engine import Engine
from tests.support.secrets.encrypting import encryption
from tests.support.server import address_of, start_server
from tests.support.services.clouds import BUCKET, Cloud, gcs_server, s3_server
from tests.support.waiting import waiting

OLD = 100 * DAY


async def _huge(arguments: dict[str, Any], run: Run) -> str:
    return f"{arguments.get('number')} " + "r" * 100_000


TOOLS = (FakeTool("huge", _huge, safe=True), FakeTool("asks", _huge, asks=True, safe=True))


@pytest.fixture
async def swept_engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine on a server of its own: a sweep reads all that is there, and other tests' forgeries with it."""
    async with await start_server(tmp_path / "temporal.db") as server:
        engine = Engine(address_of(server), tmp_path, 1000)
        await use(engine)
        yield engine


async def use(engine: Engine, **more: Any) -> None:
    engine.settings = replace(engine.settings, **more)
    engine.client = await engine.connect()
    engine.holdfast = Holdfast(engine.client, task_queue=engine.queue)


async def forgotten(engine: Engine, address: str, number: int) -> None:
    """A turn whose payloads are kept with the engine's, and of which its server knows nothing: as one long past."""
    elsewhere = Engine(address, engine.workspace.parent / "elsewhere", 1000)
    elsewhere.settings = replace(engine.settings, task_queue=elsewhere.queue)
    await use(elsewhere)
    async with elsewhere.worker(*TOOLS):
        await ran(elsewhere, number, data="f" * 20_000)


async def ran(engine: Engine, number: int, **more: Any) -> str:
    """A turn that ended, with a stored payload and a whole output."""
    turn = await engine.start(TurnInput(batches=((build_request("huge", number=number, **more),),)))
    assert (await turn.result()).responses[0].text.startswith(f"{number} ")
    return turn.id


def age(settings: Settings, seconds: float = OLD) -> None:
    """Make everything that is kept old."""
    then = time.time() - seconds
    for folder in (settings.payloads_folder, settings.outputs_folder):
        for path in folder.rglob("*"):
            if path.is_file():
                os.utime(path, (then, then))


async def plan_of(engine: Engine, *, delete: bool = True) -> SweepPlan:
    reached = await read_namespaces([await connect_client(engine.settings, address=engine.address)])
    return SweepPlan.from_usage(reached, engine.settings, began=time.time(), grace=DAY, delete=delete)


def swept(engine: Engine, plan: SweepPlan) -> tuple[SweepResult, SweepResult]:
    return sweep_payloads(engine.settings.payloads_folder, plan), sweep_outputs(engine.settings.outputs_folder, plan)


def shared(engine: Engine) -> set[str]:
    """Outputs that workers of every host can read."""
    return {path.name for path in (engine.settings.payloads_folder / SHARED_FOLDER).rglob("*") if path.is_file()}


async def test_S33_outputs_that_hosts_share_stay_as_long_as_a_history_names_them(
    swept_engine: Engine, server_address: str
) -> None:
    engine = swept_engine
    async with engine.worker(*TOOLS):
        await ran(engine, 2)
        needed = shared(engine)
        await forgotten(engine, server_address, 1)
    assert (len(needed), len(shared(engine))) == (1, 2)
    [aside] = [path for path in (engine.settings.payloads_folder / SHARED_FOLDER).rglob("*") if path.name in needed]
    aside.rename(aside.with_name(SWEPT_PREFIX + aside.name))  # a sweep was killed here
    young = sweep_shared(engine.settings.payloads_folder, await plan_of(engine))
    assert (young.needed, young.young, young.removed) == (0, 1, 0)
    assert aside.exists(), "it was put back"
    age(engine.settings)
    found = sweep_shared(engine.settings.payloads_folder, await plan_of(engine))
    assert (found.needed, found.removed) == (1, 1)
    assert shared(engine) == needed


def kept(engine: Engine) -> tuple[set[str], set[str]]:
    outputs = engine.settings.outputs_folder
    return {path.name for path in list_stored_files(engine.settings.payloads_folder)}, {
        path.name for path in outputs.iterdir()
    }


@pytest.mark.parametrize("ids", [(), ("a",)], ids=["plain", "encrypted"])
async def test_S42_what_a_history_needs_stays_and_the_rest_goes(
    swept_engine: Engine, server_address: str, monkeypatch: pytest.MonkeyPatch, ids: tuple[str, ...]
) -> None:
    engine = swept_engine
    await use(engine, encryption=encryption(monkeypatch, *ids))
    async with engine.worker(*TOOLS):
        ended = await ran(engine, 2, data="a" * 20_000)
        waits = await engine.start(TurnInput(batches=((build_request("asks", number=3, data="b" * 20_000),),)))
        await wait_until(lambda: waiting(waits))
        needed = kept(engine)
        await forgotten(engine, server_address, 1)
        everything = kept(engine)
        age(engine.settings)
        payloads, outputs = swept(engine, await plan_of(engine, delete=False))
        assert payloads.removed > 0
        assert outputs.removed == 1
        assert kept(engine) == everything, "it was only to be said"

        plan = await plan_of(engine)
        assert plan.reached.troubles == []
        payloads, outputs = swept(engine, plan)
        left = kept(engine)
        assert left[0] <= needed[0], "answers to queries are stored, and in no history"
        assert left[1] == needed[1]
        assert (payloads.needed, outputs.needed) == (len(left[0]), len(left[1]))

        assert (await engine.holdfast.get_turn(ended).result()).responses[0].text.startswith("2 ")
        view = await waits.fetch_view()
        await engine.holdfast.approve(view.approvals[0].approval_id)
        assert (await waits.result()).responses[0].text.startswith("3 ")


async def test_what_is_young_stays_and_so_does_what_is_stored_again(swept_engine: Engine) -> None:
    engine = swept_engine
    storage = FileStorage(engine.settings.payloads_folder)
    sample = [Payload(data=bytes([number]) * 100) for number in range(2)]
    claims = await storage.store(StorageDriverStoreContext(), sample)
    plan = SweepPlan.from_usage(NamespaceUsage(), engine.settings, began=time.time(), grace=DAY, delete=True)
    assert sweep_payloads(engine.settings.payloads_folder, plan).young == 2
    age(engine.settings)
    await storage.store(StorageDriverStoreContext(), sample[:1])
    found = sweep_payloads(engine.settings.payloads_folder, plan)
    assert (found.young, found.removed) == (1, 1)
    assert [path.name for path in list_stored_files(engine.settings.payloads_folder)] == [
        claims[0].claim_data["sha256"]
    ]


async def test_a_payload_that_is_used_under_the_sweeps_hands_is_put_back(
    swept_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer finds it there after the sweep found it old, and before it is removed."""
    engine = swept_engine
    storage, sample = FileStorage(engine.settings.payloads_folder), Payload(data=b"x" * 100)
    [claim] = await storage.store(StorageDriverStoreContext(), [sample])
    age(engine.settings)
    rename = os.rename

    def used_meanwhile(source: Path, target: Path) -> None:
        os.utime(source)
        rename(source, target)
        [read] = [storage._retrieve_payload(claim)]
        assert read == sample, "it is read while it is aside"

    monkeypatch.setattr(os, "rename", used_meanwhile)
    plan = SweepPlan.from_usage(NamespaceUsage(), engine.settings, began=time.time(), grace=DAY, delete=True)
    assert sweep_payloads(engine.settings.payloads_folder, plan).removed == 0
    assert storage._retrieve_payload(claim) == sample


async def test_what_a_killed_sweep_set_aside_is_put_back_or_removed(swept_engine: Engine) -> None:
    engine = swept_engine
    storage = FileStorage(engine.settings.payloads_folder)
    claims = await storage.store(StorageDriverStoreContext(), [Payload(data=b"a" * 100), Payload(data=b"b" * 100)])
    names = [claim.claim_data["sha256"] for claim in claims]
    for path in list(list_stored_files(engine.settings.payloads_folder)):
        path.rename(path.with_name(SWEPT_PREFIX + path.name))
    half = engine.settings.payloads_folder / names[0][:2] / ".new-half"
    half.touch()
    age(engine.settings)
    plan = SweepPlan.from_usage(
        NamespaceUsage(stored={("holdfast.files", names[0])}),
        engine.settings,
        began=time.time(),
        grace=DAY,
        delete=True,
    )
    found = sweep_payloads(engine.settings.payloads_folder, plan)
    assert found.needed == 1
    left = [path.name for path in engine.settings.payloads_folder.rglob("*") if path.is_file()]
    assert left == [names[0]]


async def test_an_output_stays_as_long_as_the_ledger_may_tell_of_it(swept_engine: Engine, server_address: str) -> None:
    engine = swept_engine
    await forgotten(engine, server_address, 1)
    age(engine.settings, 20 * DAY)
    assert swept(engine, await plan_of(engine))[1].young == 1
    age(engine.settings, 32 * DAY)
    assert swept(engine, await plan_of(engine))[1].removed == 1


async def test_a_missing_key_a_lost_file_and_a_forged_reference_are_troubles(
    swept_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = swept_engine
    await use(engine, encryption=encryption(monkeypatch, "a"))
    async with engine.worker(*TOOLS):
        turn = await ran(engine, 1)
    whole = engine.settings
    await use(engine, encryption=encryption(monkeypatch))
    troubles = (await plan_of(engine)).reached.locked
    assert troubles
    assert all("the key 'a'" in trouble and turn in trouble for trouble in troubles)

    await use(engine, encryption=whole.encryption)
    lost = next(list_stored_files(engine.settings.payloads_folder))
    data = lost.read_bytes()
    lost.unlink()
    assert "is missing" in " ".join((await plan_of(engine)).reached.troubles)
    lost.write_bytes(data)

    async with engine.worker(*TOOLS):
        waits = await engine.start(TurnInput(batches=((build_request("asks"),),)))
        await wait_until(lambda: waiting(waits))
        metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
        claim = b'{"driverName": "holdfast.files", "claimData": {"sha256": "%s"}}' % (b"0" * 64)
        bare = await Client.connect(engine.address)
        await bare.get_workflow_handle(waits.id).signal("decide", RawValue(Payload(metadata=metadata, data=claim)))
        assert waits.id in " ".join((await plan_of(engine)).reached.troubles)


async def test_what_a_schedule_will_start_with_stays(swept_engine: Engine) -> None:
    engine = swept_engine
    action = ScheduleActionStartWorkflow(
        "holdfast.turn",
        TurnInput(batches=((build_request("huge", data="s" * 50_000),),)),
        id=f"{engine.queue}-scheduled",
        task_queue=engine.queue,
    )
    handle = await engine.client.create_schedule(f"s-{uuid4().hex[:8]}", Schedule(action=action, spec=ScheduleSpec()))
    try:
        age(engine.settings)
        found = sweep_payloads(engine.settings.payloads_folder, await plan_of(engine))
        assert (found.needed, found.removed) == (1, 0)
    finally:
        await handle.delete()


async def test_a_server_that_goes_away_ends_the_reading_with_an_error(tmp_path: Path) -> None:
    async with await start_server(tmp_path / "temporal.db") as server:
        engine = Engine(address_of(server), tmp_path, 1000)
        client = await connect_client(engine.settings, address=engine.address)
    with pytest.raises(HoldfastError):
        await read_namespaces([client])


async def test_a_folder_remembers_for_which_namespaces_it_is_used(swept_engine: Engine) -> None:
    engine = swept_engine
    async with engine.worker(*TOOLS):
        await ran(engine, 1)
    assert list_namespaces(engine.settings.payloads_folder) == ["default"]
    assert list_namespaces(engine.settings.data / "none") == []


@pytest.fixture(params=["s3", "gcs"])
async def cloud(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[str, Cloud]]:
    serving = s3_server if request.param == "s3" else gcs_server
    async with serving(tmp_path, monkeypatch) as found:
        yield request.param, found


async def test_S42_objects_that_nothing_needs_are_removed(
    swept_engine: Engine, server_address: str, cloud: tuple[str, Cloud]
) -> None:
    from holdfast.payloads.bucket_store import build_buckets

    engine, (kind, server) = swept_engine, cloud
    more = {"endpoint": server.url, "region": "us-east-1"} if kind == "s3" else {}
    table = {"kind": kind, kind: {"bucket": BUCKET, "prefix": "p", **more}}
    await use(engine, storage=StorageSettings.model_validate(table))
    async with engine.worker(*TOOLS):
        ended = await ran(engine, 2)
        await forgotten(engine, server_address, 1)
        [buckets] = build_buckets(engine.settings)
        await buckets.put(BUCKET, "v0/ns/another/d/sha256/" + "0" * 64, b"of another namespace")
        plan = await plan_of(engine)
        assert (await sweep_bucket(buckets, ["default"], plan)).young > 0
        shared = {one.name async for one in buckets.list_objects("v0/ns/default/outputs/")}
        assert len(shared) == 2
        plan = replace(plan, before=time.time() + 60, outputs_before=time.time() + 60)
        found = await sweep_bucket(buckets, ["default"], plan)
        assert found.removed > 1
        assert len({one.name async for one in buckets.list_objects("v0/ns/default/outputs/")} & shared) == 1
        assert found.needed == len([one async for one in buckets.list_objects("v0/ns/default/")])
        assert len([one async for one in buckets.list_objects("v0/ns/another/")]) == 1
        assert (await engine.holdfast.get_turn(ended).result()).responses[0].text.startswith("2 ")


async def test_an_object_written_again_is_not_removed(swept_engine: Engine, cloud: tuple[str, Cloud]) -> None:
    from holdfast.payloads.bucket_store import build_buckets

    engine, (kind, server) = swept_engine, cloud
    more = {"endpoint": server.url, "region": "us-east-1"} if kind == "s3" else {}
    table = {"kind": kind, kind: {"bucket": BUCKET, **more}}
    [buckets] = build_buckets(replace(engine.settings, storage=StorageSettings.model_validate(table)))
    await buckets.put(BUCKET, "v0/x", b"x")
    [found] = [one async for one in buckets.list_objects("v0/")]
    older = replace(found, modified=found.modified - 1, version="1")
    assert not await buckets.remove(older)
    assert await buckets.remove(found)


async def test_S42_what_was_stored_while_the_histories_were_read_stays_however_long_that_took(
    swept_engine: Engine,
) -> None:
    """What was stored after a run was read is named by nothing that was read."""
    engine = swept_engine
    async with engine.worker(*TOOLS):
        await ran(engine, 1)
    stored = kept(engine)
    assert stored
    began = time.time() - 3 * DAY
    for path in list_stored_files(engine.settings.payloads_folder):
        os.utime(path, (began + DAY, began + DAY))
    plan = SweepPlan.from_usage(NamespaceUsage(), engine.settings, began=began, grace=DAY, delete=True)
    assert sweep_payloads(engine.settings.payloads_folder, plan).young == len(
        list(list_stored_files(engine.settings.payloads_folder))
    )


def test_a_folder_that_others_use_too_is_known_by_them(tmp_path: Path) -> None:
    note_namespace(tmp_path / "data", "ours")
    note_namespace(tmp_path / "data", "theirs/too")
    assert list_namespaces(tmp_path / "data") == ["ours", "theirs/too"]
    forget_namespaces(tmp_path / "data", ["theirs/too", "nobody"])
    assert list_namespaces(tmp_path / "data") == ["ours"]


async def test_a_worker_that_stays_up_forgets_old_calls_again_and_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.plugin.plugin.SWEEP_EVERY", timedelta(seconds=0.05))
    ledger = SqliteLedger(engine.settings.ledger_file)
    async with engine.worker():
        for number in (1, 2):
            key = EffectKey(turn="turn", call=f"b1c{number}", digest="d" * 64)
            await ledger.record_intent(key, host="here", tool="send")
            await ledger.record_result(key, "sent")
            with closing(sqlite3.connect(engine.settings.ledger_file, isolation_level=None)) as connection:
                connection.execute("UPDATE effects SET ended_at = started_at - ?", (31 * 86_400 * 1_000_000,))
            await wait_until(partial(gone, ledger, key))
    await ledger.close()


async def gone(ledger: SqliteLedger, key: EffectKey) -> bool:
    return await ledger.find(key) is None
