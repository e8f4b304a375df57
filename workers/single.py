"""One call from the command line: follow it aside, then print what a model would read, and nothing else."""

from __future__ import annotations

import asyncio
import sys

from holdfast.client import Holdfast, Turn
from holdfast.content import Response, plain
from holdfast.work import LiveOutput
from holdfast.workers import render
from holdfast.workers.commands.codes import FAILED, INTERRUPTED
from holdfast.workers.commands.options import emit, interactive, note
from holdfast.workers.following import interruption, mention_silence, unless
from holdfast.workers.live import follow_live
from holdfast.workers.questions import how_to_decide


async def call_and_wait(holdfast: Holdfast, turn: Turn, json: bool) -> int:
    """Wait for the one response of a turn; the exit code."""
    stays = await (follow_live(holdfast, turn) if interactive() and not json else _follow_aside(turn))
    if not stays:
        note(f"Detached; turn {turn.id} goes on. Come back with: holdfast turn watch {render.quoted(turn.id)}")
        return INTERRUPTED
    result = await turn.result()
    [response] = result.responses
    if json:
        emit({"turn": turn.id, "response": response.model_dump(mode="json")})
    else:
        _print(response)
    return 0 if response.status == "success" else FAILED


async def _follow_aside(turn: Turn) -> bool:
    """Say on standard error what is waited for; False when the viewer left before the end."""
    asked: set[str] = set()

    async def work() -> None:
        async for item in turn.watch():
            silence.cancel()
            if not isinstance(item, LiveOutput) and item.approval_id and item.approval_id not in asked:
                asked.add(item.approval_id)
                note(f"waits: {how_to_decide(item.approval_id, item.asks)}")

    silence = asyncio.create_task(mention_silence(turn))
    with interruption() as left:
        try:
            return await unless(left, work())
        finally:
            silence.cancel()


async def output_of(turn: Turn, call_id: str) -> LiveOutput:
    """What a call has put out so far, or what came of it."""
    live = await turn.output(call_id)
    if live is not None:
        return live
    call = await turn.call(call_id)
    text = plain("\n".join(part.text for part in call.response.parts)) if call.response else ""
    return LiveOutput(call_id=call_id, tail=text, total=len(text))


def _print(response: Response) -> None:
    if response.error:
        note(f"{response.status}: {plain(response.error.message)}")
    for part in response.parts:
        text = plain(part.text) if sys.stdout.isatty() else part.text
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()
