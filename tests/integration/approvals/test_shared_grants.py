"""Saved answers in a shared ledger, on a real PostgreSQL: saved on one host, counting and revoked on all (S24)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'holdfast[postgres]'")

from holdfast import DecisionAction, HoldfastPlugin, Scope, Settings, Turn, TurnInput
from holdfast.activities.policy import shared_grants as module
from holdfast.activities.policy.grant_sources import AllGrants
from holdfast.activities.policy.saved_grants import SavedGrants, save_grant
from holdfast.activities.policy.shared_grants import SharedGrants, open_shared_grants
from holdfast.config.sections import EncryptionSettings, KeySettings
from holdfast.domain.approvals.approval import Decision
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput, HoldfastError
from holdfast.payloads.keyring import generate_key
from holdfast.testing import build_request, wait_until
from holdfast.workers.terminal.grant_store import GrantStore, open_grant_store
from holdfast.workers.terminal.grant_text import GrantWish
from holdfast.workers.terminal.live.send_decisions import DecisionChoice, DecisionReport, decide_all, with_offer
from tests.support.engine import Engine, new_engine
from tests.support.policies import run
from tests.support.services.postgres import PostgresServer, postgres_server
from tests.support.shared import VARIABLE, query
from tests.support.waiting import waiting

pytestmark = pytest.mark.needs("postgres")
NOW = datetime(2030, 1, 31, tzinfo=UTC)
PUSH = Scope(tool="shell", server="", command=("git push $",))
MADE = Scope(tool="shell", server="", command=("touch made",))


def grant(scope: Scope = PUSH, outcome: DecisionAction = DecisionAction.PROCEED_ALWAYS, by: str = "ann") -> Grant:
    remember = outcome is DecisionAction.CANCEL
    decision = Decision(approval_id="turn-1/c1/1", digest="d", outcome=outcome, remember=remember, by=by)
    return Grant(id="g", scope=scope, covers="", decision=decision, given_at=NOW)


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with postgres_server("fsync=off", "synchronous_commit=off") as made:
        yield made


@pytest.fixture
async def address(running: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new database, which the variable of the settings names."""
    name = f"shared_{uuid4().hex}"
    monkeypatch.setenv(VARIABLE, running.address())
    await query(f"CREATE DATABASE {name}")
    monkeypatch.setenv(VARIABLE, running.address(database=name))
    return running.address(database=name)


@pytest.fixture
async def hosts(server_address: str, tmp_path: Path, address: str) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two data folders and workspaces, on queues of their own, with one ledger."""
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(new_engine(server_address, tmp_path / name)) for name in ("one", "two")]
        for engine in made:
            engine.settings = replace(engine.settings, ledger=f"env:{VARIABLE}")
        yield made[0], made[1]


@pytest.fixture
async def opened(tmp_path: Path, address: str) -> AsyncIterator[list[SharedGrants]]:
    """The saved answers as two hosts see them."""
    made = [grants_of(Settings(data=tmp_path / name)) for name in ("one", "two")]
    yield made
    for one in made:
        await one.disconnect()


def grants_of(settings: Settings, seconds: float = 10) -> SharedGrants:
    found = open_shared_grants(replace(settings, ledger=f"env:{VARIABLE}"), seconds=seconds)
    assert found
    return found


def shell(command: str) -> TurnInput:
    return TurnInput(batches=((build_request("shell", command=command),),))


async def became(engine: Engine, command: str) -> tuple[str, str]:
    """What becomes of a command: `asked` with the reason, or how it ended with its rule; a question is withdrawn."""
    turn = await engine.start(shell(command))

    async def looked() -> tuple[str, str] | None:
        view = await turn.fetch_view(live=False)
        if view.approvals:
            return "asked", view.approvals[0].reason or ""
        call = await turn.fetch_call("b1c1")
        return (call.status, call.rule or "") if call.status in ("success", "error", "cancelled") else None

    found: tuple[str, str] = await wait_until(looked)
    if found[0] == "asked":
        await turn.cancel()
        await turn.result()
    return found


async def saved_by(engine: Engine, turn: Turn, by: str) -> DecisionReport:
    """Approve what waits, always and for good, as the command line of this host does."""
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    wish = GrantWish(outcome=DecisionAction.PROCEED_ALWAYS, save=True)
    choice = await with_offer(
        engine.holdfast, DecisionChoice(item.approval_id, "proceed_always", details={"by": by}), wish
    )
    async with open_grant_store(engine.settings) as keeper:
        [told] = [told async for told in decide_all(engine.holdfast, [choice], keeper)]
    return told


async def counts(engine: Engine, command: str, status: str) -> tuple[str, str]:
    """What becomes of it, once that is this: a worker learns of changes within a second or two."""
    last: list[tuple[str, str]] = []

    async def looked() -> bool:
        last.append(await became(engine, command))
        return last[-1][0] == status

    await wait_until(looked)
    return last[-1]


async def test_S24_an_answer_saved_on_one_host_counts_on_another_and_is_listed_and_revoked_there(
    hosts: tuple[Engine, Engine],
) -> None:
    one, two = hosts
    async with one.worker(), two.worker():
        assert await became(two, "echo shared") == ("asked", "")
        told = await saved_by(one, await one.start(shell("echo shared")), "ana")
        name = told.body["saved"]["id"]
        assert told.body["saved"]["shared"] is True
        assert "for every host that shares it" in told.sentence
        assert "s3cret" not in told.sentence
        assert not one.settings.grants_file.exists()
        assert await counts(two, "echo shared", "success") == ("success", f"saved grant: {name}")
        async with open_grant_store(two.settings) as keeper:
            [rule] = (await keeper.list_grants()).shared
            assert (rule.name, (rule.reason or "").split(" for ")[0]) == (name, f"given by ana on {_today()}")
            assert await keeper.remove(name) == 'tool = ["shell"], command = ["echo shared $"]'
        assert (await counts(one, "echo shared", "asked"))[1] == ""
        assert (await counts(two, "echo shared", "asked"))[1] == ""


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


async def test_S24_what_a_hosts_own_file_holds_goes_on_counting_there_and_is_moved_by_share(
    hosts: tuple[Engine, Engine],
) -> None:
    one, two = hosts
    save_grant(one.settings.grants_file, grant(Scope(tool="shell", server="", command=("echo own $",))))
    save_grant(
        one.settings.grants_file, grant(Scope(tool="shell", server="", command=("echo bad",)), DecisionAction.CANCEL)
    )
    async with one.worker(), two.worker():
        assert (await became(one, "echo own"))[0] == "success"
        assert (await became(two, "echo own"))[0] == "asked"
        async with open_grant_store(one.settings) as keeper:
            assert len((await keeper.list_grants()).own) == 2
            moved = await keeper.share_grants()
            found = await keeper.list_grants()
        assert (len(moved), found.own, {rule.name for rule in found.shared}) == (2, (), set(moved))
        await counts(two, "echo own", "success")
        assert "Refused by the saved grant" in await _refusal(two)


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[HoldfastPlugin]:
    """A worker, whose plugin is at hand."""
    plugin = HoldfastPlugin(engine.settings)
    client = await Client.connect(engine.address, plugins=[plugin])
    async with Worker(client, task_queue=engine.queue):
        yield plugin


def later(plugin: HoldfastPlugin) -> None:
    """What it last read of saved answers is over a second old."""
    assert isinstance(plugin.saved, AllGrants)
    plugin.saved.shared._until = 0


async def _refusal(engine: Engine) -> str:
    turn = await engine.start(shell("echo bad"))
    [response] = (await turn.result()).responses
    return response.error.message if response.error else ""


async def test_S24_with_its_database_down_saved_answers_allow_nothing_and_somebody_is_asked_at_once(
    hosts: tuple[Engine, Engine], running: PostgresServer
) -> None:
    one, two = hosts
    async with open_grant_store(one.settings) as keeper:
        for scope, outcome in (
            (("echo saved $",), DecisionAction.PROCEED_ALWAYS),
            (("echo bad",), DecisionAction.CANCEL),
        ):
            await keeper.save(grant(Scope(tool="shell", server="", command=scope), outcome))
    async with working(two) as plugin:
        await counts(two, "echo saved", "success")
        await asyncio.to_thread(running.stop)
        try:
            later(plugin)
            began = time.monotonic()
            assert (await counts(two, "echo saved", "asked"))[1].endswith(module.UNREACHABLE_NOTE)
            assert time.monotonic() - began < 20, "nobody waits for what does not answer"
            assert "Refused by the saved grant" in await _refusal(two), "what was refused stays refused"
        finally:
            await asyncio.to_thread(running.start)
        await counts(two, "echo saved", "success")


async def test_S24_a_worker_that_has_never_read_them_asks_about_what_its_rules_allow(
    hosts: tuple[Engine, Engine], running: PostgresServer
) -> None:
    _, two = hosts
    two.with_rules('[[rule]]\nname = "mine"\ndecision = "allow"\ncommand = "echo mine"\n')
    await asyncio.to_thread(running.stop)
    try:
        async with two.worker():
            asked, why = await became(two, "echo mine")
            assert (asked, "one of them may refuse this" in why, module.UNREACHABLE_NOTE in why) == (
                "asked",
                True,
                True,
            )
            await asyncio.to_thread(running.start)
            await counts(two, "echo mine", "success")
    finally:
        if running.is_down:
            await asyncio.to_thread(running.start)


async def test_a_server_that_hangs_costs_a_judgement_two_seconds_and_the_next_ones_none(
    running: PostgresServer, opened: list[SharedGrants], tmp_path: Path
) -> None:
    await opened[0].save(grant())
    hasty = grants_of(Settings(data=tmp_path / "three"), seconds=1)
    await hasty.refresh()
    assert hasty.find_covering(run("git push"), NOW)
    running.hang()
    try:
        hasty._until = 0  # a second has passed
        began = time.monotonic()
        await asyncio.gather(*(hasty.refresh() for _ in range(50)))
        for _ in range(50):
            await hasty.refresh()
        assert time.monotonic() - began < 2.5
        assert (hasty.find_covering(run("git push"), NOW), hasty.may_miss_refusals) == (None, False)
        assert "no answer within 1 seconds" in (hasty.problem or "")
    finally:
        running.resume()
    hasty._until = 0
    await hasty.refresh()
    assert hasty.find_covering(run("git push"), NOW)
    await hasty.disconnect()


async def test_many_judgements_ask_the_database_once_a_second(
    opened: list[SharedGrants], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = opened
    await one.refresh()
    asked: list[object] = []
    monkeypatch.setattr(one._table, "read", lambda work: asked.append(work))
    monkeypatch.setattr(module, "time", _Clock(one._until - 0.001))
    for _ in range(1_000):
        await one.refresh()
    assert asked == []


class _Clock:
    def __init__(self, moment: float) -> None:
        self.moment = moment

    def monotonic(self) -> float:
        return self.moment


async def test_saving_twice_keeps_one_and_the_opposite_is_in_the_way(opened: list[SharedGrants]) -> None:
    one, two = opened
    name = await one.save(grant())
    assert await two.save(grant(by="bob")) == name
    with pytest.raises(BadInput, match="is in the way: revoke it first"):
        await two.save(grant(outcome=DecisionAction.CANCEL))
    await asyncio.gather(*(each.save(grant(Scope(tool=f"t{n}"))) for n in range(10) for each in opened))
    await two.refresh()
    assert len(two.rules) == 11
    with pytest.raises(BadInput, match="no saved grant is called 'granted-x'"):
        await one.remove("granted-x")
    assert await query("SELECT count(*) FROM holdfast_grants") == 11


HOSTILE = {
    "nonsense": "\x01\x1b[31m nonsense [[",
    "empty": "",
    "another name": '[[rule]]\nname = "other"\ndecision = "allow"\ntool = "x"\n',
    "two rules": '[[rule]]\nname = "bad"\ndecision = "allow"\ntool = "x"\n' * 2,
    "a policy": '[[rule]]\nname = "bad"\ndecision = "allow"\nanything = true\n',
    "deep": "a = " + "[" * 50_000,
    "long": "#" * 1_100_000,
    "sealed by nobody": "holdfast-sealed-1:\x7fkey:AAAA",
    "no base64": "holdfast-sealed-1::?",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_row_that_cannot_be_read_lets_nothing_through_and_is_taken_out_by_name(
    opened: list[SharedGrants], name: str
) -> None:
    one, two = opened
    await one.save(grant())
    refusal = await one.save(grant(MADE, DecisionAction.CANCEL))
    await one.refresh()
    assert one.find_covering(run("git push"), NOW)
    await query("INSERT INTO holdfast_grants (name, rule) VALUES ('bad', $1)", HOSTILE[name])
    for each in opened:
        each._until = 0
        await each.refresh()
        assert each.find_covering(run("git push"), NOW) is None
        refused = each.find_covering(run("touch made"), NOW)
        assert refused
        assert refused.name == refusal
        assert each.may_miss_refusals, "it may have been a refusal"
        assert "'bad'" in (each.problem or "")
        assert "`holdfast grants revoke bad` takes it out" in (each.problem or "")
        assert "\x1b" not in (each.problem or "")
    with pytest.raises(BadInput, match="'bad'"):
        await one.save(grant(Scope(tool="z")))
    assert await two.remove("bad") is None
    one._until = 0
    await one.refresh()
    assert (one.problem, one.may_miss_refusals) == (None, False)
    assert one.find_covering(run("git push"), NOW)


async def test_a_table_that_is_gone_or_too_large_is_told(opened: list[SharedGrants]) -> None:
    one, _ = opened
    await one.save(grant())
    await query("INSERT INTO holdfast_grants (name, rule) VALUES ('large', repeat('x', 5000000))")
    one._until = 0
    await one.refresh()
    assert "bytes: remove some there" in (one.problem or "")
    assert one.find_covering(run("git push"), NOW) is None
    await query("DROP TABLE holdfast_grants")
    one._until = 0
    await one.refresh()
    assert "its tables are gone" in (one.problem or "")


# Keys


def with_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *ids: str, plain: Any = "accept") -> Settings:
    """Settings of a host that has these keys, each from a variable that stays the same."""
    for name in ids:
        if f"HOLDFAST_KEY_{name}" not in os.environ:
            monkeypatch.setenv(f"HOLDFAST_KEY_{name}", generate_key())
    keys = tuple(KeySettings(id=name, env=f"HOLDFAST_KEY_{name}") for name in ids)
    return Settings(data=tmp_path, encryption=EncryptionSettings(keys=keys, plain=plain))


async def test_S45_with_keys_what_is_saved_is_encrypted_and_cannot_be_made_or_moved_by_who_has_none(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = grants_of(with_keys(tmp_path, monkeypatch, "a", plain="refuse"))
    name = await keyed.save(grant())
    row = await query("SELECT rule FROM holdfast_grants")
    assert row.startswith("holdfast-sealed-1:a:")
    assert "git push" not in row
    other = grants_of(with_keys(tmp_path, monkeypatch, "a", plain="refuse"))
    await other.refresh()
    assert other.find_covering(run("git push"), NOW)
    without = grants_of(Settings(data=tmp_path / "without"))
    await without.refresh()
    assert "with the key 'a', which this process does not have" in (without.problem or "")
    for harm, words in (
        (f"UPDATE holdfast_grants SET name = '{name}-moved'", "it was changed, or moved"),
        (
            "UPDATE holdfast_grants SET name = 'x', "
            'rule = E\'[[rule]]\\nname = "x"\\ndecision = "allow"\\ntool = "shell"\\n\'',
            "it is not encrypted, and the settings refuse that",
        ),
    ):
        await query(harm)
        other._until = 0
        await other.refresh()
        assert words in (other.problem or "")
        assert other.find_covering(run("git push"), NOW) is None
    for each in (keyed, other, without):
        await each.disconnect()


async def test_rows_are_encrypted_anew_with_the_key_that_is_written_with(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = grants_of(Settings(data=tmp_path))
    await plainly.save(grant())
    await plainly.disconnect()
    for ids in (("a",), ("b", "a")):
        keeper = GrantStore(tmp_path / "granted.toml", grants_of(with_keys(tmp_path, monkeypatch, *ids)))
        assert keeper.shared
        assert await keeper.share_grants() == []
        assert (await query("SELECT rule FROM holdfast_grants")).startswith(f"holdfast-sealed-1:{ids[0]}:")
        assert len((await keeper.list_grants()).shared) == 1
        await keeper.shared.disconnect()
    only_new = grants_of(with_keys(tmp_path, monkeypatch, "b"))
    await only_new.refresh()
    assert only_new.find_covering(run("git push"), NOW)
    await only_new.disconnect()


async def test_S22_a_worker_needs_only_to_read_them_and_who_may_not_write_the_table_saves_nothing(
    opened: list[SharedGrants], running: PostgresServer, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened[0].save(grant())
    role = f"worker_{uuid4().hex}"
    await query(f"CREATE ROLE {role} LOGIN PASSWORD 'w'")
    await query(f"GRANT SELECT ON holdfast_ledger, holdfast_grants TO {role}")
    database = address.split("/")[3].partition("?")[0]
    monkeypatch.setenv(VARIABLE, running.address(user=role, password="w", database=database))
    worker = grants_of(Settings(data=tmp_path))
    await worker.refresh()
    assert worker.find_covering(run("git push"), NOW)
    with pytest.raises(HoldfastError, match="this user may not use its tables"):
        await worker.save(grant(Scope(tool="z")))
    with pytest.raises(HoldfastError, match="this user may not use its tables"):
        await worker.remove(worker.rules[0].name or "")
    await worker.disconnect()


# The command line


def command(settings: Settings, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`holdfast …` of a host whose settings file names the ledger."""
    settings.data.mkdir(parents=True, exist_ok=True)
    file = settings.data.parent / "holdfast.toml"
    file.write_text(f'ledger = "env:{VARIABLE}"\n')
    program = [
        sys.executable,
        "-m",
        "holdfast.workers.cli",
        "--config",
        str(file),
        *words,
        "--data",
        str(settings.data),
    ]
    environment = {**os.environ, "HOLDFAST_DATA": str(settings.data), "TEMPORAL_ADDRESS": "127.0.0.1:1", **more}
    return subprocess.run(program, capture_output=True, text=True, timeout=120, env=environment, cwd=settings.data)


async def test_S24_the_command_line_of_any_host_lists_and_revokes_and_says_where_answers_count(
    opened: list[SharedGrants], tmp_path: Path
) -> None:
    name = await opened[0].save(grant(by="ana"))
    here = Settings(data=tmp_path / "here" / "data")
    save_grant(here.grants_file, grant(MADE))
    listed = await asyncio.to_thread(command, here, "grants", "list", "--json")
    found = {item["id"]: (item["shared"], item["reason"][:12]) for item in json.loads(listed.stdout)["saved"]}
    assert found.pop(name) == (True, "given by ana")
    assert list(found.values()) == [(False, "given by ann")]
    shown = (await asyncio.to_thread(command, here, "grants", "list")).stdout
    assert ("permanently; on every host" in shown, "permanently; on this host" in shown) == (True, True)
    done = await asyncio.to_thread(command, here, "grants", "revoke", name)
    assert (done.returncode, await query("SELECT count(*) FROM holdfast_grants")) == (0, 0), done.stderr
    moved = await asyncio.to_thread(command, here, "grants", "share")
    assert moved.stdout.endswith(": shared with every host that uses the ledger\n"), moved.stderr
    assert SavedGrants(here.grants_file).rules == ()
    without = await asyncio.to_thread(command, here, "grants", "revoke", "granted-x", **{VARIABLE: ""})
    assert (without.returncode, "HOLDFAST_LEDGER" in without.stderr, "Traceback" in without.stderr) == (1, True, False)
    away = await asyncio.to_thread(command, here, "grants", "list", **{VARIABLE: "postgresql://u@127.0.0.1:1/x"})
    assert "cannot be used: no answer within" in away.stderr
    assert "Traceback" not in away.stderr
