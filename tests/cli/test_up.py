"""`holdfast up`: one command, a server and a worker; stopped, killed and started again without losing a turn (S46)."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.cli.support import COMMAND, SECONDS, Home, call


def test_S46_up_is_stopped_with_ctrl_c_and_the_next_up_goes_on_where_it_stopped(empty: Home) -> None:
    with empty.up() as up:
        assert (empty.data.stat().st_mode & 0o777) == 0o700
        assert {path.stat().st_mode & 0o077 for path in empty.data.iterdir()} == {0}, "for their owner only"
        empty.start("lasting", call("shell", command="echo once >> lasting.txt"))
        empty.seen("lasting", after="awaiting_approval")
        assert up.end(signal.SIGINT) == 0
    assert "Stopped. The next `holdfast up` goes on from here." in up.said
    assert empty.all_gone()
    assert not (empty.data / "server.json").exists()
    assert empty.run("inbox").returncode == 3

    with empty.up():
        assert empty.run("approve", "lasting/b1c1/1").returncode == 0
        empty.seen("lasting", kind="turn", after="completed")
    assert (empty.workspace / "lasting.txt").read_text() == "once\n"
    assert empty.all_gone()


def test_a_second_up_on_the_same_data_folder_is_refused_and_harms_nothing(home: Home) -> None:
    done = home.run("up", "--port", "0", "--ui-port", "0")
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


def test_up_tells_a_person_where_everything_is_and_what_to_try(empty: Home) -> None:
    command = [*COMMAND, "up", "--port", "0", "--ui-port", "0"]
    with subprocess.Popen(command, env=empty.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any("holdfast turn show hello" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=SECONDS)[0].endswith("goes on from here.\n")
        assert process.returncode == 0


def test_S17_nothing_is_left_behind_when_up_itself_is_killed(empty: Home) -> None:
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
        assert "no worker answered, so the decision was left as a signal" in done.stdout
        assert empty.json("inbox")["approvals"][0]["approval_id"] == "later/b1c1/1"
        shown = empty.run("turn", "show", "later")
        assert shown.returncode == 3
        assert "no worker answered for turn 'later'" in shown.stderr
        os.kill(up.where["worker"], signal.SIGCONT)
        empty.seen("later", kind="turn", after="completed")
