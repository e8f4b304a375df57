"""What the command is given to write to: closed, full, or gone with the first Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.support import COMMAND, SECONDS, Home


def _shell(home: Home, redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "bash", *COMMAND, *arguments],
        env=home.env,
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("redirection", [">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_swallows_what_is_written(redirection: str, empty: Home) -> None:
    done = _shell(empty, redirection, "tools", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert _shell(empty, redirection, "inbox").returncode == 3


@pytest.mark.parametrize("arguments", [["tools"], ["tools", "--json"], ["version"], ["--help"]])
def test_a_full_disk_is_said_in_a_sentence(arguments: list[str], empty: Home) -> None:
    done = _shell(empty, ">/dev/full", *arguments)
    assert (done.returncode, done.stderr) == (1, "holdfast: cannot write: no space left on device\n")


def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(empty: Home) -> None:
    assert _shell(empty, "2>/dev/full", "inbox").returncode == 3


IMPORT_INTERRUPTED = """
import signal, sys
from holdfast.workers import cli

class Interrupt:
    def find_spec(self, name, *rest):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
cli.main()
"""


def test_ctrl_c_during_the_imports_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_INTERRUPTED], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (130, "holdfast: interrupted\n")
