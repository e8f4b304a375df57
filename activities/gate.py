"""The gate: the one judgement on a call, made when it is validated and made again where it executes.

It looks the tool up, reads the arguments, asks the tool what a person should see, and lets policy speak. What breaks
on the way becomes a rejection of this one call, never an exception (S5, S6, S7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.activities.catalogue.registry import Entry, Registry
from holdfast.activities.catalogue.schemas import InvalidArguments
from holdfast.activities.running import contained
from holdfast.approvals import ApprovalId, Decision, Outcome, call_digest
from holdfast.calls import CallRequest
from holdfast.content import CallError, encodable, said, shorten
from holdfast.errors import BadInput
from holdfast.suggestions import did_you_mean
from holdfast.tools import Invocation
from holdfast.verdicts import Allow, Ask, Bound, Reject, Verdict

ARGUMENTS_LIMIT = 1_048_576
"""Bytes of one call's arguments."""
JUDGE_SECONDS = 20.0
"""What one call's validation may take: a tool's own checks are other people's code, and may hang."""


class Judgement(NamedTuple):
    """A verdict, and, when the call could run, the invocation it is about."""

    verdict: Verdict
    invocation: Invocation | None = None


class Gate:
    """Judges calls with one worker's registry and policy."""

    def __init__(self, registry: Registry, workspace: Path) -> None:
        self._registry = registry
        self.workspace = workspace
        self.catalogue = registry.digest

    async def judge(self, request: CallRequest, seen: Mapping[str, str] | None = None) -> Judgement:
        """The verdict on one call. A tool that hangs or breaks costs its own call, and no more.

        `seen` are the files of the turn as it last read or wrote them.
        """
        entry = self._registry.get(request.tool)
        if entry is None:
            return _reject("tool_not_registered", self._unknown(request.tool))
        name = request.tool
        judging = asyncio.create_task(contained(self._judge(entry, request, seen or {})))
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

    async def _judge(self, entry: Entry, request: CallRequest, seen: Mapping[str, str]) -> Judgement:
        name = entry.declaration.name
        try:
            size = len(request.model_dump_json().encode())
            if size > ARGUMENTS_LIMIT:
                return _reject(
                    "invalid_tool_params",
                    f"The arguments of {name!r} take {size:,} bytes; the limit is {ARGUMENTS_LIMIT:,}. "
                    "Pass large content in smaller pieces or by file.",
                )
            judgement = await self._bind(entry, request)
            if stale := _stale(judgement.verdict, seen):
                return _reject(
                    "file_changed", f"{stale!r} has changed since it was read: read it again, then decide anew"
                )
            judgement.verdict.model_dump_json()  # what cannot be written down must fail here, not for the whole batch
        except ValueError as error:
            return _reject("invalid_tool_params", f"Invalid arguments for {name!r}: {said(error, _limit(error))}")
        return judgement

    async def _bind(self, entry: Entry, request: CallRequest) -> Judgement:
        tool, declaration = entry.tool, entry.declaration
        arguments, given = entry.schema.check(request.arguments)
        invocation = tool.build(given, self.workspace)
        if not isinstance(invocation, Invocation):
            raise TypeError(f"its build gave {invocation!r}, and no Invocation")
        bound = Bound(
            tool=declaration.ref(),
            title=shorten(invocation.describe(), 500),
            arguments=arguments,
            digest=call_digest(
                tool=declaration.name, server=declaration.server, definition=declaration.digest, arguments=arguments
            ),
            concurrency_safe=_safe(invocation),
            timeout_seconds=tool.timeout_seconds,
            heartbeat_seconds=tool.heartbeat_seconds,
            basis={encodable(path): digest for path, digest in (await asyncio.to_thread(invocation.basis)).items()},
        )
        confirmation = await invocation.should_confirm()
        if confirmation is None:
            return Judgement(Allow(rule="default: the tool needs no confirmation", bound=bound), invocation)
        shown = confirmation.model_copy(update={"arguments": arguments})
        return Judgement(
            Ask(rule="default: the tool asks for confirmation", bound=bound, confirmation=shown), invocation
        )

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


def _stale(verdict: Verdict, seen: Mapping[str, str]) -> str | None:
    """A file the call would change that is not as the turn last saw it."""
    basis = verdict.bound.basis if isinstance(verdict, Allow | Ask) else {}
    return next((path for path, digest in basis.items() if seen.get(path, digest) != digest), None)


def _reject(kind: str, message: str) -> Judgement:
    return Judgement(Reject(error=CallError(type=kind, message=message)))


def _safe(invocation: Invocation) -> bool:
    try:
        return bool(invocation.concurrency_safe())
    except Exception:
        return False


def _limit(error: ValueError) -> int:
    """Our own words are as long as they need to be; a tool's are cut."""
    return 4_000 if isinstance(error, InvalidArguments) else 1_000
