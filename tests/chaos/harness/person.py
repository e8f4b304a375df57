"""The person at the inbox: approves what is asked, and of what nobody knows finds out the truth before answering."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from holdfast import Holdfast, HoldfastError
from holdfast.domain.approvals.approval import ApprovalId
from holdfast.domain.base import Data
from holdfast.domain.turn.approval_view import ApprovalView
from tests.chaos.harness.effects import Looking, Truth
from tests.chaos.harness.plan import PlannedCall

LOOK_SECONDS = 0.25
AGAIN_SECONDS = 8.0
"""After which a decision is sent once more, if what it was about still waits. The same decision counts once."""
UNKNOWN = "outcome_unknown"
DONE, AGAIN, FAIL = "respond", "proceed_once", "cancel"


class Question(Data):
    """Something of which nobody knew, and what was said to it."""

    approval_id: str
    label: str
    truth: Truth
    answer: str


def answer_to(truth: Truth) -> str:
    """What a careful person says: done is done, nothing is run again, and a share is nothing to build on."""
    if truth.count:
        return DONE
    return FAIL if truth.shares else AGAIN


class Person:
    """Answers everything, until the harness ends."""

    def __init__(self, holdfast: Holdfast, looking: Looking) -> None:
        self._holdfast = holdfast
        self._looking = looking
        self._calls: dict[str, PlannedCall] = {}
        self._answers: dict[str, str] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self.questions: list[Question] = []
        self.approved = 0
        self.unsettled: set[str] = set()
        """Questions that came while an attempt at the same call still ran."""
        self.refused: Counter[str] = Counter()
        """Decisions that did not count, by the reason."""

    def expect(self, call: PlannedCall) -> None:
        """This call may be asked about."""
        self._calls[call.label] = call

    async def sit(self) -> None:
        """Look at the inbox again and again."""
        while True:
            with suppress(HoldfastError):  # the server is away
                for item in await self._holdfast.list_approvals():
                    self._take_up(item)
            await asyncio.sleep(LOOK_SECONDS)

    async def leave(self) -> None:
        """Stop answering."""
        for task in tuple(self._busy.values()):
            task.cancel()
        await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def _take_up(self, item: ApprovalView) -> None:
        if item.approval_id in self._busy:
            return
        task = asyncio.create_task(self._answer(item))
        self._busy[item.approval_id] = task

    async def _answer(self, item: ApprovalView) -> None:
        try:
            outcome = await self._decided(item)
            if outcome is None:
                return
            text = f"done {_label(item)}, as was found out" if outcome == DONE else None
            await self._holdfast.decide(
                item.approval_id, outcome, digest=item.digest, content=text, decision_id=f"by-{item.approval_id}"
            )
            await asyncio.sleep(AGAIN_SECONDS)
        except HoldfastError as error:
            code = getattr(error, "code", None)
            if code:
                self.refused[str(code)] += 1
                await asyncio.sleep(AGAIN_SECONDS)  # the inbox is a little behind
        finally:
            self._busy.pop(item.approval_id, None)

    async def _decided(self, item: ApprovalView) -> str | None:
        """What is said to it: the same when it is said again. None when it is too early to say."""
        if item.kind != UNKNOWN:
            self.approved += item.approval_id not in self._answers
            self._answers[item.approval_id] = AGAIN
            return AGAIN
        if item.approval_id not in self._answers:
            call = self._calls[_label(item)]
            truth = await asyncio.to_thread(self._looking.truth, call)
            if truth.goes_on:
                self.unsettled.add(item.approval_id)
                return None
            answer = self._answers[item.approval_id] = answer_to(truth)
            self.questions.append(Question(approval_id=item.approval_id, label=call.label, truth=truth, answer=answer))
        return self._answers[item.approval_id]


def _label(item: ApprovalView) -> str:
    address = ApprovalId.parse(item.approval_id)
    return f"{address.turn}-{address.call}"
