"""Secrets of the environment, and what a command that somebody approved can read of them (S45)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.activities.process.command import build_environment
from holdfast.activities.process.proc import is_supervisor, list_descendants
from holdfast.config.schema import McpServerSettings, McpSettings, ModelServerSettings, ModelsSettings
from holdfast.config.settings import Settings
from holdfast.plugin.plugin import HoldfastPlugin
from holdfast.util.process_secrets import hand_over_environment
from tests.cli.support import SECONDS, Home, call
from tests.support.marks import until

NAMES = ("ANTHROPIC_API_KEY", "MY_MODEL_KEY", "MCP_TOKEN", "MCP_PASSWORD", "HOLDFAST_ENCRYPTION_KEY")
SERVER = Path(__file__).parents[1] / "support" / "mcp" / "mcp_server.py"
NOBODY = 65_534


@pytest.fixture
def secret() -> str:
    """One for each test: others may run at the same time, and every process of the machine is looked at."""
    return f"fake-secret-{uuid4().hex}"


@pytest.fixture
def empty(tmp_path: Path, secret: str) -> Home:
    """A data folder on which nothing runs, in an environment with secrets."""
    home = Home(tmp_path / "home")
    config = home.folder / "settings.toml"
    config.write_text(f"""
[models.servers.ours]
url = "http://127.0.0.1:9/"
key = "${{MY_MODEL_KEY}}"
[mcp.servers.there]
url = "http://127.0.0.1:9/mcp"
headers = {{ Authorization = "Bearer ${{MCP_TOKEN}}", X-Password = "${{env:MCP_PASSWORD}}" }}
[mcp.servers.here]
command = {sys.executable!r}
args = [{str(SERVER)!r}, {str(home.folder)!r}]
""")
    home.env |= {**dict.fromkeys(NAMES, secret), "HOLDFAST_CONFIG": str(config), "FOR_COMMANDS": "not secret"}
    return home


def read_of_each(pids: Iterable[int], name: str) -> dict[int, bytes]:
    """A file of /proc of each of these processes, but of those that have ended."""
    found: dict[int, bytes] = {}
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):
            found[pid] = Path(f"/proc/{pid}/{name}").read_bytes()
    return found


def shown_environments(root: int) -> dict[int, bytes]:
    """What /proc shows of the environment of a process and of all below it."""
    return read_of_each((root, *list_descendants(root)), "environ")


def run_approved(home: Home, turn: str, command: str) -> None:
    """Run a command in a turn of its own, with the yes of a person."""
    home.start(turn, call("shell", command=command))
    done = home.run("approve", home.listed(turn)[0]["approval_id"])
    assert done.returncode == 0, done.stderr
    home.seen(turn, kind="turn", after="completed")


def test_S45_no_process_of_ours_shows_a_secret_of_its_environment(empty: Home, secret: str) -> None:
    with empty.up() as up:
        empty.start("long", call("shell", command="echo > started; while [ ! -e over ]; do sleep 0.05; done"))
        assert empty.run("approve", empty.listed("long")[0]["approval_id"]).returncode == 0
        asyncio.run(until((empty.workspace / "started").exists))
        below = list_descendants(up.process.pid)
        assert any(map(is_supervisor, below)), "a supervisor is among them"
        assert any(SERVER.name.encode() in line for line in read_of_each(below, "cmdline").values()), (
            "an MCP server too"
        )
        shown = shown_environments(up.process.pid)
        assert {up.process.pid, up.where["worker"], up.where["gateway"]["pid"]} <= set(shown)
        assert [pid for pid, one in shown.items() if secret.encode() in one] == []
        (empty.workspace / "over").touch()
        empty.seen("long", kind="turn", after="completed")


def test_S45_an_approved_command_finds_no_secret_in_any_process(empty: Home, secret: str) -> None:
    look = "(env; cat /proc/[0-9]*/environ; cat /proc/[0-9]*/cmdline; ps axeww) >{} 2>/dev/null; true"
    with empty.up() as up:
        run_approved(empty, "first", look.format("first.txt"))
        os.kill(up.where["worker"], signal.SIGKILL)
        run_approved(empty, "second", look.format("second.txt"))  # by a worker that `up` has started again
    for name in ("first.txt", "second.txt"):
        seen = (empty.workspace / name).read_bytes()
        assert b"FOR_COMMANDS=not secret" in seen, "the worker still has what it was given"
        assert b"HOLDFAST_CALL=" in seen, "environments of others could be read"
        assert secret.encode() not in seen


def test_S45_a_worker_alone_shows_no_secret_of_its_environment(empty: Home, secret: str) -> None:
    with empty.up() as up:
        words = [sys.executable, "-m", "holdfast.workers.cli", "worker", "--address", up.where["address"]]
        alone = subprocess.Popen(words, env=empty.env, stdout=subprocess.PIPE, text=True, cwd=empty.folder)
        try:
            assert alone.stdout
            assert alone.stdout.readline().startswith("worker ready")
            shown = shown_environments(alone.pid)
            assert alone.pid in shown
            assert [pid for pid, one in shown.items() if secret.encode() in one] == []
        finally:
            alone.kill()
            alone.communicate(timeout=SECONDS)


def as_nobody(program: str, secret: str) -> subprocess.Popen[str]:
    """Python that becomes an ordinary user, whose processes can be dumped, and then runs the program."""
    ordinary = f"""
