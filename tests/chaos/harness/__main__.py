"""`make chaos`, or `python -m tests.chaos.harness`: run it, print what was found; 1 when anything is wrong.

2 when the harness itself could not do its work, and nothing was proven.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import get_args

from holdfast.errors import HoldfastError
from holdfast.workers.runtime import log_setup
from tests.chaos.harness.fleet import HarnessBroken
from tests.chaos.harness.report import Report, text_of
from tests.chaos.harness.run import Options, Run
from tests.chaos.harness.sabotage import How

WRONG = 1
BROKEN = 2
INTERRUPTED = 130


def main() -> int:
    """Run it once."""
    options, as_json = _options()
    log_setup.silence_logging()
    print(f"Seed {options.seed}", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    kept = True
    try:
        report = asyncio.run(_run(options, folder))
        kept = not report.good and not options.sabotage
    except (KeyboardInterrupt, asyncio.CancelledError):
        kept = False
        print("Interrupted; nothing is left.", file=sys.stderr)
        return INTERRUPTED
    except (HarnessBroken, HoldfastError) as error:
        print(f"The harness could not do its work: {error}", file=sys.stderr)
        return BROKEN
    finally:
        if kept:
            print(f"What there is to see is in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(report.model_dump_json(indent=2) if as_json else text_of(report))
    return 0 if report.good else WRONG


async def _run(options: Options, folder: Path) -> Report:
    """The run; SIGTERM ends it as Ctrl-C does."""
    work = asyncio.ensure_future(Run(options, folder).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    return await work


def _options() -> tuple[Options, bool]:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.harness", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="decides what is run and what befalls it")
    parser.add_argument("--calls", type=int, default=Options.calls, help="at least so many calls")
    parser.add_argument("--kills", type=int, default=Options.kills, help="at least so many SIGKILLs; 0 for none at all")
    parser.add_argument("--workers", type=int, default=Options.workers)
    parser.add_argument("--at-once", type=int, default=Options.at_once, help="turns that run at the same time")
    parser.add_argument("--limit", type=float, default=Options.limit_seconds, help="seconds that the storm may take")
    parser.add_argument("--quiet", type=float, default=Options.quiet_seconds, help="seconds for turns to end after it")
    parser.add_argument(
        "--sabotage", choices=get_args(How), action="append", default=[], help="spoil one call, to see that it is found"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    given = parser.parse_args()
    if given.calls < 1 or given.kills < 0 or given.workers < 1 or given.at_once < 1:
        parser.error("it takes at least one call, one worker and one turn at once, and no negative kills")
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    options = Options(
        seed=seed, calls=given.calls, kills=given.kills, workers=given.workers, at_once=given.at_once,
        limit_seconds=given.limit, quiet_seconds=given.quiet, sabotage=tuple(given.sabotage),
    )  # fmt: skip
    return options, given.json


if __name__ == "__main__":
    sys.exit(main())
