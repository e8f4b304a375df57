"""What the command line says of MCP servers tells nothing that they were given by reference (S45)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Home
from tests.support.secrets.canaries import GIVEN, TOLD, leaky_table
from tests.support.secrets.writings import tells

COMMANDS = (
    ("mcp", "test", "s"), ("mcp", "list"), ("mcp", "changes"), ("tools", "list"), ("tools", "show", "s__told"),
)  # fmt: skip


@pytest.fixture
def leaking(empty: Home) -> Home:
    """Whoever types has a server that tells everything."""
    folder = empty.folder / "server"
    folder.mkdir()
    file = Path(empty.env["XDG_CONFIG_HOME"]) / "holdfast" / "holdfast.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        leaky_table(folder) + leaky_table(folder, "dies").replace("tests.support.mcp.mcp_leaky", "tests.none")
    )
    empty.env |= GIVEN
    return empty


def test_S45_no_command_tells_a_secret(leaking: Home) -> None:
    assert leaking.run("mcp", "test", "s").returncode == 0
    (leaking.folder / "server" / "changed").touch()
    for command in COMMANDS:
        for json in ((), ("--json",)):
            done = leaking.run(*command, *json)
            assert "Traceback" not in done.stderr
            assert "CANARY" in done.stdout + done.stderr, command
            assert tells(done.stdout + done.stderr, *TOLD) == [], command
    for path in leaking.data.rglob("*"):
        assert not path.is_file() or not tells(path.read_bytes().decode("utf-8", "replace"), *TOLD), path


def test_S45_a_server_is_told_of_without_secrets(leaking: Home) -> None:
    shown = leaking.json("mcp", "list")
    [one] = [server for server in shown["servers"] if server["name"] == "s"]
    assert one["server"].startswith("leaky [CANARY] vvv")
    names = {tool["name"] for tool in one["tools"]}
    assert {"s__told", "s__tell", "s__form"} <= names
    assert not [name for name in names if "named" in name or "twice" in name]
    assert any("the name 'named [CANARY_URL]' contains a secret" in reason for reason in one["left_out"])
