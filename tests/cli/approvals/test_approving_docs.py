"""The page on approving does what it says: every block with a test mark is executed, every refusal is told."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Holdfast, HoldfastPlugin, Settings, TurnInput
from holdfast.testing import build_request, wait_until
from tests.cli.support import SECONDS, Home
from tests.cli.test_readme import _address, _shell
from tests.support.pages import ROOT, read_blocks, read_page
from tests.support.waiting import waiting

PAGE = "approving"
REFUSALS = re.compile(r'DecisionRefused\(\s*"(\w+)"')


@pytest.mark.needs("git")
def test_S21_the_story_of_the_page_works_as_written(home: Home) -> None:
    blocks = read_blocks(PAGE)
    _shell(home, blocks["start"])
    home.seen("deploy", call="b1c4", after="awaiting_approval")
    shown = _shell(home, blocks["look"])
    sample = re.search(r"```\n(deploy/b1c1/1.*?)```", read_page(PAGE), re.DOTALL)
    assert sample
    assert sample[1] in shown

    stands = _shell(home, blocks["always"])
    assert "allows from now on: `git status` with further words that are known to be harmless" in stands
    assert "deploy/g1   allows" in stands
    assert home.seen("deploy", call="b1c2", after="scheduled")["actor"] == "person"
    assert "deploy/g1: revoked" in _shell(home, blocks["revoke"])
    home.seen("deploy", call="b1c2", before="scheduled", after="awaiting_approval")

    assert "+Two" in _shell(home, blocks["modify"])
    assert "turn completed" in _shell(home, blocks["deny"])
    assert (home.workspace / "notes.txt").read_text() == "Two\n"


def test_S23_the_stock_command_gives_a_standing_answer(home: Home) -> None:
    blocks = read_blocks(PAGE)
    _shell(home, blocks["signal_start"])
    home.seen("clocks", after="awaiting_approval")
    _shell(home, blocks["signal"], TEMPORAL_ADDRESS=_address(home))
    assert home.seen("clocks", kind="turn", after="granted")["by"] == "me"
    home.seen("clocks", kind="turn", after="completed")


async def test_the_python_of_the_page_settles_a_turn(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks(PAGE)["python"], names)
    client = await Client.connect(_address(home), plugins=[HoldfastPlugin(Settings(data=home.data))])
    holdfast = Holdfast(client)
    calls = (
        build_request("shell", command="echo settled"),
        build_request("write_file", path="settled.txt", content="x\n"),
    )
    async with asyncio.timeout(SECONDS):
        turn = await holdfast.start(TurnInput(batches=(calls,)))
        await wait_until(lambda: waiting(turn, 2))
        await names["settle"](holdfast, turn.id)
        result = await turn.result()
    assert [response.status for response in result.responses] == ["success", "success"]
    assert (home.workspace / "settled.txt").read_text() == "Checked.\n"


def test_every_code_of_a_refused_decision_is_told() -> None:
    source = "".join(path.read_text() for path in (ROOT / "src" / "holdfast").rglob("*.py"))
    told = read_page(PAGE) + read_page("approvers")
    codes = set(REFUSALS.findall(source))
    assert len(codes) > 15
    assert {code for code in codes if f"`{code}`" not in told} == set()
