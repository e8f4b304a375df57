"""`holdfast demo`: one turn, three killed workers, every call answered once. Runs in a temporary folder and leaves
nothing.

It does what a user does (a server, workers, a turn, decisions), kills workers with SIGKILL, prints what happens, and
checks at the end that every promise was kept.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.rule import Rule
from rich.text import Text
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from holdfast.activities.process.proc import is_supervisor, list_descendants
from holdfast.client.client import Holdfast
from holdfast.client.owner_key import ensure_owner_key
from holdfast.client.turn import Turn
from holdfast.config.settings import Settings
from holdfast.domain.calls.events import Event
from holdfast.domain.conversation.messages import ModelChoice
from holdfast.domain.turn import approval_view
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.domain.turn.turn_io import TurnInput
from holdfast.errors import HoldfastError
from holdfast.plugin.plugin import HoldfastPlugin
from holdfast.workers.demo.script import FILES, PROMPT, PUBLISH_CALL, SCRIPT, SURVEY_CALL, Promise, list_promises
from holdfast.workers.embedded.temporal_server import EmbeddedServer
from holdfast.workers.embedded.up import WorkerProcess
from holdfast.workers.runtime.child_processes import adopt_orphans, end_orphans
from holdfast.workers.runtime.connect import connect_to
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.follow_turn import catch_interrupt, run_unless_left
from holdfast.workers.terminal.live.prompt import read_key
from holdfast.workers.terminal.output import is_interactive
from holdfast.workers.terminal.turn_board import Board, Row

STEP_SECONDS = 60.0
"""The time limit of a step; a person at a terminal is not limited."""
TURN_ID = "demo"
HEADINGS = {
    "b2 active": "The second step: a slow check, a read, and publishing",
    f"{SURVEY_CALL} executing": "Kill the worker while a call runs that may be repeated",
    f"{PUBLISH_CALL} executing": "Kill the worker while a command runs that must not be repeated",
    "b3 active": "The turn finishes",
}
"""The chapters that begin with an event, so that no line of the chapter before comes after their heading."""


async def run_demo(*, to_stderr: bool = False) -> Demo:
    """Run the demo, printing to standard output, or to standard error."""
    with (
        catch_interrupt() as left,
        tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder,
    ):
        demo = Demo(Path(folder), to_stderr=to_stderr)
        try:
            await run_unless_left(left, demo.run())
        finally:
            await demo.clean_up()
        return demo


class Demo:
    """One run of the demo."""

    def __init__(self, folder: Path, *, to_stderr: bool) -> None:
        self.promises: list[Promise] = []
        self._settings = Settings(data=folder / "data", workspace=folder / "workspace", task_queue="holdfast-demo")
        self._log = folder / "worker.log"
        self._server = EmbeddedServer(self._settings, port=0)
        self._worker: WorkerProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self._killed = 0
        self._answers = 0
        self._board = Board()
        self._refused: set[str] = set()
        self._seen: dict[str, str] = {}
        self._marks: list[tuple[datetime, Text]] = []
        self._headings = dict(HEADINGS)
        self._console = render.build_console(to_stderr=to_stderr)
        self._asks = is_interactive() and not to_stderr
        self._began = time.monotonic()

    @property
    def is_kept(self) -> bool:
        """Whether every promise was kept; False if the demo did not come to its end."""
        return bool(self.promises) and all(promise.is_kept for promise in self.promises)

    async def run(self) -> None:
        """Run the demo."""
        adopt_orphans()
        self._settings.workspace.mkdir(parents=True)
        for name, content in FILES.items():
            (self._settings.workspace / name).write_text(content)
        self._print_text("An assistant's tool calls can be lost, doubled or left hanging when a process dies.")
        self._print_text("Holdfast makes each turn a durable workflow. Watch one survive three killed workers.")

        self._print_chapter("A server, a worker, a turn")
        where = await self._server.start()
        ensure_owner_key(self._settings)
        await self._start_worker()
        holdfast = Holdfast(
            await connect_to(where.address, HoldfastPlugin(self._settings)), task_queue=self._settings.task_queue
        )
        turn = await holdfast.start(TurnInput(prompt=PROMPT, model=ModelChoice(script=SCRIPT)), turn_id=TURN_ID)
        self._print_text(f'The user asks: "{PROMPT}" The model (scripted here) answers with four calls.')
        self._watching = asyncio.create_task(self._watch_turn(turn))
        await self._wait_until(lambda: len(self._board.waiting_rows) == 2)
        self._print_text("Two only read and are ready. Two need a person: nothing runs before all four are ready.")

        self._print_chapter("Kill the worker while approvals wait")
        await self._kill_worker()
        waiting = await holdfast.list_approvals()
        self._print_text(f"No worker runs, and the inbox still lists {len(waiting)} approvals: the server has them.")
        await self._start_worker()
        await self._decide_all(holdfast, turn)

        await self._wait_until(lambda: [row.call for row in self._board.waiting_rows] == [PUBLISH_CALL])
        await self._decide_all(holdfast, turn)

        await self._wait_until(lambda: self._is_running(SURVEY_CALL))
        await self._kill_worker()
        self._print_text("The survey only reads. When its worker sends no heartbeat, the next one repeats it.")
        await self._start_worker()
        if PUBLISH_CALL not in self._refused:
            await self._wait_until(lambda: self._is_running(PUBLISH_CALL))
            await self._kill_worker()
            self._print_text(
                "Running the command again could publish twice. But it runs under a small supervisor, which survived "
                "the worker: the command goes on, and the next worker connects to it."
            )
            await self._start_worker()

        async with asyncio.timeout(STEP_SECONDS):
            result = await turn.result()
            await self._watching
        self._print_text(f"The model reads every answer and says: {render.format_line(result.text, 300)}")
        self._print_timeline()
        attempts = await _count_attempts(holdfast.client, turn.id)
        self._answers = len(result.responses)
        left = sum(map(is_supervisor, list_descendants(os.getpid())))
        self._print_promises(list(list_promises(result, self._settings.workspace, self._refused, attempts, left)))

    async def clean_up(self) -> None:
        """End every process."""
        if self._watching:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._worker:
            await self._worker.stop()
        await end_orphans(known={self._server.pid}, with_supervisors=True)
        await self._server.stop()

    async def _start_worker(self) -> None:
        options = ("--tools", "holdfast.workers.demo.script:build_tools")
        self._worker = WorkerProcess(self._settings, options=options, log=self._log)
        await self._worker.start()
        self._print_action(
            f"worker {self._killed + 1} started (process {self._worker.process.pid})", "green", mark=bool(self._killed)
        )

    async def _kill_worker(self) -> None:
        assert self._worker, "there is a worker to kill"
        self._worker.process.kill()
        await self._worker.process.wait()
        await end_orphans(known={self._server.pid})
        self._killed += 1
        self._print_action(f"worker {self._killed} killed with SIGKILL", "bold red", mark=True)

    async def _watch_turn(self, turn: Turn) -> None:
        async for item in turn.watch():
            self._board.apply_item(item)
            if isinstance(item, Event):
                if heading := self._headings.pop(f"{item.call or item.batch} {item.after}", None):
                    self._print_chapter(heading)
                if item.kind == "call" and _is_shown(item):
                    text = render.render_event(item, since=self._board.events[0].at, indent="    ")
                    render.print_line(self._console, text)
            else:
                self._show_output(item)

    def _show_output(self, output: LiveOutput) -> None:
        """Print the newest line of a running call."""
        newest = next(iter(reversed(output.tail.strip().splitlines())), "")
        if newest and self._seen.get(output.call_id) != newest:
            self._seen[output.call_id] = newest
            self._console.print(Text(f"                  {output.call_id} │ {render.format_line(newest, 80)}", "dim"))

    def _is_running(self, call: str) -> bool:
        row = self._board.rows.get(call)
        return row is not None and row.status == "executing" and bool(row.tail)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while not condition():
                    if self._watching and self._watching.done():
                        self._watching.result()
                        raise HoldfastError("the turn ended before the demo did")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log = self._log.read_text("utf-8", "replace")[-2_000:] if self._log.exists() else ""
            raise HoldfastError(f"a step took over {STEP_SECONDS:g} seconds; the log of its worker:\n{log}") from None

    async def _decide_all(self, holdfast: Holdfast, turn: Turn) -> None:
        for row in self._board.waiting_rows:
            approval = approval_view.build_whole_approval(turn.id, await turn.fetch_call(row.call))
            self._console.print(approval_text.render_question(approval, heading=f"\n  Approve {row.tool}? {row.title}"))
            yes = await self._ask_person(row) if self._asks else True
            outcome = "proceed_once" if yes else "cancel"
            by = None if self._asks else "demo"
            await holdfast.decide(approval.approval_id, outcome, digest=approval.digest, by=by)
            self._print_action("approved" if yes else "refused", "yellow")
            if not yes:
                self._refused.add(row.call)
            await self._wait_until(partial(_is_decided, row))

    async def _ask_person(self, row: Row) -> bool:
        """Ask the person at the terminal."""
        words = Text(f"  [y] yes   [n] no   (call {row.place} of {row.of})", "bold yellow")
        return await read_key(self._console, words, "yn") == "y"

    def _print_timeline(self) -> None:
        self._print_chapter("The timeline of the turn")
        began = self._board.events[0].at
        events = [event for event in self._board.events if _is_shown(event)]
        lines = [(event.at, render.render_event(event, since=began, indent="  ")) for event in events]
        for at, text in self._marks:
            clock = f"  {(at - began).total_seconds():7.2f} s  "
            lines.append((at, Text(clock).append_text(text)))
        for _, item in sorted(lines, key=lambda line: line[0]):
            render.print_line(self._console, item)

    def _print_promises(self, found: list[Promise]) -> None:
        self._print_chapter("What was promised")
        for promise in found:
            mark = Text("  kept    " if promise.is_kept else "  BROKEN  ", "green" if promise.is_kept else "bold red")
            self._console.print(mark.append(promise.text, ""), soft_wrap=False)
        seconds = time.monotonic() - self._began
        self.promises = found
        self._console.print()
        counts = f"{len(self._board.rows)} calls, {self._answers} answers, {self._killed} workers killed"
        self._print_text(f"{counts}, {seconds:.0f} seconds.")
        command = _find_command()
        self._print_text(f"Your turn: `{command} up`, then `{command} turn start --help` in another terminal.")

    def _print_chapter(self, title: str) -> None:
        self._console.print()
        if self._console.is_terminal:
            self._console.print(Rule(Text(title, "bold"), align="left", style="dim"))
        else:
            self._console.print(f"== {title}")

    def _print_text(self, text: str) -> None:
        self._console.print(text, soft_wrap=False)

    def _print_action(self, text: str, style: str, *, mark: bool = False) -> None:
        self._console.print(Text(f"  >> {text}", style))
        if mark:
            self._marks.append((datetime.now(UTC), Text(f">> {text}", style)))


def _find_command() -> str:
    """The command by which `holdfast` is called here."""
    if shutil.which("holdfast"):
        return "holdfast"
    script = Path(sys.executable).with_name("holdfast")
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m holdfast.workers.cli"


def _is_decided(row: Row) -> bool:
    return row.status != "awaiting_approval"


def _is_shown(event: Event) -> bool:
    return event.kind != "result" and event.after not in ("validating", "queued")


async def _count_attempts(client: Client, turn_id: str) -> dict[str, int]:
    """How often each call was started, by the history."""
    scheduled: dict[int, str] = {}
    found: dict[str, int] = {}
    handle = client.get_workflow_handle(turn_id)
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            found[scheduled[started.scheduled_event_id]] = started.attempt
    return found
