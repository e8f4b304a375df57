"""What a fresh `holdfast up` takes for a decision: only what the key of its data folder signed (S22, S23)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import SECONDS, Home, call


@pytest.fixture
def empty(tmp_path: Path) -> Home:
    """A data folder on which nothing runs."""
    return Home(tmp_path / "home")


def signal(home: Home, turn: str, body: dict[str, Any]) -> None:
    """Send a decision as anybody who reaches the port can: with the stock command."""
    address = json.loads((home.data / "server.json").read_text())["address"]
    temporal = Path(sys.executable).with_name("temporal")
    words = ["workflow", "signal", "--address", address, "-w", turn, "--name", "decide", "--input", json.dumps(body)]
    subprocess.run([temporal, *words], check=True, capture_output=True, timeout=SECONDS)


def waiting(home: Home, turn: str) -> dict[str, Any]:
    """The one approval of a new turn with one command."""
    home.start(turn, call("shell", command=f"echo ran >> {turn}.txt"))
    return home.listed(turn)[0]


def test_S22_an_unsigned_decision_that_reaches_the_namespace_runs_nothing(empty: Home) -> None:
    with empty.up("--no-gateway"):
        assert (empty.data / "owner.key").stat().st_mode & 0o777 == 0o600
        item = waiting(empty, "forged")
        unsigned = {"approval_id": item["approval_id"], "digest": item["digest"], "outcome": "yes", "by": "me"}
        signal(empty, "forged", unsigned)
        signed = json.loads(empty.run("sign", item["approval_id"], "--outcome", "yes").stdout)
        signal(empty, "forged", {**signed, "by": "somebody else"})
        signal(empty, "forged", {**signed, "note": "changed on the way"})
        # Signals are taken in order: when this one has ended the turn, those before it did not count.
        no = json.loads(empty.run("sign", item["approval_id"], "--outcome", "no").stdout)
        signal(empty, "forged", no)
        assert empty.seen("forged", kind="turn", after="completed")
        assert not (empty.workspace / "forged.txt").exists()


def test_S23_a_signed_decision_counts_as_a_signal_and_outlives_a_restart_of_up(empty: Home) -> None:
    with empty.up("--no-gateway"):
        item = waiting(empty, "signed")
        printed = empty.run("sign", item["approval_id"], "--outcome", "yes")
        assert printed.returncode == 0, printed.stderr
    with empty.up("--no-gateway"):
        signal(empty, "signed", json.loads(printed.stdout))
        assert empty.seen("signed", kind="turn", after="completed")
    assert (empty.workspace / "signed.txt").read_text() == "ran\n"


def test_S22_the_key_of_another_data_folder_approves_nothing(empty: Home, tmp_path: Path) -> None:
    stranger = Home(tmp_path / "stranger")
    with stranger.up("--no-gateway"):
        pass
    with empty.up("--no-gateway"):
        item = waiting(empty, "theirs")
        address = json.loads((empty.data / "server.json").read_text())["address"]
        done = stranger.run("approve", item["approval_id"], "--address", address)
        assert done.returncode != 0
        assert "no approver has the key" in done.stderr
        assert empty.run("approve", item["approval_id"]).returncode == 0


def test_unsigned_decisions_count_where_the_settings_say_so_and_up_says_what_that_means(empty: Home) -> None:
    config = empty.folder / "unsigned.toml"
    config.write_text('decisions = "unsigned"\n')
    empty.env["HOLDFAST_CONFIG"] = str(config)
    with empty.up("--no-gateway") as up:
        item = waiting(empty, "open")
        signal(empty, "open", {"approval_id": item["approval_id"], "digest": item["digest"], "outcome": "yes"})
        assert empty.seen("open", kind="turn", after="completed")
        assert not (empty.data / "owner.key").exists()
        assert empty.run("sign", item["approval_id"], "--digest", item["digest"], "--outcome", "no").returncode == 2
    assert any("Decisions are not signed here" in line for line in up.said)


def test_signatures_that_nobody_could_give_stop_a_worker_at_its_start(empty: Home) -> None:
    config = empty.folder / "signed.toml"
    config.write_text('decisions = "signed"\n')
    empty.env["HOLDFAST_CONFIG"] = str(config)
    done = empty.run("worker", "--address", "127.0.0.1:1")
    assert (done.returncode, "nobody has a key" in done.stderr) == (2, True), done.stderr


def test_a_key_that_others_may_read_stops_up_with_a_sentence(empty: Home) -> None:
    with empty.up("--no-gateway"):
        pass
    (empty.data / "owner.key").chmod(0o644)
    done = empty.run("up", "--port", "0")
    assert done.returncode == 2
    assert "may be read or written by other users" in done.stderr
