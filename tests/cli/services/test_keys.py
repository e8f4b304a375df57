"""Keys on the real command line: made, listed, shown, and needed to decide once somebody has one."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.signing_keys import load_signer
from holdfast.domain.approvals.approval import Decision
from tests.cli.support import SECONDS, Home, call
from tests.support.pages import read_blocks
from tests.support.server import temporal_command


def settings(home: Home, text: str) -> Path:
    """The user's own settings file."""
    file = home.folder / "config" / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)
    return file


def test_a_key_is_made_listed_and_shown_and_its_lines_are_settings(empty: Home) -> None:
    assert "No keys in" in empty.run("keys", "list").stdout
    made = empty.run("keys", "create", "ada")
    assert made.returncode == 0, made.stderr
    file = empty.folder / "config" / "holdfast" / "keys" / "ada"
    assert str(file) in made.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "PRIVATE" not in made.stdout + made.stderr
    assert empty.run("keys", "show", "ada").stdout == empty.run("keys", "show", str(file)).stdout == made.stdout
    shown = empty.json("keys", "show", "ada")
    assert shown["key"] in empty.run("keys", "list").stdout
    assert empty.json("keys", "list") == {"folder": str(file.parent), "keys": [shown]}
    assert set(shown) == {"name", "id", "key", "file"}
    other = empty.json("keys", "create", "Zoë of ops")
    assert other["id"] != shown["id"]

    written = settings(empty, made.stdout + empty.run("keys", "show", "Zoë of ops").stdout)
    assert empty.run("config", "check").stdout.startswith(f"{written}: ok")


def test_the_commands_of_the_document_run_as_written(empty: Home) -> None:
    script = read_blocks("approvers")["create"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{empty.env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**empty.env, "PATH": path},
        cwd=empty.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith((empty.folder / "ada.toml").read_text())


def test_a_key_is_not_overwritten_and_a_bad_name_makes_none(empty: Home) -> None:
    before = empty.json("keys", "create", "ada")
    done = empty.run("keys", "create", "ada")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not overwritten" in done.stderr
    for name in ("", "..", "a/b", "a\nb", "\x1b[31m", "x" * 300):
        done = empty.run("keys", "create", "--", name)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert "is not a valid key name" in done.stderr
        assert "\x1b" not in done.stderr
    assert empty.json("keys", "list")["keys"] == [before]


def test_a_key_that_cannot_be_used_is_told_beside_the_others(empty: Home) -> None:
    good = empty.json("keys", "create", "ada")
    bad = Path(good["file"]).with_name("bob")
    bad.write_text("nonsense")
    bad.chmod(0o600)
    Path(good["file"]).with_name("eve").touch(0o644)
    done = empty.run("keys", "list")
    assert done.returncode == 1
    assert good["key"] in done.stdout
    assert [line.split("/")[-1][:3] for line in done.stderr.splitlines()] == ["bob", "eve"]
    told = json.loads(empty.run("keys", "list", "--json").stdout)["keys"]
    assert [(key["name"], key["key"] is None, "problem" in key) for key in told] == [
        ("ada", False, False),
        ("bob", True, True),
        ("eve", True, True),
    ]
    for name in ("bob", "eve", "nobody"):
        assert empty.run("keys", "show", name).returncode == 2
        done = empty.run("inbox", HOLDFAST_KEY=name)
        assert (done.returncode, done.stdout) == (2, ""), "before anything is asked of a server"
        assert name in done.stderr
    assert empty.run("inbox", HOLDFAST_KEY=" ").returncode == 3


# Deciding


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A running `holdfast up` that goes by ada's key and by a gateway's."""
    made = Home(tmp_path_factory.mktemp("guarded"))
    ada, gateway = (made.run("keys", "create", name).stdout for name in ("ada", "gateway"))
    made.run("keys", "create", "mallory")
    settings(made, f"{ada}{gateway}vouches = true\n[[approvers]]\nname = 'bob'\n")
    with made.up("--no-gateway"):
        yield made


def start(home: Home, turn: str) -> str:
    """A turn with one call that waits; its approval."""
    home.start(turn, call("shell", command="date"))
    home.seen(turn, call="b1c1", after="awaiting_approval")
    return f"{turn}/b1c1/1"


def decide(home: Home, *arguments: str, key: str | None = None) -> dict[str, Any]:
    """What became of one decision."""
    done = home.run(*arguments, "--json", **({"HOLDFAST_KEY": key} if key else {}))
    [told] = json.loads(done.stdout)["decisions"]
    assert done.returncode == (0 if told["counted"] else 1), done.stderr
    return dict(told)


def decided_by(home: Home, turn: str) -> str:
    assert home.seen(turn, kind="turn", after="completed")
    [shown] = home.json("turn", "show", turn)["batch"]["calls"]
    return str(shown["decided_by"])


def test_S22_with_a_key_configured_only_signed_decisions_count(guarded: Home) -> None:
    approval = start(guarded, "signed")
    for outcome in ("approve", "deny"):
        assert decide(guarded, outcome, approval)["code"] == "unsigned"
        assert decide(guarded, outcome, approval, "--by", "ada")["code"] == "unsigned"
    assert decide(guarded, "approve", approval, key="mallory")["code"] == "unknown_key"
    assert decide(guarded, "approve", approval, key="ada")["counted"]
    assert decided_by(guarded, "signed") == "ada"


def test_S22_the_stock_command_alone_approves_nothing(guarded: Home) -> None:
    """Decisions in ada's name, and hers for another turn or of another outcome, through the namespace."""
    approval = start(guarded, "forged")
    [item] = guarded.listed("forged")
    address = json.loads((guarded.data / "server.json").read_text())["address"]
    forged = {"approval_id": approval, "digest": item["digest"], "outcome": "yes", "by": "ada"}
    ada = load_signer(str(guarded.folder / "config" / "holdfast" / "keys" / "ada"))
    elsewhere = ada.sign(Decision.model_validate({**forged, "approval_id": "elsewhere/b1c1/1"}))
    refused = ada.sign(Decision.model_validate({**forged, "outcome": "no"}))
    for body in (
        forged,
        {**forged, "signer": elsewhere.signer, "signature": "A" * 86 + "=="},
        {**forged, "signer": elsewhere.signer, "signature": "é"},
        {**elsewhere.model_dump(mode="json"), "approval_id": approval},
        {**refused.model_dump(mode="json"), "outcome": "yes"},
    ):
        subprocess.run(
            [
                *(temporal_command(), "workflow", "signal", "--address", address, "--workflow-id", "forged"),
                *("--name", "decide", "--input", json.dumps(body)),
            ],
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    [item] = guarded.listed("forged")
    assert item["approval_id"] == approval, "it still waits"
    assert decide(guarded, "deny", approval, key="ada")["counted"]
    assert decided_by(guarded, "forged") == "ada"


def test_a_gateways_key_speaks_for_approvers_and_for_nobody_else(guarded: Home) -> None:
    approval = start(guarded, "vouched")
    assert decide(guarded, "approve", approval, "--by", "mallory", key="gateway")["code"] == "other_name"
    assert decide(guarded, "approve", approval, "--by", "bob", key="gateway")["counted"]
    assert decided_by(guarded, "vouched") == "bob"


def test_by_is_whose_key_it_is_whatever_is_said(guarded: Home) -> None:
    approval = start(guarded, "named")
    key = str(guarded.folder / "config" / "holdfast" / "keys" / "ada")
    assert decide(guarded, "approve", approval, "--by", "bob", key=key)["counted"]
    assert decided_by(guarded, "named") == "ada"
