"""Turns of one command, and what commands leave: their runs on disk, their processes in the system's table."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

from holdfast import Response, Settings, Turn, TurnInput
from holdfast.testing import build_request, wait_until
from tests.support.engine import Engine
from tests.support.marks import alive
from tests.support.waiting import waiting


async def begin(engine: Engine, command: str, **more: float) -> Turn:
    """A turn of this command, approved."""
    turn = await engine.start(TurnInput(batches=((build_request("shell", command=command, **more),),)))
    await approve(engine, turn)
    return turn


async def approve(engine: Engine, turn: Turn) -> None:
    """Approve the one call that waits."""
    [item] = (await wait_until(lambda: waiting(turn))).approvals
    await engine.holdfast.approve(item.approval_id)


async def answer(turn: Turn, seconds: float = 60) -> Response:
    """Its one response."""
    async with asyncio.timeout(seconds):
        [response] = (await turn.result()).responses
    return response


def text_of(response: Response) -> str:
    """What the command said."""
    return "".join(part.text for part in response.parts)


def kind_of(response: Response) -> str:
    """Success, or the type of its error."""
    return response.error.type if response.error else response.status


def left(settings: Settings) -> list[Path]:
    """The folders of runs that nobody has forgotten."""
    with suppress(FileNotFoundError):
        return list(settings.runs_folder.iterdir())
    return []


def supervisors(settings: Settings) -> list[int]:
    """The supervisors of runs that have begun."""
    return [json.loads((run / "run.json").read_text())["supervisor"] for run in left(settings)]


class Unlike:
    """Processes known by a word of theirs that nobody else has: whatever marks they bore they may have shed."""

    def __init__(self) -> None:
        self.seconds = f"600.{random.randrange(10**9):09}"
        """For `sleep`."""

    def living(self) -> list[int]:
        """Those that there are."""
        word = self.seconds.encode()
        entries = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [pid for pid in entries if word in _words(pid) and alive(pid)]


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []
