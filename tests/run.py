"""`make test`: all tests, several at a time; then, one by one, those that measure or need the machine to themselves.

A test that fails in the crowd is run once more alone. The run is red only if it fails again; what passed the second
time is listed in the end as flaky, and is to be mended or deleted. More failures than `MOST` are no accident of the
crowd, and are not run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

MOST = 25
FAILED = 1
"""pytest's exit code for tests that failed; every other code but 0 is a problem that no second run mends."""
LAST = Path(".pytest_cache/v/cache/lastfailed")


def run_pytest(*options: str) -> int:
    """The exit code. Bytecode is kept whatever the environment says: every command that a test runs would compile
    itself anew."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-m", "pytest", *options], env=env, check=False).returncode


def failed() -> set[str]:
    """The tests that failed in the last run."""
    return set(json.loads(LAST.read_text())) if LAST.exists() else set()


def run_part(*options: str, jobs: str | None = None) -> tuple[int, set[str]]:
    """One part of the suite: its exit code, and the tests that failed only in the crowd."""
    LAST.unlink(missing_ok=True)
    code = run_pytest(*options, *(("-n", jobs) if jobs else ()))
    first = failed()
    if code != FAILED or not 0 < len(first) <= MOST:
        return code, set()
    print(f"\n{len(first)} failed; each is run once more, alone.\n", flush=True)
    again = run_pytest(*options, "--last-failed", "--last-failed-no-failures=none")
    return again, first - failed()


def main() -> int:
    """Run everything; the exit code."""
    jobs = sys.argv[1] if len(sys.argv) > 1 else "4"
    crowd, flaky = run_part("-m", "not alone", jobs=jobs)
    alone, flaky_alone = run_part("-m", "alone")
    for test in sorted(flaky | flaky_alone):
        print(f"flaky: {test}")
    return crowd or alone


if __name__ == "__main__":
    sys.exit(main())
