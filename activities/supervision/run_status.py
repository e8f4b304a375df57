"""What a worker can know of a run: who supervises it, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from holdfast.activities.supervision import run_folder as files
from holdfast.domain.base import Data

EndReason = Literal["exited", "stopped", "timed_out", "abandoned", "not_started", "lost"]
"""`abandoned`: no worker came back in time. `not_started`: nothing ran. `lost`: its supervisor is gone, and nobody
knows how far the command got."""
RunState = Literal["absent", "starting", "running", "ended"]
"""`absent`: there is no trace, so it has not begun. `starting`: somebody is at it. `ended`: see why."""


class CommandOwner(Data):
    """Whose a background command is: what its life depends on, and who may read it and stop it."""

    namespace: str
    queue: str
    """The task queue of the host that it runs on."""
    family: str
    """The session, or the turn alone, whose calls may read and stop it."""
    workflow: str = ""
    """The session or turn that it ends with; empty when it outlives both."""


class RunRecord(Data):
    """Who supervises what."""

    key: str = ""
    digest: str = ""
    supervisor: int = 0
    born: int = 0
    """When the supervisor was started, so that its number, used again, is not taken for it."""
    command: int = 0
    started: float = 0.0
    owner: CommandOwner | None = None
    """Of a background command."""


class RunEnd(Data):
    """How a run ended."""

    why: EndReason
    code: int | None = None
    """Exit code, negative for a signal."""
    started: float | None = None
    ended: float | None = None
    bytes: int = 0
    """How much the command said."""
    kept: int = 0
    """How much of that, from its beginning, is on disk."""
    error: str = ""
    """What went wrong with starting it, ending it or keeping its output."""
    directory: str = ""
    """Where its shell ended, if it was followed."""


class RunStatus(NamedTuple):
    """A run at one moment."""

    state: RunState
    run: RunRecord = RunRecord()
    ended: RunEnd | None = None


def read_status(folder: Path) -> RunStatus:
    """How it stands with the run in this folder. The lock first: when nobody holds it, no file changes any more."""
    living = files.is_held(str(folder))
    status, run = files.read_file(str(folder), files.STATUS_FILE), files.read_file(str(folder), files.RUN_FILE)
    traced = _parse_record(run)
    if status is not None:
        return RunStatus("ended", traced, _parse_end(status, traced))
    if living:
        return RunStatus("running" if run is not None else "starting", traced)
    if run is None:
        return RunStatus("absent")
    gone = "its supervisor is gone, and did not say how the command ended"
    return RunStatus("ended", traced, RunEnd(why="lost", started=traced.started, error=gone))


def _parse_record(run: dict[str, object] | None) -> RunRecord:
    try:
        return RunRecord.model_validate(run or {})
    except ValidationError:
        return RunRecord()


def _parse_end(status: dict[str, object], run: RunRecord) -> RunEnd:
    try:
        return RunEnd.model_validate(status)
    except ValidationError:
        return RunEnd(why="lost", started=run.started, error="the record of how the command ended cannot be read")
