"""Workers that share a data folder, a task queue or a server, and have other tools than each other."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import Effect, Holdfast, HoldfastError, HoldfastPlugin, Run, Settings, TurnInput
from holdfast.plugin.search_attributes import ATTRIBUTES, format_add_commands
from holdfast.testing import FakeTool, build_request, decide_all, start_temporal, wait_until
from tests.support.engine import Engine
from tests.support.server import address_of
from tests.support.services.door import REFUSAL, guard

TURNS = 12
SECONDS = 60.0
OPERATOR_SERVICE = "/temporal.api.operatorservice."


def sign_with(name: str) -> FakeTool:
    """A tool that must run once, and so stays on its host; its result says whose it is."""

    async def body(arguments: dict[str, Any], run: Run) -> str:
        return name

    return FakeTool("sign", body, effect=Effect.ONCE)


async def test_workers_of_two_task_queues_on_one_data_folder_never_get_each_others_calls(engine: Engine) -> None:
    other_queue = f"{engine.queue}-deploys"
    clients = [await engine.connect(sign_with(name)) for name in ("first", "second")]
    async with (
        asyncio.timeout(SECONDS),
        Worker(clients[0], task_queue=engine.queue),
        Worker(clients[1], task_queue=other_queue),
    ):
        for client, queue, expected in zip(clients, (engine.queue, other_queue), ("first", "second"), strict=True):
            holdfast = Holdfast(client, task_queue=queue)
            for _ in range(TURNS):
                turn = await holdfast.start(TurnInput(batches=((build_request("sign"),),)))
                await decide_all(holdfast, turn)
                assert [response.text for response in (await turn.result()).responses] == [expected]


@pytest.fixture
def plugin(tmp_path: Path) -> HoldfastPlugin:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return HoldfastPlugin(Settings(data=tmp_path / "data", workspace=workspace))


async def test_a_plugin_in_a_worker_of_ones_own_registers_what_a_stock_server_lacks(plugin: HoldfastPlugin) -> None:
    async with await start_temporal() as server, asyncio.timeout(SECONDS):
        client = await Client.connect(server.client.service_client.config.target_host, plugins=[plugin])
        async with Worker(client, task_queue="holdfast"):
            turn = await Holdfast(client).start(TurnInput(batches=((build_request("list_directory"),),)))
            assert [response.status for response in (await turn.result()).responses] == ["success"]


async def test_a_plugin_that_may_not_register_stops_with_the_command_that_does(plugin: HoldfastPlugin) -> None:
    async with await start_temporal() as server, guard(address_of(server), OPERATOR_SERVICE) as address:
        client = await Client.connect(address, plugins=[plugin])
        with pytest.raises(HoldfastError) as raised:
            async with asyncio.timeout(SECONDS):
                await Worker(client, task_queue="holdfast").run()
        told = str(raised.value)
        assert f"are missing in namespace 'default' and could not be added ({REFUSAL})" in told
        assert format_add_commands("default", list(ATTRIBUTES)) in told


async def test_a_worker_with_other_tools_on_the_same_queue_is_reported(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    async with asyncio.timeout(SECONDS), Worker(await engine.connect(sign_with("first")), task_queue=engine.queue):
        await wait_until(lambda: polls(engine.client, engine.queue))
        plugin = HoldfastPlugin(replace(engine.settings, data=engine.settings.data / "other"))
        client = await Client.connect(engine.address, plugins=[plugin], identity="lacks-it")
        async with Worker(client, task_queue=engine.queue):
            assert await wait_until(lambda: found_in(caplog, "has other tools, rules or hooks than this one"))

            async def answer() -> str:
                turn = await engine.start(TurnInput(batches=((build_request("sign"),),), interactive=False))
                return (await turn.result()).responses[0].text

            # Which of the two workers judges a call is for the server to choose.
            texts = [await answer() for _ in range(TURNS)]
            lacking = [text for text in texts if text.startswith("No tool is called 'sign'.")]
            assert all("Workers with other tools, rules or hooks poll the task queue" in text for text in lacking)
            assert lacking


async def polls(client: Client, queue: str) -> bool:
    from holdfast.workers.lookup.task_queues import fetch_queue

    return bool((await fetch_queue(client, queue)).pollers)


async def found_in(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text
