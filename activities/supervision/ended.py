"""What a worker can know of a run: who supervises it, and how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from holdfast.activities.supervision import folder as files
from holdfast.model import Data

Why = Literal["exited", "stopped", "timed_out", "abandoned", "not_started", "lost"]
"""`abandoned`: no worker came back in time. `not_started`: nothing ran. `lost`: its supervisor is gone, and nobody
knows how far the command got."""
State = Literal["absent", "starting", "running", "ended"]
"""`absent`: there is no trace, so it has not begun. `starting`: somebody is at it. `ended`: see why."""


class Owner(Data):
    """Whose a background command is: what its life depends on, and who may read it and stop it."""

    namespace: str
    queue: str
    """The task queue of the host that it runs on."""
    family: str
    """The session, or the turn alone, whose calls may read and stop it."""
    workflow: str = ""
    """The session or turn that it ends with; empty when it outlives both."""


class Traced(Data):
    """Who supervises what."""

    key: str = ""
    digest: str = ""
    supervisor: int = 0
    born: int = 0
    """When the supervisor was started, so that its number, used again, is not taken for it."""
    command: int = 0
    started: float = 0.0
    owner: Owner | None = None
    """Of a background command."""


class Ended(Data):
    """How a run ended."""

    why: Why
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


class Look(NamedTuple):
    """A run at one moment."""

    state: State
    run: Traced = Traced()
    ended: Ended | None = None


def look(folder: Path) -> Look:
    """How it stands with the run in this folder. The lock first: when nobody holds it, no file changes any more."""
    living = files.held(str(folder))
    status, run = files.read(str(folder), files.STATUS), files.read(str(folder), files.RUN)
    traced = _traced(run)
    if status is not None:
        return Look("ended", traced, _ended(status, traced))
    if living:
        return Look("running" if run is not None else "starting", traced)
    if run is None:
        return Look("absent")
    gone = "its supervisor is gone, and did not say how the command ended"
    return Look("ended", traced, Ended(why="lost", started=traced.started, error=gone))


def _traced(run: dict[str, object] | None) -> Traced:
    try:
        return Traced.model_validate(run or {})
    except ValidationError:
        return Traced()


def _ended(status: dict[str, object], run: Traced) -> Ended:
    try:
        return Ended.model_validate(status)
    except ValidationError:
        return Ended(why="lost", started=run.started, error="the record of how the command ended cannot be read")
