"""Imports all that a command may import, for the process that `warm` forks commands from."""

from __future__ import annotations

import pkgutil
import threading
from importlib import import_module

from holdfast import workers

for _found in pkgutil.walk_packages(workers.__path__, f"{workers.__name__}."):
    import_module(_found.name)
assert threading.active_count() == 1, "only one thread is forked"
