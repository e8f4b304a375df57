"""`delegate`: another assistant does a task, in a turn of its own. The turn runs it as a child; nothing runs here."""

from __future__ import annotations

from pathlib import Path

from holdfast.domain.calls.tool import Effect, Interrupt, Invocation, Run, Tool, ToolFailure
from holdfast.domain.content import Result
from holdfast.domain.turn.delegation import DELEGATE, Delegation
from holdfast.util.text import shorten_text


class Delegate(Tool):
    """Hands a task to another assistant."""

    name = DELEGATE
    description = (
        "Hand a task to another assistant and get its answer. It starts with an empty conversation: tell it everything "
        "it needs. Those in mode plan, which only read, work side by side, others one after the other. What it wants "
        "to do is judged, and asked about, as your own calls are."
    )
    effect = Effect.READ
    interrupt = Interrupt.CANCEL
    delegates = True
    Parameters = Delegation

    def build(self, arguments: Delegation, workspace: Path) -> Invocation:
        """Bind the task. ValueError when it is blank."""
        if not arguments.prompt.strip():
            raise ValueError("the prompt is blank")
        return _DelegateInvocation(arguments)


class _DelegateInvocation(Invocation):
    def __init__(self, arguments: Delegation) -> None:
        self._arguments = arguments

    def describe(self) -> str:
        return f"Delegate: {shorten_text(self._arguments.prompt, 200)}"

    def is_concurrency_safe(self) -> bool:
        return self._arguments.mode == "plan"

    async def execute(self, run: Run) -> Result:
        raise ToolFailure("not_here", "only the turn itself can delegate a task")
