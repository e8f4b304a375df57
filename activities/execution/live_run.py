"""The calls that run on this worker right now, each with the tail of its output.

A heartbeat carries at most 8 KiB of it. The last 100,000 characters are kept in memory, and are read by an activity on
the task queue of this process: live output is in no history.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue
from temporalio import activity

from holdfast.domain.approvals.approval import Confirmation, QuestionAnswer
from holdfast.domain.calls.call import PendingQuestion
from holdfast.domain.content import Part, TextPart
from holdfast.domain.turn.activity_io import LiveOutput, RunningCall
from holdfast.names import OUTPUT_ACTIVITY
from holdfast.util.text import (
    Tail,
    drop_surrogates,
    exception_text,
    skip_escape_code,
    strip_all_but_styles,
    strip_controls,
)

Asker = Callable[[Confirmation], Awaitable[QuestionAnswer]]

ABANDONED_SECONDS = 15.0
"""Seconds that a tool goes on after the server gave up on its attempt, if no other attempt takes it over."""
TAIL_LIMIT = 100_000
TAIL_SHOWN = 4_000
TAIL_BYTES = 7_000
"""Bytes of the tail in a heartbeat, which takes at most 8 KiB with everything around it."""


class LiveRun:
    """The `Run` of a running tool (`holdfast.domain.calls.tool`), and the tool's task."""

    def __init__(
        self,
        turn_id: str,
        call_id: str,
        *,
        workspace: Path,
        host_queue: str | None = None,
        effect_key: str = "",
        pause: PendingQuestion | None = None,
        asker: Asker | None = None,
        is_unasked: bool = False,
    ) -> None:
        """`asker` asks a person; without one every question is answered with `cancel`."""
        self.turn_id = turn_id
        self.call_id = call_id
        """The engine's id of the call."""
        self.workspace = workspace
        self.is_unasked = is_unasked
        """A rule, a mode or a grant let the call run, and no person was asked about it."""
        self.tool: asyncio.Task[object] | None = None
        """The running tool, which outlives an attempt that the server gave up on."""
        self.start_lock = asyncio.Lock()
        self.deadline = 0.0
        """The end of its time limit, on the monotonic clock. It moves while the tool waits for a person."""
        self.attempts = 0
        """How many attempts of the activity wait for the tool."""
        self.attempt = 1
        """How often the tool was executed, where its failures are retried."""
        self.is_asking = False
        """The tool waits for a person."""
        self.is_handing_over = False
        """The worker shuts down, and leaves tools that continue without it to the next one."""
        self._effect_key = effect_key
        self._pause = pause
        self._asker = asker
        self._host_queue = host_queue
        self._tail = Tail(TAIL_LIMIT)
        self._pid: int | None = None
        self._failure: str | None = None

    @property
    def key(self) -> str:
        """Unique to this call, and the same for every attempt of it."""
        return f"{self.turn_id}/{self.call_id}"

    @property
    def effect_key(self) -> str:
        """Unique to this effect, and the same for every attempt at it."""
        return self._effect_key or self.key

    @property
    def state(self) -> JsonValue:
        """The state that an earlier run of the tool left with its question; None for the first run."""
        return self._pause.state if self._pause else None

    @property
    def answer(self) -> QuestionAnswer | None:
        """The answer of a person to that question."""
        return self._pause.answer if self._pause else None

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        """Ask a person and wait for the answer. That time does not count against the tool's limit."""
        if self._asker is None:
            return QuestionAnswer(action="cancel")
        began, self.is_asking = time.monotonic(), True
        try:
            return await self._asker(question)
        finally:
            self.is_asking = False
            self.deadline += time.monotonic() - began

    def write(self, text: str) -> None:
        """Add to the live output."""
        self._tail.add(text)

    def report_process(self, pid: int) -> None:
        """Show viewers which process runs."""
        self._pid = pid

    def note_failure(self, error: Exception) -> None:
        """Record a failure after which the tool is tried again: viewers see the attempt and the reason."""
        self.attempt += 1
        self._failure = drop_surrogates(strip_controls(exception_text(error, 300)))

    def build_live_output(self, most: int = TAIL_SHOWN) -> LiveOutput:
        """The last `most` characters of the output, safe to print on a terminal."""
        end = _take_last(drop_surrogates(self._tail.text[-2 * most :]), most)
        styled = strip_all_but_styles(end)
        return LiveOutput(
            call_id=self.call_id,
            tail=strip_controls(end),
            styled=styled if "\x1b" in styled else None,
            total=self._tail.total,
            pid=self._pid,
            host=self._host_queue,
            attempt=self.attempt,
            failure=self._failure,
        )

    def build_heartbeat(self) -> LiveOutput:
        """The live output as heartbeat details: at most 8 KiB."""
        live = self.build_live_output()
        if live.styled is None:
            return live.model_copy(update={"tail": _fit_bytes(live.tail, TAIL_BYTES)})
        half = TAIL_BYTES // 2
        return live.model_copy(update={"tail": _fit_bytes(live.tail, half), "styled": _fit_bytes(live.styled, half)})

    def build_partial_parts(self) -> tuple[Part, ...]:
        """The output until now, as parts of an outcome."""
        if not self._tail.total:
            return ()
        text, missing = strip_controls(self._tail.text), self._tail.total - TAIL_LIMIT
        before = f"… [{missing:,} characters before this were not kept] …\n" if missing > 0 else ""
        return (TextPart(text=before + text),)


