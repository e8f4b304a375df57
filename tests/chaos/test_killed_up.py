"""`holdfast up` that is stopped or killed in the middle of a command: the next one goes on with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.cli.support import SECONDS, Home, call
from tests.support.marks import alive

COMMAND = """
echo x >> counted
echo $$ > pid
for number in 1 2 3; do while [ ! -e go$number ]; do sleep 0.05; done; echo part $number; done
"""


def test_S31_up_that_is_stopped_and_then_killed_in_the_middle_of_a_command_finds_it_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with home.up("--no-gateway") as up:
        home.start("lasting", call("shell", command=COMMAND))
        home.seen("lasting", after="awaiting_approval")
        assert home.run("approve", "lasting/b1c1/1").returncode == 0
        _until_said(home, 1)
        assert up.end(signal.SIGINT) == 0
    assert "Stopped. The next `holdfast up` continues from here." in up.said
    command = int((home.workspace / "pid").read_text())
    assert alive(command), "it was handed over"
    with home.up("--no-gateway") as up:
        _until_said(home, 2)
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
    assert alive(command), "it goes on by itself"
    with home.up("--no-gateway"):
        (home.workspace / "go3").touch()
        home.seen("lasting", kind="turn", after="completed")
        [shown] = home.json("turn", "show", "lasting")["batch"]["calls"]
    assert (shown["status"], shown["output"]) == ("success", "part 1\npart 2\npart 3\n")
    assert shown["revision"] == 1, "nobody was asked again"
    assert (home.workspace / "counted").read_text() == "x\n"
    assert not alive(command)
    assert home.all_gone()
    assert not any((home.data / "runs").iterdir())


def _until_said(home: Home, number: int) -> None:
    """Let the command say its next part, and wait until a viewer has seen it: then a worker attends to it."""
    (home.workspace / f"go{number}").touch()
    deadline = time.monotonic() + SECONDS
    while f"part {number}" not in home.run("turn", "output", "lasting", "b1c1").stdout:
        assert time.monotonic() < deadline, "nobody attends to the command"
