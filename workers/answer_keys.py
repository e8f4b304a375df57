"""The keys that answer, what they say, and the words around a question at a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.content import named
from holdfast.requests import Acknowledged
from holdfast.views import ApprovalView
from holdfast.workers import questions, render
from holdfast.workers.board import Row

KEYS = {
    "y": "yes",
    "a": "always",
    "e": "edit",
    "n": "no",
    "N": "no, stop",
    "s": "skip",
    "v": "view all",
    "r": "no, and why",
}
UNKNOWN_KEYS = {"y": "run again", "d": "done", "n": "failed", "N": "failed, stop"}
UNKNOWN_KEYS |= {"s": "skip", "v": "view all"}
"""Of a call that nobody knows whether it ran."""
DONE = "It was done."
ANSWERS = {
    "y": ("proceed_once", False, "Approved."),
    "n": ("cancel", False, "Refused."),
    "N": ("cancel", True, "Refused, and the turn stops."),
}
UNKNOWN_ANSWERS = {
    "y": ("proceed_once", False, "It is run again."),
    "n": ("cancel", False, "Taken as failed."),
    "N": ("cancel", True, "Taken as failed, and the turn stops."),
}


def waited_for(waiting: list[Row]) -> str:
    """What is waited for, and how it is said from elsewhere."""
    kinds = {row.asks == questions.QUESTION for row in waiting}
    what = "a decision" if kinds != {True} else "an answer"
    commands = " or ".join(f"`holdfast {'respond' if kind else 'approve'}`" for kind in sorted(kinds))
    return f"{what}: press [a] to be asked, or use {commands}"


def heading(approval: ApprovalView, place: str) -> str:
    """The first line of a question."""
    if approval.kind == questions.QUESTION:
        by = f": {questions.who_asks(approval)}" if approval.server else ","
        return f"{place.capitalize()}, {named(approval.tool)}{by} asks you:"
    if approval.kind == questions.UNKNOWN:
        return f"What became of {place}? {render.line(approval.title)}"
    return f"Approve {place}? {render.line(approval.title)}"


def by_signal(counted: Acknowledged | None) -> str:
    """How an answer went that no worker has acknowledged."""
    return "" if counted else " No worker answered, so it was left as a signal for the next one."


def rows_of_keys(prompt: str, width: int) -> str:
    """Keys on as many lines as they need; none of them is broken."""
    return "\n".join(_filled(prompt.split("  "), width))


def _filled(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines
