"""deploy/cloud: a server behind TLS, with a client's certificate or an API key, by Temporal's configuration alone."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.service import TLSConfig

from holdfast import Settings
from holdfast.plugin.search_attributes import ATTRIBUTES
from holdfast.workers.runtime.connect import connect_client, explain_failure, find_environment_address
from tests.deploy.support import Caller, approved_turn, read
from tests.deploy.test_consistency import TEMPORAL
from tests.support.services.certificates import Authority, Pair
from tests.support.services.door import KEY_LETTERS, REFUSAL, Door, door


class Locked(NamedTuple):
    """A door for clients with a certificate of ours, and certificates of all kinds."""

    door: Door
    ours: Authority
    theirs: Authority
    client: Pair
    stranger: Pair
    expired: Pair


@pytest.fixture
async def locked(server_address: str, tmp_path: Path) -> AsyncIterator[Locked]:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    client, expired = ours.issue("client"), ours.issue("expired", days=-1)
    async with door(server_address, ours.issue("server"), clients=ours.file) as made:
        yield Locked(made, ours, theirs, client, theirs.issue("stranger"), expired)


def presented(locked: Locked, pair: Pair | None = None, **other: str) -> dict[str, str]:
    """Temporal's configuration for somebody with this certificate."""
    found = {"TEMPORAL_ADDRESS": locked.door.address, "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(locked.ours.file)}
    if pair:
        found["TEMPORAL_TLS_CLIENT_CERT_PATH"] = str(pair.certificate)
        found["TEMPORAL_TLS_CLIENT_KEY_PATH"] = str(pair.key)
    return {**found, **other}


def somebody(folder: Path, environment: Mapping[str, str]) -> Caller:
    return Caller(folder, HOLDFAST_TASK_QUEUE=f"q-{uuid4().hex[:8]}", **environment)


# Certificates


async def test_S46_everything_works_with_a_client_certificate_by_environment_alone(
    locked: Locked, tmp_path: Path
) -> None:
    caller = somebody(tmp_path, presented(locked, locked.client))
    async with caller.staying("worker"):
        assert "ran behind a door" in await approved_turn(caller, f"t-{uuid4().hex}", "echo ran behind a door")
    assert locked.door.passed > 1


async def test_S46_the_profile_of_a_file_does_the_same(locked: Locked, tmp_path: Path) -> None:
    """As deploy/cloud/temporal.toml has it, with the paths and the address of here."""
    text = read("cloud", "temporal.toml")
    file = tmp_path / "temporal.toml"
    for there, here in {
        "your-namespace.a1b2c.tmprl.cloud:7233": locked.door.address,
        "your-namespace.a1b2c": "default",
        "/etc/holdfast/tls/client.pem": str(locked.client.certificate),
        "/etc/holdfast/tls/client.key": str(locked.client.key),
    }.items():
        assert there in text
        text = text.replace(there, here)
    file.write_text(
        text.replace("[profile.mtls.tls]", f'[profile.mtls.tls]\nserver_ca_cert_path = "{locked.ours.file}"')
    )
    caller = somebody(tmp_path, {"TEMPORAL_CONFIG_FILE": str(file), "TEMPORAL_PROFILE": "mtls"})
    done = await caller.run("inbox", "--json")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("who", "other", "said"),
    [
        ("stranger", {}, "it may reject the certificate in TEMPORAL_TLS_CLIENT_CERT_PATH"),
        ("expired", {}, "it may reject the certificate in TEMPORAL_TLS_CLIENT_CERT_PATH"),
        (None, {}, "it may require a client certificate: set TEMPORAL_TLS_CLIENT_CERT_PATH and"),
        (
            "client",
            {"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "theirs.pem"},
            "its certificate is not signed by a trusted authority",
        ),
        ("client", {"TEMPORAL_TLS_SERVER_NAME": "elsewhere.example"}, "its certificate is for another name"),
        (
            "client",
            {"TEMPORAL_TLS_CLIENT_KEY_PATH": "stranger.key"},
            "the client key does not belong to the client certificate",
        ),
        ("client", {"TEMPORAL_TLS_CLIENT_KEY_PATH": "theirs.pem"}, "the client certificate or key cannot be read"),
    ],
)
async def test_S46_a_wrong_certificate_is_told_in_a_sentence_with_exit_code_3(
    locked: Locked, tmp_path: Path, who: str | None, other: dict[str, str], said: str
) -> None:
    pair = getattr(locked, who) if who else None
    caller = somebody(tmp_path, presented(locked, pair, **other))
    for command in (("worker",), ("turn", "list")):
        done = await caller.run(*command)
        assert done.code == 3
        assert done.err.startswith(f"holdfast: no Temporal server answers at '{locked.door.address}': ")
        assert said in done.err
        assert len(done.err.splitlines()) == 1


async def test_S46_what_is_missing_of_a_pair_is_told_before_anybody_is_asked(locked: Locked, tmp_path: Path) -> None:
    half = presented(locked, TEMPORAL_TLS_CLIENT_KEY_PATH=str(locked.client.key))
    done = await somebody(tmp_path, half).run("inbox")
    assert (done.code, "a client certificate or its key, not both" in done.err) == (2, True)
    gone = presented(locked, locked.client, TEMPORAL_TLS_CLIENT_KEY_PATH="/nowhere/client.key")
    done = await somebody(tmp_path, gone).run("inbox")
    assert (done.code, "No such file or directory: '/nowhere/client.key'" in done.err) == (2, True)


async def test_S46_who_speaks_no_tls_is_told_of_it(locked: Locked, server_address: str, tmp_path: Path) -> None:
    done = await somebody(tmp_path, {"TEMPORAL_ADDRESS": locked.door.address}).run("inbox")
    assert (done.code, "TEMPORAL_TLS=true" in done.err) == (3, True)
    done = await somebody(tmp_path, presented(locked, locked.client, TEMPORAL_ADDRESS=server_address)).run("inbox")
    assert (done.code, "it does not use TLS" in done.err) == (3, True)


async def test_S46_a_namespace_that_is_not_there_is_named(locked: Locked, tmp_path: Path) -> None:
    caller = somebody(tmp_path, presented(locked, locked.client, TEMPORAL_NAMESPACE="nowhere"))
    for command in (("worker",), ("inbox",)):
        done = await caller.run(*command)
        assert done.code == 1
        assert "Namespace nowhere is not found" in done.err


# Keys


@pytest.fixture
def key() -> str:
    """Of letters that our door can read, and that nothing else is likely to hold."""
    return "".join(random.choices(KEY_LETTERS, k=48))


@pytest.fixture
async def keyed(server_address: str, tmp_path: Path, key: str) -> AsyncIterator[tuple[Door, dict[str, str]]]:
    authority = Authority(tmp_path, "ours")
    async with door(server_address, authority.issue("server"), key=key) as made:
        yield made, {"TEMPORAL_ADDRESS": made.address, "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(authority.file)}


async def test_S45_an_api_key_opens_the_door_and_is_in_no_log_and_no_history(
    keyed: tuple[Door, dict[str, str]], key: str, server_address: str, tmp_path: Path
) -> None:
    """Not in what a worker logs with --verbose, nor where a command of a turn could print it."""
    made, environment = keyed
    caller = somebody(tmp_path, {**environment, "TEMPORAL_API_KEY": key})
    turn = f"t-{uuid4().hex}"
    async with caller.staying("worker", "--verbose") as worker:
        shown = await approved_turn(caller, turn, "env; echo TEMPORAL_API_KEY is ${TEMPORAL_API_KEY:-withheld}")
        await worker.end()
    assert "TEMPORAL_API_KEY is withheld" in shown
    client = await Client.connect(server_address)
    history = (await client.get_workflow_handle(turn).fetch_history()).to_json()
    kept = [path.read_bytes() for path in caller.data.rglob("*") if path.is_file()]
    assert "INFO" in worker.said
    assert not any(key in text for text in (shown, worker.said, history))
    assert not any(key.encode() in data for data in kept)
    assert (made.passed > 1, made.refused) == (True, 0)


@pytest.mark.parametrize("given", ["wrong", "odd", "none"])
async def test_S45_a_key_that_is_refused_is_told_in_a_sentence_that_does_not_hold_it(
    keyed: tuple[Door, dict[str, str]], key: str, tmp_path: Path, given: str
) -> None:
    made, environment = keyed
    wrong = {"wrong": f"{key[:-1]}x", "odd": f"{key[:-1]}\n\u00e9", "none": ""}[given]
    caller = somebody(tmp_path, {**environment, **({"TEMPORAL_API_KEY": wrong} if wrong else {})})
    for command in (("worker", "--verbose"), ("turn", "list")):
        done = await caller.run(*command)
        assert done.code == 3
        told = "check TEMPORAL_API_KEY and the namespace" if wrong else "TEMPORAL_API_KEY is not set"
        assert f"access denied ({REFUSAL}): {told}" in done.err
        assert key[:-1] not in done.out + done.err
    assert (made.passed, made.refused > 1) == (0, True)


@pytest.mark.parametrize("blank", ["", " \n"], ids=["empty", "blank"])
@pytest.mark.parametrize("name", sorted(TEMPORAL - {"TEMPORAL_ADDRESS"}))
async def test_S46_an_empty_variable_of_temporals_counts_as_unset(
    name: str, blank: str, server_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that speaks no TLS is reached all the same, in the namespace that is the default."""
    for other in TEMPORAL:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server_address)
    monkeypatch.setenv(name, blank)
    client = await connect_client(Settings(data=tmp_path))
    assert (client.namespace, client.service_client.config.tls) == ("default", None)


def test_S46_an_empty_address_leaves_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "")
    assert find_environment_address() is None


def test_S45_no_reason_ever_holds_the_key() -> None:
    config = {"api_key": "s3cret-key", "tls": True}
    told = explain_failure('Status { code: Unauthenticated, message: "key s3cret-key is revoked" }', config)
    assert "s3cret-key" not in told
    assert "s3cret-key" not in explain_failure("something else about s3cret-key", config)


def test_alerts_of_other_servers_are_understood() -> None:
    """As Go's TLS sends them, which ends no connection without a word."""
    alert = "hyper::Error(Io, Custom { kind: InvalidData, error: AlertReceived(CertificateRequired) })"
    assert "it may require a client certificate" in explain_failure(alert, {"tls": True})
    mine = TLSConfig(client_cert=b"x", client_private_key=b"y")
    assert "it may reject the certificate" in explain_failure(alert, {"tls": mine})


# What is told


def test_the_search_attributes_of_the_guide_are_those_of_the_code() -> None:
    text = read("cloud", "README.md")
    for name, kind in ATTRIBUTES.items():
        assert f'--sa "{name}={kind}"' in text
