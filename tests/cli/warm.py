"""The command in processes that are forked from one which has imported it: that is most of what a short command does.
The same for scripts that are servers.

They are real ones, each with arguments, environment, folder and streams of its own, and they begin where the command
does; only what is imported is there already.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from holdfast.workers.cli import main

_SEEN_BY_PYTHON = ("PYTHON", "LANG", "LC_")
"""Names in the environment that an interpreter looks at when it starts."""
_STREAMS = ("stdin", "stdout", "stderr")
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.cli.imported"])


def suits(env: Mapping[str, str]) -> bool:
    """May a command with this beside the usual environment be forked?"""
    return not any(name.startswith(_SEEN_BY_PYTHON) for name in env)


def run(
    arguments: tuple[str, ...], *, stdin: str, env: Mapping[str, str], cwd: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    with tempfile.TemporaryDirectory(prefix="holdfast-warm-") as name:
        folder = Path(name)
        (folder / "stdin").write_text(stdin)
        process = _FORKING.Process(target=_become, args=(arguments, dict(env), cwd, folder))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, seconds)
        out, err = ((folder / stream).read_text() for stream in _STREAMS[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, out, err)


def start_on_terminal(arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, terminal: int) -> BaseProcess:
    """Start a command on this terminal, which is closed here, as the leader of a session of its own."""
    with Connection(terminal) as handed:  # nothing is sent through it: it is what takes a descriptor along
        process = _FORKING.Process(target=_become_on_terminal, args=(tuple(arguments), dict(env), cwd, handed))
        process.start()
    return process


def _become_on_terminal(arguments: tuple[str, ...], env: dict[str, str], cwd: Path, terminal: Connection) -> None:
    os.setsid()
    fcntl.ioctl(terminal.fileno(), termios.TIOCSCTTY, 0)
    for number, stream in enumerate(_STREAMS):
        os.dup2(terminal.fileno(), number)
        setattr(sys, stream, os.fdopen(number, "w" if number else "r", closefd=False))
    terminal.close()
    _run_main(arguments, env, cwd)


def start_script(script: str, arguments: Sequence[str], env: Mapping[str, str]) -> BaseProcess:
    """Start a script of Python, which reads nothing and whose output nobody sees."""
    process = _FORKING.Process(target=_run_script, args=(script, list(arguments), dict(env)), daemon=True)
    process.start()
    return process


def _run_script(script: str, arguments: list[str], env: dict[str, str]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(len(_STREAMS)):
        os.dup2(nowhere, number)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def _become(arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path, folder: Path) -> None:
    for number, stream in enumerate(_STREAMS):
        opened = os.open(folder / stream, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
        setattr(sys, stream, os.fdopen(number, "w" if number else "r"))
    _run_main(arguments, env, cwd)


def _run_main(arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.argv = ["holdfast", *arguments]
    main()
