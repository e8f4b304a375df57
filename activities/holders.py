"""Who began an effect: a host's name and a process of it, so that another process can tell whether that one lives.

A number alone would not do: it is given again. With the moment at which its process was started it names one process.
"""

from __future__ import annotations

import os
import re
import socket

from holdfast.activities.supervision.trees import read_start_time

_HOLDER = re.compile(r"(?P<host>.*) \(process (?P<pid>[0-9]{1,10})\.(?P<born>[0-9]{1,20})\)", re.DOTALL)


def build_holder() -> str:
    """This process."""
    pid = os.getpid()
    return f"{socket.gethostname()} (process {pid}.{read_start_time(pid) or 0})"


def is_holder_alive(holder: str) -> bool:
    """Is it another process of this host that is still there? Of other hosts nobody here can tell."""
    found = _HOLDER.fullmatch(holder)
    if found is None or found["host"] != socket.gethostname() or holder == build_holder():
        return False
    return read_start_time(int(found["pid"])) == int(found["born"])


def parse_holder_host(holder: str) -> str:
    """Its host, for people."""
    found = _HOLDER.fullmatch(holder)
    return found["host"] if found else holder