import ctypes, os, sys
import holdfast.util.process_secrets, holdfast.activities.supervision.supervisor
if os.getuid() == 0:
    os.setgid({NOBODY}), os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
{program}
"""
    words = [sys.executable, "-c", ordinary]
    return subprocess.Popen(
        words, env={**os.environ, NAMES[0]: secret}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def read_as_same_user(pid: int, file: str) -> subprocess.CompletedProcess[bytes]:
    """Try to read a file of /proc as the user whose process it is."""
    words = ["cat", f"/proc/{pid}/{file}"]
    if os.getuid():
        return subprocess.run(words, capture_output=True, check=False, timeout=SECONDS)
    return subprocess.run(
        words, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False, timeout=SECONDS
    )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
@pytest.mark.parametrize("protects", [False, True])
def test_S45_a_protected_process_can_be_read_by_no_process_of_the_same_user(protects: bool, secret: str) -> None:
    """Without the protection it can: so the reading is real."""
    protect = "holdfast.util.process_secrets.protect_process()" if protects else ""
    libc = "libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_char_p"
    told = f"{libc}; print(libc.getenv(b'ANTHROPIC_API_KEY').decode(), flush=True)"
    with as_nobody(f"{protect}\n{told}\nsys.stdin.read()", secret) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().strip() == secret, "libraries still find it"
            shown = read_as_same_user(process.pid, "environ")
            assert (shown.returncode != 0, secret.encode() in shown.stdout) == (protects, not protects)
            assert (read_as_same_user(process.pid, "maps").returncode != 0) == protects
            if os.getuid() == 0:  # who reads everything
                assert (secret.encode() in Path(f"/proc/{process.pid}/environ").read_bytes()) == (not protects)
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
def test_S45_the_supervisor_of_a_command_cannot_be_read_by_that_command(secret: str) -> None:
    with as_nobody(
        "print('begins', flush=True); holdfast.activities.supervision.supervisor.main('/nowhere')", secret
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "begins\n"  # and then it waits for its request
            asyncio.run(until(lambda: read_as_same_user(process.pid, "environ").returncode != 0))
        finally:
            process.kill()


@pytest.mark.parametrize("size", [10, 100_000])
def test_an_environment_is_handed_over_whole_and_little_of_it_openly(size: int, secret: str) -> None:
    given = {**os.environ, "SECRET": secret + "é\udcff" + "x" * size}
    shown, rest = hand_over_environment(given)
    assert secret not in str(shown)
    program = """
import os
from holdfast.util.process_secrets import protect_process
protect_process()
print(len(os.environ["SECRET"]), os.read(0, 9), "HOLDFAST_ENVIRONMENT" in os.environ)
"""
    with rest:
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=rest.fileno(), env=shown, stdout=subprocess.PIPE, text=True
        )
    assert child.communicate(timeout=SECONDS)[0] == f"{len(given['SECRET'])} b'' False\n"


def test_S45_variables_that_settings_refer_to_are_withheld_from_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OF_HEADER", "OF_ENV", "OF_ARGUMENT", "OF_ADDRESS", "OF_FILE", "OF_MODEL")
    for name in (*names, "OTHER"):
        monkeypatch.setenv(name, "x")
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"c": {"command": "true", "env": {"A": "${env:OF_FILE}"}}}}')
    servers = {
        "a": McpServerSettings(url="http://${OF_ADDRESS}/", headers={"A": "Bearer ${OF_HEADER:-none}"}),
        "b": McpServerSettings(command="true", args=("${OF_ARGUMENT}", "${HOME}"), env={"A": "${OF_ENV}"}),
    }
    models = ModelsSettings(servers={"m": ModelServerSettings(url="http://m", key="${OF_MODEL}")})
    settings = Settings(data=tmp_path / "data", mcp=McpSettings(files=(file,), servers=servers), models=models)
    _ = HoldfastPlugin(settings).registry
    given = build_environment({})
    assert [name for name in names if name in given] == []
    assert {"OTHER", "HOME", "PATH"} <= set(given)
