"""Programs of the machine that tests need. `.ci/packages` installs them; without one its tests are skipped, save in CI.

A test says what it needs with `@pytest.mark.needs("git")`, a helper of several tests with `require_program("git")`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

LIST = Path(__file__).resolve().parents[2] / ".ci" / "packages.txt"
PACKAGES: dict[str, str] = dict(line.split() for line in LIST.read_text().splitlines())
"""By program, the Debian package that has it."""


def find_program(name: str) -> str | None:
    """The path of a program. Debian keeps those of PostgreSQL out of the path: the newest is taken."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parts[-2]))
    return shutil.which(name) or next((str(one / name) for one in folders[::-1] if (one / name).exists()), None)


def require_program(name: str) -> str:
    """The path of a program. Where there is none, the test that asks is skipped; where CI is true, it fails.

    So a machine without a package is no failure, and CI is not green for having tested nothing.
    """
    found = find_program(name)
    problem = _sandbox_problem(found) if found and name == "bwrap" else None
    if found and not problem:
        return found
    reason = problem or f"{name} is not installed: apt-get install {PACKAGES[name]}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _sandbox_problem(bwrap: str) -> str | None:
    """Why bubblewrap can make no sandbox here: engines of containers often forbid it."""
    command = [bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return f"bubblewrap can make no sandbox here: {done.stderr.strip()}" if done.returncode else None
