"""What runs on this worker right now: the tail of each call's output, for heartbeats and for whoever asks.

A heartbeat carries at most 8 KiB. The last 100,000 characters stay here, and are had by asking this very worker, on a
task queue of its own: nothing of it is in any turn's history.
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
"""How long a tool goes on whose attempt the server gave up on: until the next attempt comes, it has nobody."""
TAIL_LIMIT = 100_000
TAIL_SHOWN = 4_000
TAIL_BYTES = 7_000
"""At most 8 KiB with what surrounds them."""


class LiveRun:
    """What a running tool is given (`holdfast.domain.calls.tool.Run`), and the tool itself."""

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
        """`asker` asks a person; without one nobody can be asked."""
        self._effect_key = effect_key
        self._pause = pause
        self._asker = asker
        self.is_asking = False
        """Does the tool wait for a person?"""
        self.is_handing_over = False
        self.is_unasked = is_unasked
        self.start_lock = asyncio.Lock()
        self.tool: asyncio.Task[object] | None = None
        self.deadline = 0.0
        self.attempts = 0
        """How many attempts wait for the tool right now."""
        self._turn_id = turn_id
        self._call_id = call_id
        self._workspace = workspace
        self._host_queue = host_queue
        self._tail = Tail(TAIL_LIMIT)
        self._pid: int | None = None
        self.attempt = 1
        """Of the tool, where its failures pass by themselves."""
        self._failure: str | None = None

    @property
    def turn_id(self) -> str:
        """The turn it belongs to."""
        return self._turn_id

    @property
    def call_id(self) -> str:
        """The engine's id of the call."""
        return self._call_id

    @property
    def key(self) -> str:
        """The same for every attempt of this call."""
        return f"{self._turn_id}/{self._call_id}"

    @property
    def effect_key(self) -> str:
        """The same for every attempt at this effect."""
        return self._effect_key or self.key

    @property
    def state(self) -> JsonValue:
        """What an earlier run of the tool left to go on from."""
        return self._pause.state if self._pause else None

    @property
    def answer(self) -> QuestionAnswer | None:
        """What a person answered to it."""
        return self._pause.answer if self._pause else None

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        """Ask a person. The clock stands still until they have answered."""
        if self._asker is None:
            return QuestionAnswer(action="cancel")
        began, self.is_asking = time.monotonic(), True
        try:
            return await self._asker(question)
        finally:
            self.is_asking = False
            self.deadline += time.monotonic() - began

    @property
    def workspace(self) -> Path:
        """The folder this worker's tools work in."""
        return self._workspace

    def write(self, text: str) -> None:
        """Add to the live output."""
        self._tail.add(text)

    def report_process(self, pid: int) -> None:
        """Remember which process runs."""
        self._pid = pid

    def note_failure(self, error: Exception) -> None:
        """The tool failed, and is tried again: viewers see the attempt and the reason."""
        self.attempt += 1
        self._failure = drop_surrogates(strip_controls(exception_text(error, 300)))

    def build_live_output(self, most: int = TAIL_SHOWN) -> LiveOutput:
        """The end of the output, harmless for a terminal."""
        end = _take_last(drop_surrogates(self._tail.text[-2 * most :]), most)
        styled = strip_all_but_styles(end)
        return LiveOutput(
            call_id=self._call_id,
            tail=strip_controls(end),
            styled=styled if "\x1b" in styled else None,
            total=self._tail.total,
            pid=self._pid,
            host=self._host_queue,
            attempt=self.attempt,
            failure=self._failure,
        )

    def build_heartbeat(self) -> LiveOutput:
        """What a heartbeat carries."""
        live = self.build_live_output()
        if live.styled is None:
            return live.model_copy(update={"tail": _fit_bytes(live.tail, TAIL_BYTES)})
        half = TAIL_BYTES // 2
        return live.model_copy(update={"tail": _fit_bytes(live.tail, half), "styled": _fit_bytes(live.styled, half)})

    def build_partial_parts(self) -> tuple[Part, ...]:
        """What was put out before the end came."""
        if not self._tail.total:
            return ()
        text, missing = strip_controls(self._tail.text), self._tail.total - TAIL_LIMIT
        before = f"… [{missing:,} characters before this were not kept] …\n" if missing > 0 else ""
        return (TextPart(text=before + text),)


def _fit_bytes(text: str, most: int) -> str:
    """The end of a text that takes at most so many bytes as JSON."""
    while (size := len(json.dumps(text, ensure_ascii=False).encode())) > most:
        text = _take_last(text, len(text) * most // size)
    return text


def _take_last(text: str, most: int) -> str:
    """The last characters, without the rest of an escape code that begins before them."""
    return text[skip_escape_code(text, max(0, len(text) - most)) :]


def is_stop_requested() -> bool:
    """Is this attempt to stop since its turn says so, and not because it or its worker is at an end?"""
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
        """A call, known here while it runs. What an earlier attempt left at work here is found again."""
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
        left = self._runs.get(run.key)
        if left and left.effect_key == run.effect_key:
            run = left
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
        """No attempt waits for it any more. A tool that nobody told to stop goes on for the next one."""
        if answered or run.tool is None:
            self._forget_run(run)
        elif is_stop_requested():
            run.tool.cancel()
            self._forget_run(run)
        else:
            asyncio.get_running_loop().call_later(ABANDONED_SECONDS, self._drop_abandoned, run)

    def _drop_abandoned(self, run: LiveRun) -> None:
        """Nobody came back for it here. What goes on by itself still does: another worker may have found it."""
        if run.attempts == 0 and run.tool:
            run.is_handing_over = True
            run.tool.cancel()
            self._forget_run(run)

    def _forget_run(self, run: LiveRun) -> None:
        if self._runs.get(run.key) is run:
            del self._runs[run.key]

    @activity.defn(name="holdfast.output")
    async def find_output(self, input: RunningCall) -> LiveOutput | None:
        """The last 100,000 characters of a call that runs here; None when it does not."""
        run = self._runs.get(f"{input.turn}/{input.call}")
        return run.build_live_output(TAIL_LIMIT) if run else None
