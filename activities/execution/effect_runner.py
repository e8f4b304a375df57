"""Runs calls that must not run twice, by what the ledger records of them before and after (S31).

An intent is on disk before the call begins, a result after it ended. A later attempt returns a recorded result,
attaches to a tool that still runs, begins a call that has not begun, and reports any other outcome as unknown.

Why: docs/decisions/0008-ledger.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from holdfast.activities.execution.live_run import LiveRun
from holdfast.activities.execution.run_tool import build_unfinished
from holdfast.activities.files.workspace import Workspace, digest_content
from holdfast.activities.ledger.ledger import EffectKey, Ledger, LedgerEntry, LedgerRefused, LedgerUnavailable, Spending
from holdfast.activities.process.command import run_to_end
from holdfast.activities.process.proc import read_start_time
from holdfast.domain.calls.tool import Invocation, ToolFailure
from holdfast.domain.calls.verdicts import BoundCall, ExecutionOutcome, Failed, Finished, Lost
from holdfast.domain.content import CallError, Result
from holdfast.util.redaction import Redacted
from holdfast.util.text import exception_text

T = TypeVar("T")

_OUTCOME_ADAPTER: TypeAdapter[ExecutionOutcome] = TypeAdapter(ExecutionOutcome)
_LOGGER = logging.getLogger(__name__)
_HOLDER = re.compile(r"(?P<host>.*) \(process (?P<pid>[0-9]{1,10})\.(?P<born>[0-9]{1,20})\)", re.DOTALL)


class WaitWithHeartbeats(Protocol):
    """Runs something that may take seconds, while its activity goes on sending heartbeats."""

    async def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run `work` and return its result."""


async def _wait_plainly(work: Coroutine[Any, Any, T], /) -> T:
    return await work


class EarlierAttempt(NamedTuple):
    """The state of a call after its earlier attempts."""

    outcome: ExecutionOutcome | None = None
    """The outcome of the call; None when it has to be begun, or found again."""
    untouched: bool = False
    """The files that it would change are as they were before it."""


