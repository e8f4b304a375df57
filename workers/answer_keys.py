"""The keys that answer, what they say, and the words around a question at a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.content import format_tool_name
from holdfast.requests import DecisionResult
from holdfast.views import ApprovalView
from holdfast.workers import questions, render
from holdfast.workers.board import Row

KEY_LABELS = {
    "y": "yes",
    "a": "always",
    "e": "edit",
    "n": "no",
    "N": "no, stop",
    "s": "skip",
    "v": "view all",
    "r": "no, and why",
}
UNKNOWN_OUTCOME_LABELS = {"y": "run again", "d": "done", "n": "failed", "N": "failed, stop"}
UNKNOWN_OUTCOME_LABELS |= {"s": "skip", "v": "view all"}
"""Of a call that nobody knows whether it ran."""
DONE_ANSWER = "It was done."
KEY_DECISIONS = {
    "y": ("proceed_once", False, "Approved."),
    "n": ("cancel", False, "Refused."),
    "N": ("cancel", True, "Refused, and the turn stops."),
}
UNKNOWN_OUTCOME_DECISIONS = {
    "y": ("proceed_once", False, "It is run again."),
    "n": ("cancel", False, "Taken as failed."),
    "N": ("cancel", True, "Taken as failed, and the turn stops."),
}


def describe_waiting(waiting: list[Row]) -> str:
    """What is waited for, and how it is said from elsewhere."""
    kinds = {row.asks == questions.QUESTION_KIND for row in waiting}
    what = "a decision" if kinds != {True} else "an answer"
    commands = " or ".join(f"`holdfast {'respond' if kind else 'approve'}`" for kind in sorted(kinds))
    return f"{what}: press [a] to be asked, or use {commands}"


def format_heading(approval: ApprovalView, place: str) -> str:
    """The first line of a question."""
    if approval.kind == questions.QUESTION_KIND:
        by = f": {questions.describe_asker(approval)}" if approval.server else ","
        return f"{place.capitalize()}, {format_tool_name(approval.tool)}{by} asks you:"
    if approval.kind == questions.UNKNOWN_KIND:
        return f"What became of {place}? {render.format_line(approval.title)}"
    return f"Approve {place}? {render.format_line(approval.title)}"


def describe_delivery(acknowledged: DecisionResult | None) -> str:
    """How an answer went that no worker has acknowledged."""
    return "" if acknowledged else " No worker answered, so it was left as a signal for the next one."


def format_keys(prompt: str, width: int) -> str:
    """Keys on as many lines as they need; none of them is broken."""
    return "\n".join(_wrap_words(prompt.split("  "), width))


def _wrap_words(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines
