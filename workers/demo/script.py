"""The script of the demo: a workspace, the replies of the model, a tool of its own, and the promises to be checked.

The model prepares a release. One call only reads and may be repeated; one publishes, must not be repeated, and outlives
its worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.tool import Effect, Invocation, Run, Tool
from holdfast.domain.content import Result
from holdfast.domain.conversation.messages import ScriptedReply
from holdfast.domain.turn.turn_io import TurnResult

PROMPT = "Prepare release 1.1.0: set the version, run the checks, publish it."
FILES = {
    "VERSION": "1.0.0\n",
    "NOTES.md": "# 1.1.0\n\n- Turns survive their workers.\n",
    "publish.sh": (
        "echo started >> publish.log\n"
        'for part in $(seq 15); do echo "uploading part $part of 15"; sleep 1; done\n'
        "echo finished >> publish.log\n"
    ),
}
SURVEY_CALL, PUBLISH_CALL = "b2c1", "b2c3"
"""The call that is repeated, and the call that is found again."""

_LOG_COMMAND = 'echo "released $(cat VERSION)" >> release.log && cat release.log'
SCRIPT = (
    ScriptedReply(
        text="I look around, set the version and log the release.",
        calls=(
            CallRequest(tool="list_directory", arguments={"path": "."}),
            CallRequest(tool="read_file", arguments={"path": "VERSION"}),
            CallRequest(tool="write_file", arguments={"path": "VERSION", "content": "1.1.0\n"}),
            CallRequest(tool="shell", arguments={"command": _LOG_COMMAND}),
        ),
    ),
    ScriptedReply(
        text="Now the checks, then publishing.",
        calls=(
            CallRequest(tool="survey", arguments={}),
            CallRequest(tool="read_file", arguments={"path": "NOTES.md"}),
            CallRequest(tool="shell", arguments={"command": "bash publish.sh"}),
        ),
    ),
    ScriptedReply(
        text="I look at what was published.",
        calls=(
            CallRequest(tool="list_directory", arguments={"path": "."}),
            CallRequest(tool="read_file", arguments={"path": "publish.log"}),
        ),
    ),
    ScriptedReply(text="That was my part. What was done is in VERSION, release.log and publish.log."),
)


class Survey(Tool):
    """A slow check that changes nothing."""

    name = "survey"
    description = "Check every file of the workspace, slowly."
    effect = Effect.READ
    heartbeat_seconds = 2.0

    class Parameters(BaseModel):
        """No arguments."""

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind to the workspace."""
        return _SurveyInvocation(workspace)


class _SurveyInvocation(Invocation):
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def describe(self) -> str:
        return "Check every file of the workspace"

    def is_concurrency_safe(self) -> bool:
        return True

    async def execute(self, run: Run) -> Result:
        for percent in range(10, 101, 10):
            run.write(f"checked {percent} %\n")
            await asyncio.sleep(0.5)
        return Result.from_text("All files are in order.")


def build_tools() -> list[Tool]:
    """The tools of the demo's workers besides the built-in ones."""
    return [Survey()]


@dataclass(frozen=True)
class Promise:
    """Something that must be true at the end."""

    text: str
    is_kept: bool


def list_promises(
    result: TurnResult, workspace: Path, refused: set[str], attempts: dict[str, int], running_commands: int
) -> Iterator[Promise]:
    """Yield what Holdfast promises, and whether it was kept.

    `refused`: the calls that the viewer refused. `attempts`: how often each call was started. `running_commands`: how
    many commands still run.
    """
    asked = [f"b{step}c{place}" for step, reply in enumerate(SCRIPT, 1) for place in range(1, len(reply.calls) + 1)]
    answered = [response.call_id for response in result.responses]
    by_id = {response.call_id: response for response in result.responses}
    yield Promise(f"the turn ended with the model's answer: {result.status}", result.status == "completed")
    yield Promise(f"{len(asked)} calls, {len(answered)} answers: each once, in order", answered == asked)
    lines = _read_lines(workspace / "release.log")
    once = 0 if "b1c4" in refused else 1
    yield Promise(f"the log command ran {_format_times(once)}: lines in release.log: {len(lines)}", len(lines) == once)
    version = "1.0.0" if "b1c3" in refused else "1.1.0"
    yield Promise(f"VERSION says {version}", _read_lines(workspace / "VERSION") == [version])
    repeated = attempts.get(SURVEY_CALL, 0)
    ended = by_id[SURVEY_CALL].status if SURVEY_CALL in by_id else "missing"
    yield Promise(
        f"the survey only reads: it was repeated by itself (attempt {repeated}) and ended in {ended}",
        repeated > 1 and ended == "success",
    )
    if PUBLISH_CALL not in refused:
        published = by_id.get(PUBLISH_CALL)
        parts = published.text.count("uploading part") if published else 0
        log = _read_lines(workspace / "publish.log")
        yield Promise(
            f"publishing outlived its worker: begun {_format_times(log.count('started'))}, taken up again (attempt "
            f"{attempts.get(PUBLISH_CALL, 0)}), {parts} of 15 parts in its answer",
            log == ["started", "finished"] and parts == 15 and attempts.get(PUBLISH_CALL, 0) > 1,
        )
    yield Promise(f"of the commands, {running_commands or 'none'} is left running", running_commands == 0)


def _format_times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []
