"""Delegated turns: the input of a turn that a call of `delegate` runs, and the outcome of that call. Pure.

A delegated turn may do no more than its parent: its mode is not looser, its tools are a subset, its limits are a share
of what is left. Its calls are validated and need approval like all others (S20).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.domain.calls.tool import StrictParameters
from holdfast.domain.calls.verdicts import ExecutionOutcome, Failed, Finished, Stopped
from holdfast.domain.content import CallError, Result, TextPart
from holdfast.domain.context import ToolName, names_tool
from holdfast.domain.modes import Mode
from holdfast.domain.turn.carryover import TurnMemory
from holdfast.domain.turn.turn_io import TurnInput, TurnLimits, TurnResult

DELEGATE = "delegate"
MAX_DEPTH = 3
"""The depth of delegation: a turn at this depth cannot delegate."""
MAX_STEPS = 100
"""The default limit of model steps of a delegated turn."""
_STRICTEST_FIRST = (Mode.PLAN, Mode.DEFAULT, Mode.AUTO_EDIT, Mode.YOLO)


class Delegation(StrictParameters):
    """The arguments of `delegate`."""

    prompt: str = Field(
        min_length=1,
        max_length=100_000,
        description="The task, with everything needed to do it: the other assistant sees nothing of this conversation",
    )
    tools: Annotated[list[ToolName], Field(max_length=200)] | None = Field(
        default=None, description="The tools it may use, by name; left out, all that you have"
    )
    mode: Literal["default", "auto_edit", "plan"] | None = Field(
        default=None, description="plan: it only reads. Never more than you may do yourself"
    )
    max_steps: int = Field(default=MAX_STEPS, ge=1, le=1_000, description="How often it may ask its model")


def build_delegated_input(parent: TurnInput, memory: TurnMemory, limits: TurnLimits, given: Delegation) -> TurnInput:
    """Build the input of a delegated turn. `limits` is its share of the limits of its parent."""
    tools = memory.context.tools
    if given.tools is not None:  # the list that the parent was started with stays the child's own limit
        offered = (name for name in given.tools if memory.context.has_tool(name))
        tools = tuple(name for name in offered if names_tool(parent.tools, name))
    model = parent.model
    if model and (script := model.delegated.get(given.prompt)) is not None:
        model = model.model_copy(update={"script": script})
    return parent.model_copy(
        update={
            "prompt": given.prompt,
            "model": model,
            "batches": (),
            "session": None,
            "carried": None,
            "depth": parent.depth + 1,
            "memory": memory.model_copy(
                update={
                    "mode": find_stricter_mode(memory.mode, Mode(given.mode) if given.mode else memory.mode),
                    "context": memory.context.model_copy(update={"tools": tools}),
                    "replies": 0,
                    "filled": 0,
                }
            ),
            "limits": limits.model_copy(update={"steps": min(given.max_steps, limits.steps)}),
        }
    )


def build_delegated_outcome(result: TurnResult, *, stopping: bool) -> ExecutionOutcome:
    """Build the outcome of a call from the result of the turn that it delegated."""
    parts = (TextPart(text=result.text),) if result.text else ()
    if result.status == "completed":
        return Finished(result=Result(parts=parts))
    reason = result.reason or f"The turn ended as {result.status}"
    if stopping:
        return Stopped(reason=reason, parts=parts)
    return Failed(error=CallError(type=f"turn_{result.status}", message=reason), parts=parts)


def find_stricter_mode(one: Mode, other: Mode) -> Mode:
    """Return the stricter of two modes."""
    return min(one, other, key=_STRICTEST_FIRST.index)
