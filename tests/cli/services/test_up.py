"""`holdfast up`: one command, a server and a worker; stopped, killed and started again without losing a turn (S46)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Effect, Holdfast, HoldfastPlugin, Settings, tool
from tests.cli.support import COMMAND, SECONDS, Home, Up, call


def lives(up: Up) -> bool:
    """Does the HTTP endpoint answer where `up` said it is?"""
    with urlopen(f"{up.where['gateway']['url']}/health", timeout=SECONDS) as answer:
        return bool(json.load(answer) == {"status": "ok"})


def test_S46_up_is_stopped_with_ctrl_c_and_the_next_up_goes_on_where_it_stopped(empty: Home) -> None:
    with empty.up() as up:
        assert (empty.data.stat().st_mode & 0o777) == 0o700
        assert {path.stat().st_mode & 0o077 for path in empty.data.iterdir()} == {0}, "for their owner only"
        empty.start("lasting", call("shell", command="echo once >> lasting.txt"))
        empty.seen("lasting", after="awaiting_approval")
        assert up.end(signal.SIGINT) == 0
    assert "Stopped. The next `holdfast up` continues from here." in up.said
    assert empty.all_gone()
    assert not (empty.data / "server.json").exists()
    assert empty.run("inbox").returncode == 3

    with empty.up():
        assert empty.run("approve", "lasting/b1c1/1").returncode == 0
        empty.seen("lasting", kind="turn", after="completed")
    assert (empty.workspace / "lasting.txt").read_text() == "once\n"
    assert empty.all_gone()


async def test_up_without_a_worker_leaves_turns_to_one_of_your_own(empty: Home) -> None:
    @tool(effect=Effect.READ)
    async def weather(city: str) -> str:
        """Tell the weather."""
        return f"fine in {city}"

    with empty.up("--no-worker") as up:
        assert up.where["worker"] is None
        settings = Settings(data=empty.data, workspace=empty.workspace)
        plugin = HoldfastPlugin(settings, tools=[weather])
        client = await Client.connect(up.where["address"], plugins=[plugin])
        async with Worker(client, task_queue="holdfast"):
            for number in range(5):
                empty.start(f"own-{number}", call("weather", city="Rome"))
                result = await Holdfast(client).get_turn(f"own-{number}").result()
                assert [response.text for response in result.responses] == ["fine in Rome"]
    assert "Stopping the gateway, then the server …" in up.said


def test_a_second_up_on_the_same_data_folder_is_refused_and_harms_nothing(home: Home) -> None:
    done = home.run("up", "--port", "0")
    assert done.returncode == 1
    assert f"`holdfast up` already runs on {str(home.data)!r}" in done.stderr
    assert home.run("inbox").returncode == 0


def test_up_replaces_a_killed_worker_and_a_killed_server(empty: Home) -> None:
    with empty.up() as up:
        empty.start("kept", call("shell", command="echo done"))
        empty.seen("kept", after="awaiting_approval")
        os.kill(up.where["worker"], signal.SIGKILL)
        up.wait_for("The worker was ended by SIGKILL; starting another.")
        up.wait_for("worker ready")
        os.kill(up.where["pid"], signal.SIGKILL)
        up.wait_for("The server answers again")
        assert empty.run("approve", "kept/b1c1/1").returncode == 0
        empty.seen("kept", kind="turn", after="completed")
    assert empty.all_gone()


def test_up_replaces_a_killed_gateway_where_it_was_and_a_killed_worker_leaves_it_alone(empty: Home) -> None:
    with empty.up() as up:
        assert lives(up)
        os.kill(up.where["gateway"]["pid"], signal.SIGKILL)
        up.wait_for("The gateway was ended by SIGKILL; starting another.")
        assert up.where["gateway"]["url"] in up.wait_for("gateway ready")
        assert lives(up)
        os.kill(up.where["worker"], signal.SIGKILL)
        up.wait_for("worker ready")
        assert lives(up)
        assert up.end() == 0
    assert not any("The gateway" in line for line in up.said[-3:]), "it was not taken for an orphan"
    assert "Stopping the gateway and the worker, then the server …" in up.said
    assert empty.all_gone()


def test_a_gateway_that_keeps_dying_holds_no_worker_back(empty: Home) -> None:
    with empty.up() as up:
        port = int(up.where["gateway"]["url"].rpartition(":")[2])
        os.kill(up.where["gateway"]["pid"], signal.SIGKILL)
        up.wait_for("The gateway was ended by SIGKILL")
        with socket.create_server(("127.0.0.1", port)):  # now no other can listen there
            for _ in range(2):
                up.wait_for(f"port {port} of 127.0.0.1 is in use")
                up.wait_for("The gateway exited with code 1")
            os.kill(up.where["worker"], signal.SIGKILL)
            up.wait_for("worker ready")
        assert up.where["gateway"]["url"] in up.wait_for("gateway ready")
        assert lives(up)


def test_a_port_that_was_asked_for_and_is_taken_leaves_the_gateway_out_and_the_usual_one_another(empty: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with empty.up("--gateway-port", str(port)) as up:
            assert up.where["gateway"] is None
            assert any(f"port {port} of 127.0.0.1 is in use" in line for line in up.said)
            assert any("The HTTP endpoint did not start" in line for line in up.said)
            assert empty.run("inbox").returncode == 0
    ours = _hold(8234)  # else somebody else has it, as long as they like
    with empty.up() as up:
        assert lives(up)
        assert ours is None or not up.where["gateway"]["url"].endswith(":8234")
    if ours:
        ours.close()
    with empty.up("--no-gateway") as up:
        assert up.where["gateway"] is None
        assert len(empty.processes()) >= 3
        assert not any("gateway" in _command(pid) for pid in empty.processes() - {up.process.pid})


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _hold(port: int) -> socket.socket | None:
    with suppress(OSError):
        return socket.create_server(("127.0.0.1", port))
    return None


def test_up_tells_a_person_where_everything_is_and_what_to_try(empty: Home) -> None:
    command = [*COMMAND, "up", "--port", "0"]
    with subprocess.Popen(command, env=empty.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = ""
        while "holdfast turn show hello" not in told and (line := process.stdout.readline()):
            told += line
        assert "holdfast turn show hello" in told
        assert re.search(r"HTTP +http://127\.0\.0\.1:\d+ .*holdfast tokens create NAME", told)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=SECONDS)[0].endswith("continues from here.\n")
        assert process.returncode == 0


def test_S17_nothing_is_left_behind_when_up_itself_is_killed(empty: Home) -> None:
    """Commands wait for the next worker, for as long as their lease."""
    file = empty.folder / "lease.toml"
    file.write_text("[tools.shell]\nlease_seconds = 5\n")
    empty.env["HOLDFAST_CONFIG"] = str(file)
    with empty.up() as up:
        empty.start("running", call("shell", command="setsid sleep 600 & echo begun; sleep 600"))
        empty.seen("running", after="awaiting_approval")
        assert empty.run("approve", "running/b1c1/1").returncode == 0
        empty.seen("running", after="executing")
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
        assert empty.all_gone()


def test_S23_a_decision_that_no_worker_answers_is_left_as_a_signal_and_counts_later(empty: Home) -> None:
    with empty.up() as up:
        empty.start("later", call("shell", command="echo ran"))
        empty.seen("later", after="awaiting_approval")
        os.kill(up.where["worker"], signal.SIGSTOP)
        shown = empty.run("turn", "show", "later")
        assert (shown.returncode, "$ echo ran" in shown.stdout) == (3, True)
        assert "No worker answers" in shown.stderr
        done = empty.run("approve", "later/b1c1/1")
        assert done.returncode == 0
        assert "no worker answered, so the decision was sent as a signal" in done.stdout
        assert empty.listed("later")[0]["approval_id"] == "later/b1c1/1"
        shown = empty.run("turn", "show", "later")
        assert shown.returncode == 3
        assert "no worker answered for turn 'later'" in shown.stderr
        os.kill(up.where["worker"], signal.SIGCONT)
        empty.seen("later", kind="turn", after="completed")


def test_S45_the_embedded_server_is_given_no_key_of_ours(empty: Home) -> None:
    secret = "c2VjcmV0LXRoYXQtaXMtb3Vycw=="
    empty.env |= {"HOLDFAST_ENCRYPTION_KEY": secret, "OPENAI_API_KEY": secret, "AWS_SECRET_ACCESS_KEY": secret}
    with empty.up() as up:
        pid = up.where["server"]["pid"] if "server" in up.where else up.where["pid"]
        assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
