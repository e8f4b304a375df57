"""Records the history of every play that has none yet: `make histories`.

A stored history is never overwritten: it stands for turns that may still be running on the code that made it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from holdfast.workers.audit.read.workflow_runs import gather_runs
from holdfast.workflows import call_activities
from tests.support.engine import Engine, new_engine
from tests.support.hurried import LIMITS
from tests.support.server import address_of, start_server
from tests.support.turns import PLAYS, RULES, TOOLS, WITH_WORKERS, Play

HISTORIES = Path(__file__).parent / "histories"
PAYLOADS = HISTORIES / "payloads"
OFTEN = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=200")
"""A turn that continues as new does so early."""
STICKY = re.compile(r'"\d+@[^"]+-([0-9a-f]{32})"')
"""The queue of one process, which names its machine."""


async def record() -> None:
    """Play what is missing, store its histories and the payloads they keep outside."""
    HISTORIES.mkdir(exist_ok=True)
    missing = {name: play for name, play in PLAYS.items() if not (HISTORIES / f"{name}.json").exists()}
    with tempfile.TemporaryDirectory() as folder:
        async with await start_server(Path(folder) / "temporal.db", OFTEN) as server:
            address = address_of(server)
            for name, play in missing.items():
                async with new_engine(address, Path(folder) / name) as engine:
                    engine.with_rules(RULES)
                    await _store(name, engine, await _played(name, play, engine))


async def _played(name: str, play: Play, engine: Engine) -> str:
    """The id of what was played to its end."""
    if name in WITH_WORKERS:
        limits = ((patch.object(call_activities, limit, value)) for limit, value in LIMITS.items())
        with ExitStack() as patched:
            for one in limits:
                patched.enter_context(one)
            return (await play(engine)).id
    async with engine.worker(*TOOLS):
        turn = await play(engine)
        await turn.result()
        return turn.id


async def _store(name: str, engine: Engine, workflow: str) -> None:
    """Every run of it, and of the turns within it: the first under the name itself."""
    gathered = await gather_runs(engine.client, workflow)
    for number, run in reversed(list(enumerate(gathered.runs, start=1))):  # the first one says that all are there
        stored = STICKY.sub(r'"worker-\1"', json.dumps(_without_traces(run.history.to_json_dict()), indent=1))
        file = HISTORIES / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        file.write_text(stored.replace(engine.queue, "holdfast") + "\n")
        print(f"recorded {file.stem}: {len(run.events)} events")
    if engine.settings.payloads_folder.exists():
        shutil.copytree(
            engine.settings.payloads_folder, PAYLOADS, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True
        )


def _without_traces(value: Any) -> Any:
    """Stack traces name the files of the machine that recorded them, identities its name."""
    if isinstance(value, dict):
        kept = {key: _without_traces(item) for key, item in value.items() if key != "stackTrace"}
        return {**kept, "identity": "worker"} if "@" in str(kept.get("identity", "")) else kept
    return [_without_traces(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    with (  # histories name no machine
        patch("holdfast.client.client.get_login_name", lambda: "recorder"),
        patch("holdfast.client.turn.get_login_name", lambda: "recorder"),
        patch("holdfast.client.session.get_login_name", lambda: "recorder"),
    ):
        asyncio.run(record())
