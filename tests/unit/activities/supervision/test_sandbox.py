"""Commands in a sandbox: what they can reach, and that there is no running without it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.process.command import Command, build_environment
from holdfast.activities.process.proc import list_descendants
from holdfast.activities.supervision.runs import Runs
from holdfast.activities.supervision.sandbox import BASE_OPTIONS, Sandbox, SandboxLayout, build_bwrap_words
from holdfast.activities.supervision.supervised_run import RunEnd
from holdfast.domain.calls.tool import ToolFailure
from tests.support.marks import alive, marked, until
from tests.support.programs import require_program
from tests.unit.activities.supervision.test_supervisor import Place, bounded, said, until_said

END = ("--json-status-fd", "3", "--")


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (SandboxLayout("/space"), ("--unshare-net", "--bind", "/space", "/space")),
        (SandboxLayout("/space", network=True), ("--bind", "/space", "/space")),
        (
            SandboxLayout("/tmp/work", private=("/tmp", "/run")),
            ("--unshare-net", "--tmpfs", "/run", "--tmpfs", "/tmp", "--bind", "/tmp/work", "/tmp/work"),
        ),
        (
            SandboxLayout("/home/me", private=("/home/me/data",)),
            ("--unshare-net", "--bind", "/home/me", "/home/me", "--tmpfs", "/home/me/data"),
        ),
        (
            SandboxLayout("/data/demo/work", private=("/data",)),
            ("--unshare-net", "--tmpfs", "/data", "--bind", "/data/demo/work", "/data/demo/work"),
        ),
        (SandboxLayout("/tmp", private=("/tmp",)), ("--unshare-net", "--bind", "/tmp", "/tmp")),
        (
            SandboxLayout("/space", private=("/run",), shown=("/run/dns/resolv.conf",), network=True),
            (
                *("--tmpfs", "/run", "--bind", "/space", "/space"),
                *("--ro-bind", "/run/dns/resolv.conf", "/run/dns/resolv.conf"),
            ),
        ),
    ],
    ids=["plain", "network", "workspace in /tmp", "data in it", "it in data", "workspace is /tmp", "resolver"],
)
def test_words_of_a_sandbox(inside: SandboxLayout, expected: tuple[str, ...]) -> None:
    words = build_bwrap_words(inside, "/space/deep", program="/usr/bin/bwrap")
    assert words == ("/usr/bin/bwrap", *BASE_OPTIONS, *expected, "--chdir", "/space/deep", *END)


def test_sandbox_is_read_only_and_separate_before_anything_else() -> None:
    for wanted in ("--unshare-user", "--unshare-pid", "--die-with-parent"):
        assert wanted in BASE_OPTIONS
    assert " ".join(BASE_OPTIONS).endswith("--cap-drop ALL --ro-bind / / --dev /dev --proc /proc --remount-ro /proc")


# Real ones


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    require_program("bwrap")
    made = Place(tmp_path)
    yield made
    await until(lambda: not made.left())


async def run(place: Place, text: str, **more: Any) -> tuple[RunEnd, str]:
    started = await bounded(
        place.runs.supervise(place.command(text), place.key(text), sandbox=Sandbox(place.workspace, **more))
    )
    return await bounded(started.wait_for_end()), (await said(started)).decode()


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15)]
)
async def test_end_of_a_sandboxed_command_is_the_real_one(place: Place, text: str, code: int) -> None:
    ended, _ = await run(place, text)
    assert (ended.why, ended.code) == ("exited", code)


async def test_S37_only_the_workspace_and_a_private_tmp_can_be_written(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    home = Path.home() / ".holdfast-sandbox-test"
    tries = " ".join(f"'{path}'" for path in (outside / "x", home, "/etc/x", "/usr/x", "/proc/sys/kernel/hostname"))
    text = (
        f"for path in {tries}; do (echo x > $path) 2>/dev/null && echo wrote $path; done; "
        "echo kept > inside; echo private > /tmp/private && cat /tmp/private; echo x > /dev/null; pwd"
    )
    ended, output = await run(place, text)
    assert (ended.code, output) == (0, f"private\n{place.workspace}\n")
    assert (place.workspace / "inside").read_text() == "kept\n"
    assert not home.exists()
    assert "private" not in os.listdir("/tmp")
    assert not any(outside.iterdir())


@pytest.fixture
def listening() -> Iterator[int]:
    """The port of a server on this machine that greets whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"hello\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


async def test_network_is_off_unless_it_is_asked_for(place: Place, listening: int) -> None:
    text = f"cat < /dev/tcp/127.0.0.1/{listening}; ls /sys/class/net"
    _, without = await run(place, f"{text}; :")
    assert "hello" not in without
    _, with_it = await run(place, text, network=True)
    assert "hello\n" in with_it


async def test_sockets_of_this_machine_are_not_reached(place: Place) -> None:
    ended, output = await run(place, "ls -A /run /var/tmp; find /tmp -type s")
    assert (ended.code, output.split()) == (0, ["/run:", "/var/tmp:"])


async def test_other_processes_are_not_seen(place: Place) -> None:
    text = f"ls /proc | grep -c '^[0-9]'; kill -0 {os.getpid()} 2>/dev/null && echo seen; echo $$"
    ended, output = await run(place, text)
    count, pid = output.split()
    assert ended.code == 0
    assert int(count) <= 5
    assert int(pid) == 2


async def test_nothing_in_it_has_or_gains_privileges(place: Place) -> None:
    _, output = await run(place, "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\\t ' ' '")
    assert output.splitlines() == ["CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1"]


