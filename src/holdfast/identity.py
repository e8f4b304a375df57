"""Who we are, when nobody says."""

from __future__ import annotations

import getpass
import socket


def whoami() -> str:
    """Who decides, when nobody says: the user and the host."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):
        return socket.gethostname()
