"""Where a supervisor is started so that it outlives its worker's unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.activities.supervision.launch import Placement, find_placement, is_in_container, parse_manager, parse_unit

SERVICE = "0::/system.slice/holdfast.service\n"
OF_A_USER = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/holdfast.service\n"


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        (SERVICE, "holdfast.service"),
        (OF_A_USER, "holdfast.service"),
        ("0::/system.slice/holdfast.service/worker\n", "holdfast.service"),
        ("9:name=systemd:/system.slice/holdfast.service\n8:pids:/\n0::/\n", "holdfast.service"),
        ("8:pids:/system.slice/other.service\n0::/\n", None),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal.scope\n", None),
        ("0::/\n", None),
        ("0::/docker/0123abcd\n", None),
        ("nonsense\n:\n::\n\n", None),
        ("", None),
    ],
)
def test_service_is_known_by_its_control_group(cgroups: str, unit: str | None) -> None:
    assert parse_unit(cgroups) == unit


def test_a_users_service_belongs_to_the_users_systemd() -> None:
    assert parse_manager(OF_A_USER) == "user"
    assert parse_manager(SERVICE) == "system"


def test_supervisor_gets_a_scope_of_its_own() -> None:
    assert Placement().build_prefix("abc") == ()
    assert Placement("user").build_prefix("abc") == (
        "systemd-run", "--user", "--scope", "--quiet", "--collect", "--description=Holdfast run abc", "--",
    )  # fmt: skip


async def test_service_without_scopes_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "systemd-run"
    refusing.write_text("#!/bin/sh\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):
        found = await find_placement(SERVICE)
        assert found.manager is None
        assert "holdfast.service" in found.worry
        assert "KillMode=process" in found.worry
        monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.parametrize(("mode", "worried"), [("process", False), ("control-group", True), ("mixed", True)])
async def test_service_that_ends_only_its_first_process_needs_no_scopes(
    mode: str, worried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = "--system show --property=KillMode --value holdfast.service"
    scripts = {"systemd-run": "exit 1", "systemctl": f'[ "$*" = "{wanted}" ] && echo {mode}'}
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = await find_placement(SERVICE)
    assert (found.manager, bool(found.worry)) == (None, worried)


async def test_scope_is_used_where_one_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    granting = tmp_path / "systemd-run"
    granting.write_text("#!/bin/sh\nexit 0\n")
    granting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert await find_placement(OF_A_USER) == Placement("user")
    assert await find_placement(SERVICE) == Placement("system")


async def test_container_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert is_in_container()
    found = await find_placement("0::/\n")
    assert ("container" in found.note, found.worry) == (True, "")
