"""Calls that must not run twice: what the ledger knows of one before and after it runs (S31).

An intent is on disk before the call begins, a result after it ended. What a later attempt finds decides: a result is
returned, what goes on by itself is found again, what has not begun is begun, and of the rest nobody knows.

A number alone would not do: it is given again. With the moment at which its process was started it names one process.

Why: docs/decisions/0008-ledger.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.ledger.entry import EffectKey, LedgerEntry, Spending
from holdfast.activities.ledger.ledger import Ledger, LedgerRefused, LedgerUnavailable
from holdfast.activities.process.command import run_to_end
from holdfast.activities.process.proc import read_start_time
from holdfast.domain.calls.tool import Invocation
from holdfast.domain.calls.verdicts import UNFINISHED, ExecutionOutcome, Failed, Finished, Lost
from holdfast.domain.content import CallError, Result
from holdfast.util.redaction import Redacted
from holdfast.util.text import exception_text

_HOLDER = re.compile(r"(?P<host>.*) \(process (?P<pid>[0-9]{1,10})\.(?P<born>[0-9]{1,20})\)", re.DOTALL)


def build_holder() -> str:
    """This process."""
    pid = os.getpid()
    return f"{socket.gethostname()} (process {pid}.{read_start_time(pid) or 0})"


def is_holder_alive(holder: str) -> bool:
    """Is it another process of this host that is still there? Of other hosts nobody here can tell."""
    found = _HOLDER.fullmatch(holder)
    if found is None or found["host"] != socket.gethostname() or holder == build_holder():
        return False
    return read_start_time(int(found["pid"])) == int(found["born"])


def parse_holder_host(holder: str) -> str:
    """Its host, for people."""
    found = _HOLDER.fullmatch(holder)
    return found["host"] if found else holder


T = TypeVar("T")

_OUTCOME_ADAPTER: TypeAdapter[ExecutionOutcome] = TypeAdapter(ExecutionOutcome)
_LOGGER = logging.getLogger(__name__)


class WaitWithHeartbeats(Protocol):
    """Waits for a ledger, which may take seconds, while the activity's heart goes on beating."""

    async def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """What the work gives."""


async def _wait_plainly(work: Coroutine[Any, Any, T], /) -> T:
    return await work


