"""The grants of all running turns and sessions: queried within a time limit, and revoked."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field

from temporalio.client import WorkflowExecution
from temporalio.service import RPCError

from holdfast.client.client import Holdfast
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.turn.ids import ID_MARK, find_family
from holdfast.errors import HoldfastError, RequestRefused, ServerUnavailable
from holdfast.names import SESSION_WORKFLOW, TURN_WORKFLOW

CONCURRENT_QUERIES = 20
ASK_SECONDS = 10.0
"""The time limit for all turns together."""
_ADDRESS = re.compile(r"(?P<turn>.+)/(?P<grant>g[0-9]{1,9})", re.DOTALL)


@dataclass
class RunningGrants:
    """Grants by turn, and the turns that did not answer."""

    grants: dict[str, tuple[Grant, ...]] = field(default_factory=dict)
    unanswered: list[str] = field(default_factory=list)

    @property
    def addressed_grants(self) -> list[tuple[str, Grant]]:
        """Each grant with its id across all turns."""
        return [(f"{turn}/{grant.id}", grant) for turn, grants in self.grants.items() for grant in grants]


async def fetch_running_grants(holdfast: Holdfast) -> RunningGrants:
    """The grants of every running turn, and of every session between its turns, the newest first."""
    query = f"WorkflowType IN ('{TURN_WORKFLOW}', '{SESSION_WORKFLOW}') AND ExecutionStatus = 'Running'"
    try:
        found = [item async for item in holdfast.client.list_workflows(query)]
    except RPCError as error:
        raise ServerUnavailable(f"the turns cannot be listed: {error.message}") from error
    answers: dict[str, tuple[Grant, ...]] = {}
    room = asyncio.Semaphore(CONCURRENT_QUERIES)
    turns = [item.id for item in found]
    busy = {find_family(item.id) for item in found if item.workflow_type == TURN_WORKFLOW}

    async def fetch_grants(item: WorkflowExecution) -> None:
        async with room:
            with suppress(HoldfastError):
                if item.workflow_type == TURN_WORKFLOW:
                    answers[item.id] = await holdfast.get_turn(item.id).fetch_grants()
                else:  # the running turn of a session lists its grants
                    answers[item.id] = () if item.id in busy else await holdfast.get_session(item.id).fetch_grants()

    with suppress(TimeoutError):
        async with asyncio.timeout(ASK_SECONDS):
            await asyncio.gather(*map(fetch_grants, found))
    known = {turn: answers[turn] for turn in turns if turn in answers}
    return RunningGrants(known, [turn for turn in turns if turn not in answers])


async def revoke_grant(holdfast: Holdfast, owner: str, grant: str, by: str) -> Grant:
    """Revoke a grant, in the turn where it was given or in the session that holds it now."""
    try:
        return await holdfast.get_turn(owner).revoke(grant, by)
    except RequestRefused as refusal:
        # Delegated turns number their grants separately.
        of_session = owner.removeprefix(f"{find_family(owner)}{ID_MARK}").isdecimal()
        if refusal.code == "at_work" or (refusal.code == "ended" and of_session):
            return await holdfast.get_session(find_family(owner)).revoke(grant, by)
        raise


def parse_address(text: str) -> tuple[str, str] | None:
    """The turn and the grant that `TURN/g1` names; None for the name of a saved grant."""
    found = _ADDRESS.fullmatch(text)
    return (found["turn"], found["grant"]) if found else None