class EffectRunner:
    """Runs the calls of one worker that must not run twice."""

    def __init__(self, ledger: Ledger, wait: WaitWithHeartbeats | None = None) -> None:
        """`wait` runs queries of the ledger within an activity; without it no heartbeats are sent meanwhile."""
        self._ledger = ledger
        self._holder = build_holder()
        self._wait = wait or _wait_plainly

    @property
    def is_shared(self) -> bool:
        """Do the workers of all hosts share one ledger?"""
        return self._ledger.is_shared

    async def find(self, key: EffectKey) -> LedgerEntry | None:
        """The ledger's entry of this effect; None also when the ledger cannot be read.

        Before anything runs, the ledger is asked again.
        """
        try:
            return await self._wait(self._ledger.find(key))
        except LedgerUnavailable:
            return None

    async def find_earlier_attempt(
        self, key: EffectKey, bound: BoundCall, workspace: Path, wrote: Mapping[str, str]
    ) -> EarlierAttempt:
        """Find the outcome of an earlier attempt, by the ledger or by the files as the call would have left them.

        `wrote`: digests of the files as the turn itself last wrote them.
        """
        entry = await self.find(key)
        if found := read_outcome(entry):
            return EarlierAttempt(found)
        if not bound.leaves:
            return EarlierAttempt()
        state = await asyncio.to_thread(_find_file_state, workspace, bound, wrote)
        if state == "done":
            result = Result.from_text(f"{bound.title}: it was done before its worker was lost.")
            return EarlierAttempt(Finished(result=result.model_copy(update={"seen": bound.leaves})))
        if state == "otherwise" and entry:
            lost = build_lost(entry, " The files are neither as they were nor as it would have left them.")
            return EarlierAttempt(lost)
        return EarlierAttempt(untouched=state == "untouched")

    async def record_spendings(
        self, spendings: Sequence[Spending], *, first: bool = True, with_heartbeats: bool = True
    ) -> Spending | ExecutionOutcome | None:
        """Record, before this execution runs, that these decisions let it run; None when that is done.

        Otherwise the spending of one of them by another execution, or a failure where the ledger cannot record it.
        Raises ApplicationError of type `unfinished` where a later attempt may tell more; `first`: there was no attempt
        before this one. `with_heartbeats`: False while the tool runs, whose activity sends heartbeats by itself.
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
        """Run the call at most once: `begin` starts the tool, `work` waits for it and returns its outcome.

        A tool that an earlier attempt started is waited for; where that attempt was lost, its recorded outcome is
        returned, or `Lost`. `known_here`: an effect without an entry in this ledger has not begun. `first`: there was
        no attempt before this one. `untouched`: an effect with an entry has not begun either. Raises ApplicationError
        of type `unfinished` where a later attempt may tell more.
        """

        async def enter() -> LedgerEntry | ExecutionOutcome | None:
            """Start the tool: None when it runs, else the entry of an earlier attempt, or an outcome."""
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

        # Not to be cancelled half-way: an intent without a tool would look like an effect whose outcome is unknown.
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
        """Record the outcome of a call, unless it is lost, and remove what an attempt would find its tool by."""
        if not isinstance(outcome, Lost) and await self._write_result(key, outcome):
            await _clean_up(invocation, run)

    async def _record_intent(
        self, key: EffectKey, tool: str, *, known_here: bool, first: bool
    ) -> LedgerEntry | ExecutionOutcome | None:
        """Record the intent: None when this attempt may begin, else the entry of an earlier one, or an outcome."""
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
        """Let the tool find the outcome of a call that was begun and has no result; None when it has not run."""
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
        """Record the outcome; False when that failed. The call has run, so neither an error nor a stop raises here."""
        try:
            await self._wait(self._ledger.record_result(key, outcome.model_dump_json()))
        except (LedgerUnavailable, LedgerRefused, asyncio.CancelledError) as error:
            _LOGGER.warning("The result of %s is not in the ledger: %s", key, Redacted(error))
            return False
        return True


async def _clean_up(invocation: Invocation, run: LiveRun) -> None:
    """Let the invocation remove its traces, by which a later attempt finds it. After an error they are swept later."""
    try:
        await invocation.clean_up(run)
    except (Exception, asyncio.CancelledError) as error:
        _LOGGER.warning("The call %s could not be cleaned up: %s", run.key, Redacted(error))


def read_outcome(entry: LedgerEntry | None) -> ExecutionOutcome | None:
    """The outcome that an entry records; None when there is none yet."""
    if entry is None or entry.result is None:
        return None
    try:
        return _OUTCOME_ADAPTER.validate_json(entry.result)
    except ValidationError:
        return build_lost(entry, " What was recorded of its end cannot be read.")


def build_lost(entry: LedgerEntry, more: str = "") -> Lost:
    """The outcome of a call that was begun and whose end is unknown."""
    where = parse_holder_host(entry.host)
    began = f"It was begun at {entry.started_at:%Y-%m-%d %H:%M:%S} UTC on {where}, and its end was not recorded."
    return Lost(message=f"{began} It may have taken effect, in whole or in part, or not at all.{more}")


# Files


def _find_file_state(
    folder: Path, bound: BoundCall, wrote: Mapping[str, str]
) -> Literal["done", "untouched", "otherwise"]:
    """Compare the files that a call changes with their recorded states; `otherwise`: others have written them too."""
    workspace = Workspace(folder)
    try:
        now = {path: digest_content(workspace.read_present(path)) for path in {**bound.basis, **bound.leaves}}
    except (ToolFailure, OSError):
        return "otherwise"
    if all(now[path] == digest for path, digest in bound.leaves.items()):
        return "done"
    is_untouched = all(now[path] in (digest, wrote.get(path)) for path, digest in bound.basis.items())
    return "untouched" if is_untouched else "otherwise"


# The process that holds an entry


def build_holder() -> str:
    """The name of this process: a process id is given again, with the moment of its start it is unique on a host."""
    pid = os.getpid()
    return f"{socket.gethostname()} (process {pid}.{read_start_time(pid) or 0})"


def is_holder_alive(holder: str) -> bool:
    """Is it another process of this host that is still there? False for processes of other hosts."""
    found = _HOLDER.fullmatch(holder)
    if found is None or found["host"] != socket.gethostname() or holder == build_holder():
        return False
    return read_start_time(int(found["pid"])) == int(found["born"])


def parse_holder_host(holder: str) -> str:
    """The host of a process, for people."""
    found = _HOLDER.fullmatch(holder)
    return found["host"] if found else holder
