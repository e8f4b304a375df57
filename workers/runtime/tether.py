"""Run a command that cannot outlive the process that started it. A script of its own: no import of this package.

    python tether.py PARENT_PID SIGNAL_NUMBER PROGRAM ARGUMENT...

It asks the kernel for SIGNAL when its parent dies, by whatever cause, then becomes PROGRAM; the request survives the
exec. A launcher rather than a function between fork and exec, because our parents run threads. Linux only; elsewhere
the command simply runs.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie ourselves to the parent, and become the command."""
    parent, number, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before we asked
            os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
