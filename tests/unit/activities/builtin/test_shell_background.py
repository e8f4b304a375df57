"""Background commands: what does not need one."""

from __future__ import annotations

from pathlib import Path

from holdfast.activities.builtin.shell_background import ReadCommand, StopCommand
from holdfast.activities.process.output_store import OutputStore

HANDLE = "0" * 32


def test_S10_reading_a_background_command_runs_beside_other_calls_and_stopping_one_does_not(tmp_path: Path) -> None:
    outputs = OutputStore(tmp_path)
    reading = ReadCommand(outputs, None).build(ReadCommand.Parameters(handle=HANDLE), tmp_path)
    stopping = StopCommand(outputs, None).build(StopCommand.Parameters(handle=HANDLE), tmp_path)
    assert (reading.is_concurrency_safe(), stopping.is_concurrency_safe()) == (True, False)
