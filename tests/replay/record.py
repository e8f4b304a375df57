"""Records the history of every play that has none yet: `make histories`.

A stored history is never overwritten: it stands for turns that may still be running on the code that made it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.engine import new_engine
from tests.support.server import start_server
from tests.support.turns import PLAYS, RULES, TOOLS

HISTORIES = Path(__file__).parent / "histories"
PAYLOADS = HISTORIES / "payloads"
OFTEN = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=200")
"""A turn that continues as new does so early: its first run is what is stored."""


async def record() -> None:
    """Play what is missing, store its history and the payloads it keeps outside."""
    HISTORIES.mkdir(exist_ok=True)
    missing = {name: play for name, play in PLAYS.items() if not (HISTORIES / f"{name}.json").exists()}
    with tempfile.TemporaryDirectory() as folder:
        async with await start_server(Path(folder) / "temporal.db", OFTEN) as server:
            address = server.client.service_client.config.target_host
            for name, play in missing.items():
                async with new_engine(address, Path(folder) / name) as engine:
                    engine.with_rules(RULES)
                    async with engine.worker(*TOOLS):
                        turn = await play(engine)
                        await turn.result()
                    handle = engine.client.get_workflow_handle(turn.id)
                    first = (await handle.describe()).raw_description.workflow_execution_info.first_run_id
                    history = await engine.client.get_workflow_handle(turn.id, run_id=first).fetch_history()
                    stored = json.dumps(_without_traces(history.to_json_dict()), indent=1)
                    (HISTORIES / f"{name}.json").write_text(stored.replace(engine.queue, "holdfast") + "\n")
                    if engine.settings.payloads.exists():
                        shutil.copytree(engine.settings.payloads, PAYLOADS, dirs_exist_ok=True)
                    print(f"recorded {name}: {len(history.events)} events")


def _without_traces(value: Any) -> Any:
    """Stack traces name the files of the machine that recorded them."""
    if isinstance(value, dict):
        return {key: _without_traces(item) for key, item in value.items() if key != "stackTrace"}
    return [_without_traces(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    with (  # histories name no machine
        patch("holdfast.client.whoami", lambda: "recorder"),
        patch("holdfast.turn.whoami", lambda: "recorder"),
        patch("holdfast.session.whoami", lambda: "recorder"),
    ):
        asyncio.run(record())
