"""Run a command that cannot outlive the process that started it. A script that imports nothing of this package.

    python tether.py PARENT_PID SIGNAL_NUMBER PROGRAM ARGUMENT...

It asks the kernel to send SIGNAL when its parent dies, for whatever reason, then executes PROGRAM; the request survives
the exec. It is a launcher and not a function between fork and exec, because the parents have threads. Linux only;
elsewhere the command simply runs.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request the signal, and execute the command."""
    parent, number, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before we asked
            os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