class EffectRunner:
    """The calls of one worker that must not run twice."""

    def __init__(self, ledger: Ledger, wait: WaitWithHeartbeats | None = None) -> None:
        self._ledger = ledger
        self._holder = build_holder()
        self._wait = wait or _wait_plainly

    @property
    def is_shared(self) -> bool:
        """Do workers on all hosts know the same?"""
        return self._ledger.is_shared

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """What is known of it; nothing also when that cannot be told: before anything runs it is asked again."""
        try:
            return await self._wait(self._ledger.find(key))
        except LedgerUnavailable:
            return None

    async def record_spendings(
        self, spendings: Sequence[Spending], *, first: bool = True, with_heartbeats: bool = True
    ) -> Spending | ExecutionOutcome | None:
        """Record that these decisions let this execution run, before it does. None: it may.

        Otherwise the execution that one of them let run before, or why nothing runs: it cannot be recorded. Raises
        where another attempt can tell more than this one. `with_heartbeats`: False while the tool runs,
        whose activity sends heartbeats by itself.
        """
        if not spendings:
            return None
        work = self._ledger.record_spendings(spendings)
        try:
            return await (self._wait(work) if with_heartbeats else work)
        except LedgerUnavailable as error:
            if not first:
                raise build_unfinished(f"whether its approval was used before cannot be read: {error}") from None
            message = f"The call was not run, since it cannot be recorded that its approval was used: {error}"
            return Failed(error=CallError(type="ledger_unavailable", message=message))

    async def run(
        self,
        key: EffectKey,
        invocation: Invocation,
        run: LiveRun,
        begin: Callable[[], object],
        work: Callable[[], Awaitable[ExecutionOutcome]],
        *,
        tool: str,
        known_here: bool,
        first: bool = True,
        untouched: bool = False,
    ) -> ExecutionOutcome:
        """`begin` the tool, or go on with it, or say that nobody knows; `work` is to wait for it.

        `known_here`: no entry means that it has not begun. `first`: nor has any attempt before this one. `untouched`:
        an entry means no more than that. Raises where another attempt can tell more than this one.
        """

        async def enter() -> LedgerEntry | ExecutionOutcome | None:
            """The entry of somebody who was first; an outcome when there is nothing to begin; else it is at work."""
            if run.tool:
                return None
            found = await self._record_intent(key, tool, known_here=known_here, first=first)
            if isinstance(found, LedgerEntry):
                found = read_outcome(found) or found
            if isinstance(found, LedgerEntry) and not invocation.is_resumable and is_holder_alive(found.host):
                raise build_unfinished(f"another worker of {parse_holder_host(found.host)} is at it")
            if found is None or (isinstance(found, LedgerEntry) and (invocation.is_resumable or untouched)):
                begin()
                return None
            return found

        # Not to be cancelled half-way: an intent without a tool would look like an effect without an end.
        async with run.start_lock:
            found = await run_to_end(self._wait(enter()))
        if isinstance(found, LedgerEntry):
            outcome = await self._wait(self._verify_effect(found, invocation, run)) or await work()
        elif found:
            return found
        else:
            outcome = await work()
        await self.record_outcome(key, outcome, invocation, run)
        return outcome

    async def record_outcome(
        self, key: EffectKey, outcome: ExecutionOutcome, invocation: Invocation, run: LiveRun
    ) -> None:
        """Record what became of it, if that is known; then nothing is needed to find it again by."""
        if not isinstance(outcome, Lost) and await self._write_result(key, outcome):
            await _clean_up(invocation, run)

    async def _record_intent(
        self, key: EffectKey, tool: str, *, known_here: bool, first: bool
    ) -> LedgerEntry | ExecutionOutcome | None:
        """None: it is ours to begin. An entry: somebody was first. Else why it does not begin."""
        try:
            entry = await self._ledger.find(key)
            if entry is None and not known_here:
                return Lost(message="An earlier attempt ran on another host, which alone knows what became of it.")
            return entry or await self._ledger.record_intent(key, host=self._holder, tool=tool)
        except (LedgerUnavailable, LedgerRefused) as error:
            if not first:
                raise build_unfinished(f"what became of an earlier attempt cannot be read: {error}") from None
            message = f"The call was not run, since it cannot be recorded that it must not run twice: {error}"
            return Failed(error=CallError(type="ledger_unavailable", message=message))

    async def _verify_effect(self, entry: LedgerEntry, invocation: Invocation, run: LiveRun) -> ExecutionOutcome | None:
        """Of a call that was begun and has no result: what its tool finds out; None when it has not run."""
        try:
            found = await invocation.verify(run)
        except Exception as error:
            return build_lost(entry, f" Finding out failed: {exception_text(error)}")
        if found is False:
            return None
        if found is None:
            return build_lost(entry)
        return Finished(result=found if isinstance(found, Result) else Result.from_text("It was done before."))

    async def _write_result(self, key: EffectKey, outcome: ExecutionOutcome) -> bool:
        """It has run: whatever happens here, a stop included, loses nothing of what is known."""
        try:
            await self._wait(self._ledger.record_result(key, outcome.model_dump_json()))
        except (LedgerUnavailable, LedgerRefused, asyncio.CancelledError) as error:
            _LOGGER.warning("The result of %s is not in the ledger: %s", key, Redacted(error))
            return False
        return True


def build_unfinished(why: str) -> ApplicationError:
    """This attempt cannot tell what became of the call; a later one may."""
    return ApplicationError(why, type=UNFINISHED, category=ApplicationErrorCategory.BENIGN)


async def _clean_up(invocation: Invocation, run: LiveRun) -> None:
    """What it was found again by goes; what stays by accident is swept some day."""
    try:
        await invocation.clean_up(run)
    except (Exception, asyncio.CancelledError) as error:
        _LOGGER.warning("What %s left is still there: %s", run.key, Redacted(error))


def read_outcome(entry: LedgerEntry | None) -> ExecutionOutcome | None:
    """What became of it, if that is recorded."""
    if entry is None or entry.result is None:
        return None
    try:
        return _OUTCOME_ADAPTER.validate_json(entry.result)
    except ValidationError:
        return build_lost(entry, " What was recorded of its end cannot be read.")


def build_lost(entry: LedgerEntry, more: str = "") -> Lost:
    """It was begun, and nobody knows more."""
    where = parse_holder_host(entry.host)
    began = f"It was begun at {entry.started_at:%Y-%m-%d %H:%M:%S} UTC on {where}, and its end was not recorded."
    return Lost(message=f"{began} It may have taken effect, in whole or in part, or not at all.{more}")
