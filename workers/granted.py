"""The standing answers of all running turns: asked of each turn, within a bound, and revoked."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

from temporalio.service import RPCError

from holdfast.client import Holdfast
from holdfast.errors import HoldfastError, ServerUnavailable
from holdfast.grants import Grant
from holdfast.turns import WORKFLOW

AT_ONCE = 20
SECONDS = 10.0
"""For all turns together."""
_ADDRESS = re.compile(r"(?P<turn>.+)/(?P<grant>g[0-9]{1,9})", re.DOTALL)


@dataclass
class Found:
    """Grants by turn, and the turns that could not be asked."""

    grants: dict[str, tuple[Grant, ...]] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)

    @property
    def named(self) -> list[tuple[str, Grant]]:
        """Each with its address across all turns."""
        return [(f"{turn}/{grant.id}", grant) for turn, grants in self.grants.items() for grant in grants]


async def of_running_turns(holdfast: Holdfast) -> Found:
    """What stands in every turn that runs, the newest turn first."""
    query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running'"
    try:
        turns = [item.id async for item in holdfast.client.list_workflows(query)]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error
    answers: dict[str, tuple[Grant, ...]] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(turn: str) -> None:
        async with room:
            with suppress(HoldfastError):
                answers[turn] = await holdfast.turn(turn).grants()

    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*map(ask, turns))
    known = {turn: answers[turn] for turn in turns if turn in answers}
    return Found(known, [turn for turn in turns if turn not in answers])


def address_of(text: str) -> tuple[str, str] | None:
    """The turn and the grant that `TURN/g1` names; None for the name of a kept answer."""
    found = _ADDRESS.fullmatch(text)
    return (found["turn"], found["grant"]) if found else None
