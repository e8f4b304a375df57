"""Where workers kill themselves, and who was killed when: kept outside, so that nobody dies for ever.

Every planned death is a file. Whoever removes it dies: once, however many workers come by and however often they are
started again. What was killed is a line in a journal, written before.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from holdfast.domain.base import Data
from tests.chaos.harness.attempts import Attempts
from tests.chaos.harness.plan import PlannedCall, Point


class Death(Data):
    """One SIGKILL."""

    whom: str
    """`worker` or `server`."""
    pid: int
    running: int
    """How many calls it was running; of the server, how many ran at all."""
    label: str | None = None
    point: Point | None = None
    """None when it was killed at a random moment."""


class Deaths:
    """Those that are planned and those that happened, in a folder outside."""

    def __init__(self, folder: Path) -> None:
        self._planned = folder / "planned"
        self._journal = folder / "deaths"
        self._attempts = Attempts(folder)

    def prepare(self) -> None:
        """Make the folder."""
        self._planned.mkdir(parents=True)
        self._journal.touch()

    def plan(self, call: PlannedCall) -> None:
        """Have workers die under this call."""
        for number, point in enumerate(call.deaths):
            (self._planned / f"{call.label}.{point}.{number}").touch()

    def come_to(self, label: str, point: Point) -> None:
        """This process is at a point of a call: it ends here if that was planned."""
        for number in range(2):
            with suppress(FileNotFoundError):
                (self._planned / f"{label}.{point}.{number}").unlink()
                self._die(label, point)

    def told_to(self, label: str) -> None:
        """A command says by a file that it is in the middle of its effect, and that its worker is to die now."""
        with suppress(FileNotFoundError):
            (self._planned / f"{label}.now").unlink()
            self._die(label, Point.IN_EFFECT)

    def note(self, death: Death) -> None:
        """Write it down."""
        line = death.model_dump_json().encode() + b"\n"
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def all(self) -> list[Death]:
        """Everybody who was killed, in order."""
        return [Death.model_validate_json(line) for line in self._journal.read_bytes().splitlines()]

    def _die(self, label: str, point: Point) -> None:
        running = self._attempts.of_worker(os.getpid())
        self.note(Death(whom="worker", pid=os.getpid(), running=running, label=label, point=point))
        os.kill(os.getpid(), signal.SIGKILL)
