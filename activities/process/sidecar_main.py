"""The script of a helper process (`sidecar.py`): it answers lines of JSON, and is killed when one takes too long.

    python sidecar_main.py MODULE CPU_SECONDS PATH…

MODULE has a function `answer`, and is imported from the folders that are given.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from importlib import import_module

MEMORY_BYTES = 2**31


def main(module: str, cpu_seconds: float, folders: list[str]) -> None:
    """Answer one line after the other until the input ends. SIGPROF ends the process after CPU_SECONDS of one line."""
    sys.path[:] = folders
    answer = import_module(module).answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        reply = json.dumps(answer(json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(reply.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
