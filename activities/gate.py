"""The gate: the one judgement on a call, made when it is validated and made again where it executes.

It looks the tool up, reads the arguments, asks the tool what a person should see, and lets policy speak. What breaks
on the way becomes a rejection of this one call, never an exception (S5, S6, S7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holdfast.activities.catalogue.registry import BUILT_IN, Entry, Registry
from holdfast.activities.catalogue.schemas import InvalidArguments
from holdfast.activities.policy.commands import as_understood
from holdfast.activities.policy.deciding import Policy
from holdfast.activities.policy.loading import load_policy
from holdfast.activities.policy.rules import Answer
from holdfast.activities.preparing import Prepared, prepare, subject_in, verdict_of
from holdfast.activities.running import contained
from holdfast.approvals import ApprovalId, Decision, Outcome
from holdfast.calls import CallRequest
from holdfast.content import CallError, said, shorten
from holdfast.errors import BadInput
from holdfast.modes import PERMITTED, Mode
from holdfast.suggestions import did_you_mean
from holdfast.tools import Invocation
from holdfast.verdicts import Ask, Bound, Reject, Verdict

ARGUMENTS_LIMIT = 1_048_576
"""Bytes of one call's arguments."""
JUDGE_SECONDS = 20.0
"""What one call's validation may take: a tool's own checks are other people's code, and may hang."""


class Judgement(NamedTuple):
    """A verdict, and, when the call could run, the invocation it is about."""

    verdict: Verdict
    invocation: Invocation | None = None


@dataclass(frozen=True)
class Circumstances:
    """What of its turn a call is judged by."""

    seen: Mapping[str, str] = field(default_factory=dict)
    """Files as the turn last read or wrote them, by their digests."""
    mode: Mode = Mode.DEFAULT
    interactive: bool = True


class Gate:
    """Judges calls with one worker's registry and policy."""

    def __init__(
        self,
        registry: Registry,
        workspace: Path,
        policy: Policy | None = None,
        modes: Collection[Mode] = PERMITTED,
    ) -> None:
        self._registry = registry
        self._policy = policy or load_policy(())
        self._modes = modes
        self.workspace = workspace
        self.catalogue = registry.digest
        self.rules = self._policy.digest

    async def judge(self, request: CallRequest, of: Circumstances | None = None) -> Judgement:
        """The verdict on one call. A tool that hangs or breaks costs its own call, and no more."""
        entry = self._registry.get(request.tool)
        if entry is None:
            return _reject("tool_not_registered", self._unknown(request.tool))
        name = request.tool
        judging = asyncio.create_task(contained(self._judge(entry, request, of or Circumstances())))
        try:
            await asyncio.wait({judging}, timeout=JUDGE_SECONDS)
        finally:
            judging.cancel()
        if not judging.done():
            return _reject("validation_failed", f"{name!r} took over {JUDGE_SECONDS:g} seconds to be prepared")
        if judging.cancelled():
            return _reject("validation_failed", f"{name!r} cancelled its own preparation")
        error = judging.exception()
        if error is not None:
            return _reject(type(error).__name__, f"{name!r} could not be prepared: {said(error)}")
        return judging.result()

    async def _judge(self, entry: Entry, request: CallRequest, of: Circumstances) -> Judgement:
        name = entry.declaration.name
        try:
            size = len(request.model_dump_json().encode())
            if size > ARGUMENTS_LIMIT:
                return _reject(
                    "invalid_tool_params",
                    f"The arguments of {name!r} take {size:,} bytes; the limit is {ARGUMENTS_LIMIT:,}. "
                    "Pass large content in smaller pieces or by file.",
                )
            prepared = await prepare(entry, request.arguments, self.workspace)
            if stale := _stale(prepared.bound, of.seen):
                message = f"{stale!r} has changed since it was read: read it again, then decide anew"
                return _reject("file_changed", message)
            judgement = await self._ruled(entry, prepared, of)
            judgement.verdict.model_dump_json()  # what cannot be written down must fail here, not for the whole batch
        except ValueError as error:
            return _reject("invalid_tool_params", f"Invalid arguments for {name!r}: {said(error, _limit(error))}")
        return judgement

    async def _ruled(self, entry: Entry, prepared: Prepared, of: Circumstances) -> Judgement:
        """Let the policy speak. A command that a rule allows runs as it was understood, or is asked about (S30)."""
        mode = of.mode if of.mode in self._modes else Mode.DEFAULT
        subject = subject_in(self.workspace, prepared)
        ruling = self._policy.rule_on(subject, mode)
        if ruling and ruling.decision is Answer.ALLOW and subject.command is not None and not ruling.anything:
            understood = as_understood(subject.command)
            if understood is None or (understood != subject.command and entry.source != BUILT_IN):
                ruling = None  # only our own shell is known to run what it is given
            elif understood != subject.command:
                arguments = {**prepared.bound.arguments, "command": understood}
                prepared = await prepare(entry, arguments, self.workspace)
        return Judgement(verdict_of(prepared, ruling, interactive=of.interactive), prepared.invocation)

    def _unknown(self, name: str) -> str:
        hint = did_you_mean(name, [entry.declaration.name for entry in self._registry.entries])
        missing = ", ".join(dict.fromkeys(problem.source for problem in self._registry.problems))
        left_out = f"Some tools are not available, from: {shorten(missing, 300)}." if missing else ""
        return " ".join(filter(None, (f"No tool is called {shorten(name, 100)!r}.", hint, left_out)))


def covers(decision: Decision | None, verdict: Ask, *, turn_id: str, call_id: str) -> bool:
    """Does this decision allow exactly this call of this turn, as this worker would run it (S22)?"""
    if decision is None or decision.outcome is not Outcome.PROCEED_ONCE or decision.digest != verdict.bound.digest:
        return False
    try:
        approval = ApprovalId.parse(decision.approval_id)
    except BadInput:
        return False
    return (approval.turn, approval.call) == (turn_id, call_id)


def as_shown(approved: Bound, now: Bound, seen: Mapping[str, str]) -> bool:
    """Are the files that a call would change as they were when a person was shown them, or as the turn left them?"""
    return all(digest in (approved.basis.get(path), seen.get(path)) for path, digest in now.basis.items())


def _stale(bound: Bound, seen: Mapping[str, str]) -> str | None:
    """A file the call would change that is not as the turn last saw it."""
    return next((path for path, digest in bound.basis.items() if seen.get(path, digest) != digest), None)


def _reject(kind: str, message: str) -> Judgement:
    return Judgement(Reject(error=CallError(type=kind, message=message)))


def _limit(error: ValueError) -> int:
    """Our own words are as long as they need to be; a tool's are cut."""
    return 4_000 if isinstance(error, InvalidArguments) else 1_000
