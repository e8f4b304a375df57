"""Judging all calls of a batch, and sharing out among them the grants that are good for a number of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

from holdfast.activities.gate.gate import Gate
from holdfast.activities.gate.verdict import CallContext
from holdfast.domain.calls.verdicts import Allow, Ask, Verdict
from holdfast.domain.turn.activity_io import CallToValidate


async def judge_calls(gate: Gate, calls: Collection[CallToValidate], call_context: CallContext) -> dict[str, Verdict]:
    """One verdict per call; none for a call that is asked about as it was known to be.

    A grant that is good for two calls answers the first two that it covers, and no third.
    """
    call_context = replace(call_context, grants=gate.select_valid_grants(call_context.grants, call_context.turn_id))
    room = {
        grant.id: grant.decision.uses - grant.used for grant in call_context.grants if grant.decision.uses is not None
    }
    verdicts: dict[str, Verdict] = {}
    left = list(calls)
    while left:
        judged = await asyncio.gather(
            *(gate.judge(one.request, replace(call_context, call_id=one.id), one.change) for one in left)
        )
        verdicts |= {call.id: judgement.verdict for call, judgement in zip(left, judged, strict=True)}
        left = [call for call in left if not _take_grant_use(verdicts[call.id], room)]
        call_context = replace(
            call_context, grants=tuple(grant for grant in call_context.grants if room.get(grant.id, 1) > 0)
        )
    known = {call.id: call.known for call in calls}
    return {
        call_id: verdict for call_id, verdict in verdicts.items() if not _is_known_question(verdict, known[call_id])
    }


def _take_grant_use(verdict: Verdict, room: dict[str, int]) -> bool:
    """Is there room for it in its grant? Then it takes it."""
    grant = verdict.grant if isinstance(verdict, Allow) else None
    if grant is None or grant not in room:
        return True
    room[grant] -= 1
    return room[grant] >= 0


def _is_known_question(verdict: Verdict, digest: str | None) -> bool:
    return digest is not None and isinstance(verdict, Ask) and verdict.bound.digest == digest
