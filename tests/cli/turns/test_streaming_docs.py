"""The page on streaming does what it says: every block with a test mark is executed, every refusal is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from temporalio.client import Client

from holdfast import CallRequest, Holdfast, HoldfastPlugin
from holdfast.testing import build_request
from tests.cli.support import SECONDS, Home
from tests.cli.test_readme import _address, _shell
from tests.support.pages import ROOT, read_blocks, read_page, read_samples

PAGE = "streaming"
REFUSALS = re.compile(r'RequestRefused\(\s*"(\w+)"')


def _words(shown: str) -> list[str]:
    """Lines without what differs from run to run."""
    return [re.sub(r"^\d\d:\d\d:\d\d|\d+\.\d s", "", line) for line in shown.splitlines()]


def test_S12_the_streamed_turn_of_the_page_is_watched_as_it_is_shown(home: Home) -> None:
    shown = _words(_shell(home, read_blocks(PAGE)["model"]))
    assert [line for line in _words(read_samples(PAGE)["model"]) if line not in shown] == []


def test_S15_the_failing_command_of_the_page_cancels_the_one_beside_it(home: Home) -> None:
    blocks = read_blocks(PAGE)
    _shell(home, blocks["siblings"])
    home.seen("steps", call="b1c2", after="awaiting_approval")
    said = re.search(r"`(Cancelled: parallel .*)`", read_page(PAGE))
    assert said
    assert said[1] in _shell(home, blocks["abort"])


def test_S11_calls_are_added_as_on_the_page(home: Home) -> None:
    blocks = read_blocks(PAGE)
    assert "has 2 calls and is complete" in _shell(home, blocks["add"])
    shown = _shell(home, blocks["attempt"])
    assert "batch b2 discarding 1 call: The connection broke" in shown
    assert "turn completed" in shown


async def test_S11_the_python_of_the_page_streams_a_model(home: Home) -> None:
    names: dict[str, Any] = {}
    exec(read_blocks(PAGE)["python"], names)
    attempts = 0

    async def model() -> AsyncIterator[CallRequest]:
        nonlocal attempts
        attempts += 1
        yield build_request("list_directory")
        if attempts == 1:
            raise ConnectionError("gone")
        yield build_request("read_file", path="no such file")

    client = await Client.connect(_address(home), plugins=[HoldfastPlugin()])
    async with asyncio.timeout(SECONDS):
        texts = await names["answer"](Holdfast(client), model)
    assert (attempts, len(texts)) == (2, 2)
    assert "no such file" in texts[1]


def test_S18_the_message_of_the_page_interrupts(home: Home) -> None:
    blocks = read_blocks(PAGE)
    _shell(home, blocks["run"])
    home.seen("work", call="b1c2", after="awaiting_approval")
    shown = _shell(home, blocks["interrupt"])
    assert "turn interrupted: Build it, but do not publish it yet" in shown
    assert "The user interrupted with a new message" in shown
    assert "Built, and left where it is." in shown


def test_every_code_of_calls_that_are_refused_is_told() -> None:
    folder = ROOT / "src" / "holdfast" / "domain" / "turn"
    files = ("batch_queue.py", "call_streams.py", "turn_io.py", "turn_state.py")
    codes = {code for file in files for code in REFUSALS.findall((folder / file).read_text())}
    told = read_page(PAGE)
    of_others = {"empty_turn", "model_and_batches", "no_prompt", "no_model", "not_yours", "not_queued"}
    assert len(codes) > 10
    assert {code for code in codes - of_others if f"`{code}`" not in told} == set()


def test_every_answer_of_a_stop_is_what_calls_say() -> None:
    sources = [*(ROOT / "src" / "holdfast").rglob("*.py"), *(ROOT / "workflows").glob("*.py")]
    source = "".join(path.read_text() for path in sources)
    stops = read_page(PAGE).partition("## Stopping")[2]
    answers = re.findall(r"\| `((?:The) [^`]+)`", stops)
    assert len(answers) == 5
    assert [answer for answer in answers if answer not in source] == []
