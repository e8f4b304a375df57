"""Live output: a small tail with every heartbeat, more of it by asking, and nothing of it in the history (S32)."""

from __future__ import annotations

import asyncio

from holdfast import LiveOutput, TurnInput
from holdfast.domain.calls.tool import Run
from holdfast.testing import FakeTool, build_request, wait_until
from tests.support.engine import Engine


async def test_S32_the_last_100_000_characters_are_had_by_asking_the_worker(engine: Engine) -> None:
    """Once at size: a megabyte, of which 100,000 characters are kept and a few thousand travel with heartbeats."""
    ending = asyncio.Event()

    async def speak(arguments: dict[str, object], run: Run) -> str:
        for number in range(100_000):
            run.write(f"\x1b[31mline {number}\n")
        await ending.wait()
        return "said"

    async with engine.worker(FakeTool("speak", speak)):
        turn = await engine.start(TurnInput(batches=((build_request("speak"),),)))

        async def spoken() -> LiveOutput | None:
            found = await turn.fetch_output("b1c1")
            return found if found and found.total else None

        found: LiveOutput = await wait_until(spoken)
        events = len(await engine.history(turn))
        whole = await turn.fetch_output("b1c1")
        [call] = (await turn.fetch_view()).batch.calls  # type: ignore[union-attr]
        assert len(await engine.history(turn)) == events, "asking adds nothing to the history"
        ending.set()
        await turn.result()
    assert whole is not None
    assert found.total == whole.total > 1_000_000
    assert 60_000 < len(whole.tail) <= 100_000, "100,000 with the escape codes that were taken out"
    assert whole.tail.endswith("line 99998\nline 99999\n")
    assert "\x1b" not in whole.tail
    assert (whole.styled or "").endswith("\x1b[31mline 99999\n\x1b[0m")
    assert (call.live_styled or "").endswith("\x1b[31mline 99999\n\x1b[0m")
    assert len((call.live_output or "").encode()) <= 8_192
    assert await turn.fetch_output("b1c1") is None, "it does not run any more"


async def test_S32_a_worker_that_does_not_answer_leaves_the_tail_of_its_last_heartbeat(engine: Engine) -> None:
    async def speak(arguments: dict[str, object], run: Run) -> str:
        run.write("x" * 20_000)
        await asyncio.Event().wait()
        return ""

    tool = FakeTool("speak", speak)
    async with engine.worker(tool):
        turn = await engine.start(TurnInput(batches=((build_request("speak"),),)))
        found: LiveOutput = await wait_until(lambda: turn.fetch_output("b1c1"))
        assert found.total == 20_000
        await turn.cancel()
        await turn.result()