def _fit_bytes(text: str, most: int) -> str:
    """The end of a text that takes at most this many bytes as JSON."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode())) > most:
        text = _take_last(text, len(text) * most // size)
    return text


def _take_last(text: str, most: int) -> str:
    """The last characters, without the rest of an escape code that begins before them."""
    return text[skip_escape_code(text, max(0, len(text) - most)) :]


def is_stop_requested() -> bool:
    """Has the turn cancelled this activity? False when the attempt timed out or the worker shuts down."""
    details = activity.in_activity() and activity.cancellation_details()
    return bool(details and details.cancel_requested)


class LiveRuns:
    """The calls that run on this worker, which is asked at the task queue `host_queue`."""

    def __init__(self, host_queue: str) -> None:
        self.host_queue = host_queue
        self._runs: dict[str, LiveRun] = {}

    @contextmanager
    def track_run(
        self,
        turn_id: str,
        call_id: str,
        *,
        workspace: Path,
        effect_key: str = "",
        pause: PendingQuestion | None = None,
        asker: Asker | None = None,
        is_unasked: bool = False,
    ) -> Iterator[LiveRun]:
        """Register a call while it runs; the run of an earlier attempt on this worker whose tool still runs, if any."""
        run = LiveRun(
            turn_id,
            call_id,
            workspace=workspace,
            host_queue=self.host_queue,
            effect_key=effect_key,
            pause=pause,
            asker=asker,
            is_unasked=is_unasked,
        )
        earlier = self._runs.get(run.key)
        if earlier and earlier.effect_key == run.effect_key:
            run = earlier
        self._runs[run.key] = run
        run.attempts += 1
        answered = False
        try:
            yield run
            answered = True
        finally:
            run.attempts -= 1
            if run.attempts == 0:
                self._release_run(run, answered=answered)

    def _release_run(self, run: LiveRun, *, answered: bool) -> None:
        """No attempt waits for the run any more. A tool that was not told to stop goes on for the next attempt."""
        if answered or run.tool is None:
            self._forget_run(run)
        elif is_stop_requested():
            run.tool.cancel()
            self._forget_run(run)
        else:
            asyncio.get_running_loop().call_later(ABANDONED_SECONDS, self._drop_abandoned, run)

    def _drop_abandoned(self, run: LiveRun) -> None:
        """No attempt came back here. A supervised command goes on: another worker may have attached to it."""
        if run.attempts == 0 and run.tool:
            run.is_handing_over = True
            run.tool.cancel()
            self._forget_run(run)

    def _forget_run(self, run: LiveRun) -> None:
        if self._runs.get(run.key) is run:
            del self._runs[run.key]

    @activity.defn(name=OUTPUT_ACTIVITY)
    async def find_output(self, input: RunningCall) -> LiveOutput | None:
        """The last 100,000 characters of a call that runs on this worker; None for any other call."""
        run = self._runs.get(f"{input.turn}/{input.call}")
        return run.build_live_output(TAIL_LIMIT) if run else None
