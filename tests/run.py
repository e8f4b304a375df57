"""`make test` and `make test-fast`: the tests several at a time; then, one by one, those that measure.

A test that fails in the crowd is run once more alone. The run is red only if it fails again; what passed the second
time is listed in the end as flaky, and is to be mended or deleted. More failures than `MOST` are no accident of the
crowd, and are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

MOST = 25
FAILED = 1
"""pytest's exit code for tests that failed; every other code but 0 is a problem that no second run mends."""
LAST = Path(".pytest_cache/v/cache/lastfailed")
FAST = ("tests/unit", "tests/replay")
"""What needs no server."""


def run_pytest(*options: str) -> int:
    """The exit code. Bytecode is kept whatever the environment says: every command that a test runs would compile
    itself anew."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-m", "pytest", *options], env=env, check=False).returncode


def read_failures() -> set[str]:
    """The tests that failed in the last run."""
    return set(json.loads(LAST.read_text())) if LAST.exists() else set()


def run_part(*options: str, jobs: str | None = None) -> tuple[int, set[str]]:
    """One part of the suite: its exit code, and the tests that failed only in the crowd."""
    LAST.unlink(missing_ok=True)
    code = run_pytest(*options, *(("-n", jobs) if jobs else ()))
    first = read_failures()
    if code != FAILED or not 0 < len(first) <= MOST:
        return code, set()
    print(f"\n{len(first)} failed; each is run once more, alone.\n", flush=True)
    again = run_pytest(*options, "--last-failed", "--last-failed-no-failures=none")
    return again, first - read_failures()


def find_files_with_alone() -> list[str]:
    """The files with a test that runs alone. To collect all the others too takes longer than to run these."""
    return sorted(str(file) for file in Path("tests").rglob("test_*.py") if "mark.alone" in file.read_text())


def main() -> int:
    """Run them; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="?", default="4", help="how many processes")
    parser.add_argument("--fast", action="store_true", help="only what needs no server")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="name the N slowest tests in the end")
    options = parser.parse_args()
    timed = (f"--durations={options.slowest}", "--durations-min=0.1") if options.slowest else ()
    code, flaky = run_part(*(FAST if options.fast else ()), "-m", "not alone", *timed, jobs=options.jobs)
    if not options.fast:
        alone, flaky_alone = run_part(*find_files_with_alone(), "-m", "alone", *timed)
        code, flaky = code or alone, flaky | flaky_alone
    for test in sorted(flaky):
        print(f"flaky: {test}")
    return code


if __name__ == "__main__":
    sys.exit(main())
