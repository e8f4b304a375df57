"""Where workers come from: one process that has imported everything, and forks a worker for each line it is told.

A new worker is there in a tenth of a second, where a new interpreter takes more than one, and kills come every second.
Each is a process of its own that knows nothing of the others. All of them die with this one, and this one with the
harness.

    in:   {"slot": 0, …}                      the orders of a worker
    out:  {"slot": 0, "pid": 4711}            it was started
          {"pid": 4711, "status": -9}         it has ended
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from holdfast.errors import HoldfastError
from tests.chaos.harness.worker import Orders, serve

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.02


def main() -> None:
    """Fork until the harness is gone."""
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    while True:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS)
        if readable:
            line = _line()
            if not line:
                return  # those who are left die with us
            orders = Orders.model_validate_json(line)
            _say(slot=orders.slot, pid=_start(orders))
        _see_off()


def _line() -> bytes:
    """One line, without reading ahead: what is waiting must be seen by `select`."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def _start(orders: Orders) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_a_worker(orders, parent)
    return pid


def _be_a_worker(orders: Orders, parent: int) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(2, 1)
        asyncio.run(serve(orders))
        code = 0
    except HoldfastError as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _see_off() -> None:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            _say(pid=found[0], status=os.waitstatus_to_exitcode(found[1]))


def _say(**words: int) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
