"""Finding the programs that packages we depend on bring: `temporal`, `rg`."""

from __future__ import annotations

import os
import shutil
import sys


def find_program(name: str) -> str | None:
    """The absolute path of a program: beside this Python, where its package put it, else on the path; else None."""
    folders = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    return found if found and os.path.isabs(found) else None
