"""`make fuzz`: both fuzzers, an hour in all unless told otherwise; 1 when anything was found.

python -m tests.fuzz --seconds 3600 --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.commands import fuzz_commands
from tests.fuzz.decisions import fuzz_decisions
from tests.fuzz.found import Found


def main() -> int:
    """Run both, and print what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600, help="for both together")
    parser.add_argument("--seed", type=int, default=None, help="decides what is tried, in which order")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000_000) if given.seed is None else given.seed
    print(f"Seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        commands = fuzz_commands(Path(folder), seed, given.seconds / 2)
    decisions = fuzz_decisions(seed, given.seconds / 2)
    _tell("commands", commands, "were fully known and compared with bash")
    _tell("decisions", decisions, "were well formed")
    return 1 if commands.problems or decisions.problems else 0


def _tell(name: str, found: Found, telling: str) -> None:
    print(f"{name}: {found.tried:,} tried, of which {found.telling:,} {telling}; {len(found.problems)} problems")
    for problem in found.problems:
        print(f"  {problem}")


if __name__ == "__main__":
    sys.exit(main())
