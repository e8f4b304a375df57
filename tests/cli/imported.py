"""Imports all that a command, or a server of the `mcp` package, may import, for the process that `warm` forks from."""

from __future__ import annotations

import pkgutil
import threading
from importlib import import_module

from holdfast import workers

for _found in pkgutil.walk_packages(workers.__path__, f"{workers.__name__}."):
    import_module(_found.name)
for _name in ("mcp.server.mcpserver", "uvicorn"):
    import_module(_name)
assert threading.active_count() == 1, "only one thread is forked"
