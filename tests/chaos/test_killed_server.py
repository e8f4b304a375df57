"""SIGKILL of the Temporal server itself: on the same database, the turn goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from holdfast import Settings, TurnInput
from holdfast.testing import build_request, script_model, wait_until
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from tests.support.engine import new_engine
from tests.support.processes import worker_process
from tests.support.waiting import waiting


async def test_S46_a_killed_server_comes_back_on_its_database_and_the_turn_goes_on(tmp_path: Path) -> None:
    server = EmbeddedServer(Settings(data=tmp_path / "data"), port=0)
    try:
        address = (await server.start()).address
        async with new_engine(address, tmp_path) as engine, worker_process(engine):
            script = script_model([build_request("ask"), build_request("read", counter="c")], "Answered.")
            (engine.workspace / "c.begun").touch()
            turn = await engine.start(TurnInput(prompt="go", model=script))
            view = await wait_until(lambda: waiting(turn))
            watcher = turn.watch()
            await anext(watcher)
            os.kill(server.pid, signal.SIGKILL)
            await server.process.wait()
            await server.restart()
            again = await wait_until(lambda: waiting(turn), seconds=40)
            assert again.approvals == view.approvals
            await engine.holdfast.approve(view.approvals[0].approval_id)
            result = await turn.result()
            seen = [item async for item in watcher]
    finally:
        await server.stop()
    assert result.text == "Answered."
    assert [response.text for response in result.responses] == ["done", "done"]
    assert seen, "a watcher outlives the server"