async def test_S45_hidden_folders_are_empty(place: Place, tmp_path: Path) -> None:
    data = Path.home() / f".holdfast-sandbox-{os.getpid()}"
    data.mkdir()
    (data / "tokens.json").write_text("secret")
    try:
        _, output = await run(place, f"ls -A {data}; echo end", hidden=(data, tmp_path / "not there"))
        assert output == "end\n"
        assert "tokens.json" in (await run(place, f"ls -A {data}"))[1]
    finally:
        shutil.rmtree(data)


async def test_environment_is_the_given_one(place: Place) -> None:
    command = place.command("env | cut -d= -f1 | sort", environment={"PATH": os.environ["PATH"], "ONE": "1"})
    started = await place.runs.supervise(command, place.key(), sandbox=Sandbox(place.workspace))
    names = set((await said(started)).decode().split())
    assert names == {"PATH", "ONE", "HOLDFAST_CALL", "PWD", "SHLVL", "_"}


async def test_command_that_is_not_there_has_not_started(place: Place) -> None:
    command = Command(
        words=("no-such-program",), directory=place.workspace, seconds=9, environment=build_environment({})
    )
    started = await place.runs.supervise(command, place.key(), sandbox=Sandbox(place.workspace))
    ended = await bounded(started.wait_for_end())
    assert (ended.why, ended.code) == ("not_started", None)
    assert "its output says why" in ended.error
    assert b"no-such-program" in await said(started)


# Stopping


HIDING = "env -i setsid bash -c 'trap \"\" TERM; while :; do sleep 0.05; done' & "


async def test_S17_sandboxed_command_is_asked_and_all_of_it_ends(place: Place) -> None:
    text = f"{HIDING} trap 'sleep 0.1; echo tidy > tidied; exit 9' TERM; echo up; sleep 600 & wait"
    started = await place.runs.supervise(place.command(text), place.key(), sandbox=Sandbox(place.workspace))
    await until_said(started, b"up")
    below = list(list_descendants(started.record.supervisor))
    assert len(below) >= 4
    ended = await bounded(started.stop())
    assert (ended.why, ended.code) == ("stopped", 9)
    assert (place.workspace / "tidied").read_text() == "tidy\n"
    assert [pid for pid in below if alive(pid)] == []


async def test_S17_stubborn_sandboxed_command_is_killed(place: Place) -> None:
    text = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    started = await place.runs.supervise(place.command(text), place.key(), sandbox=Sandbox(place.workspace))
    await until_said(started, b"up")
    assert (await bounded(started.stop())).why == "stopped"
    assert marked(place.key()) == []


async def test_S17_everything_in_a_sandbox_dies_with_its_supervisor(place: Place) -> None:
    text = f"{HIDING} echo up; sleep 600; :"
    started = await place.runs.supervise(place.command(text), place.key(), sandbox=Sandbox(place.workspace))
    await until_said(started, b"up")
    below = list(list_descendants(started.record.supervisor))
    assert len(below) >= 4
    os.kill(started.record.supervisor, signal.SIGKILL)
    await until(lambda: not [pid for pid in below if alive(pid)])
    assert (await bounded(started.wait_for_end())).why == "lost"


# Never silently missing


async def refused(place: Place, **more: Any) -> str:
    with pytest.raises(ToolFailure) as failed:
        await bounded(
            place.runs.supervise(
                place.command("touch ran"), place.key(), sandbox=Sandbox(**{"workspace": place.workspace, **more})
            )
        )
    assert failed.value.type == "sandbox_unavailable"
    assert not (place.workspace / "ran").exists()
    assert await place.runs.attach(place.key()) is None
    return str(failed.value)


async def test_sandbox_that_is_not_installed_is_an_error(place: Place) -> None:
    assert "'no-bwrap-here' is not installed" in await refused(place, program="no-bwrap-here")


async def test_sandbox_the_kernel_refuses_is_an_error(place: Place, tmp_path: Path) -> None:
    within = tmp_path / "bwrap"
    within.write_text(
        "#!/bin/sh\n"
        'exec unshare -Ur sh -c \'echo 0 > /proc/sys/user/max_user_namespaces; exec bwrap "$@"\' bwrap "$@"\n'
    )
    within.chmod(0o755)
    message = await refused(place, program=str(within))
    assert "namespace" in message
    assert "bwrap:" in message


async def test_sandbox_that_hangs_is_an_error(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.activities.supervision.sandbox.PROBE_SECONDS", 0.2)
    hanging = tmp_path / "bwrap"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    assert "did nothing" in await refused(place, program=str(hanging))


async def test_root_folder_as_workspace_is_an_error(place: Place) -> None:
    assert "root folder" in await refused(place, workspace=Path("/"))


async def test_sandbox_is_tried_out_once(place: Place, tmp_path: Path) -> None:
    counting = tmp_path / "bwrap"
    counting.write_text(f'#!/bin/sh\necho x >> {tmp_path}/count\nexec bwrap "$@"\n')
    counting.chmod(0o755)
    sandbox = Sandbox(place.workspace, program=str(counting))
    await sandbox.check_available()
    await sandbox.check_available()
    await Sandbox(place.workspace, program=str(counting)).check_available()
    assert (tmp_path / "count").read_text() == "x\n"


async def test_run_that_has_begun_is_found_where_no_sandbox_can_be_had_any_more(place: Place) -> None:
    command = place.command("echo said")
    first = await place.runs.supervise(command, place.key(), sandbox=Sandbox(place.workspace))
    await bounded(first.wait_for_end())
    gone = Sandbox(place.workspace, program="no-bwrap-here")
    again = await bounded(Runs(place.folder).supervise(command, place.key(), sandbox=gone))
    assert await said(again) == b"said\n"
