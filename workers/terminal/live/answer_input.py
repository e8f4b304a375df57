"""Reading a person's answer at a terminal: a key, a line, or a form field by field.

Invalid input is asked for again here, before anything is sent. The turn checks the answer too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rich.console import RenderableType
from rich.text import Text

from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.approval_text import describe_only_answers, resolve_option
from holdfast.workers.terminal.live.form_input import FormDraft
from holdfast.workers.terminal.render import format_line
from holdfast.workers.terminal.turn_board import Row

LATER = ""
"""The person skips the question."""
NO, STOP = "/no", "/stop"
"""The person declines to answer; and stops the turn as well."""
BACK = "/back"
_DECLINE_HINT = f"{NO} declines, {STOP} declines and stops the turn"
_LINE_HINT = f"an empty line skips, {_DECLINE_HINT}"
_FORM_HINT = f"{BACK} goes back, Ctrl-D skips and keeps what you typed, {_DECLINE_HINT}"
_SEND_HINT = "an empty line sends it, the number of a field changes that"

Drafts = dict[str, FormDraft]
"""Partly filled forms, by approval."""


class LineReader(Protocol):
    """Where a line is typed."""

    def print_above(self, item: RenderableType) -> None:
        """Print something above the line."""

    async def read_line(self, label: str) -> str:
        """One line; EOFError for Ctrl-D."""


def describe_answering(approval: ApprovalView) -> str:
    """A hint about what can be typed."""
    if approval.form is not None:
        return _FORM_HINT
    return f"a number chooses, {_LINE_HINT}" if len(approval.options) > 1 else _LINE_HINT


async def read_answer(approval: ApprovalView, reader: LineReader, drafts: Drafts) -> str:
    """The valid answer that was typed; or LATER, NO or STOP."""
    try:
        if approval.form is None:
            return await _read_option(approval, reader)
        drafts.setdefault(approval.approval_id, FormDraft(approval.form))
        return await _fill_form(approval.approval_id, reader, drafts)
    except EOFError:
        return LATER


async def _read_option(approval: ApprovalView, reader: LineReader) -> str:
    while True:
        answer = resolve_option(approval, await reader.read_line("answer> "))
        if answer in (LATER, NO, STOP) or approval.other or answer in approval.options:
            return answer
        reader.print_above(Text(f"  {describe_only_answers(approval)}; {NO} declines"))


async def _fill_form(approval_id: str, reader: LineReader, drafts: Drafts) -> str:
    words = _format_prompt(drafts[approval_id])
    while True:
        draft = drafts[approval_id]
        reader.print_above(Text("\n".join(words)))
        text = await reader.read_line(f"{format_line(draft.name or 'send', 60)}> ")
        if text.strip() in (NO, STOP):
            return text.strip()
        if draft.name is None and not text.strip():
            return draft.content
        try:
            drafts[approval_id] = _apply_line(draft, text)
            words = _format_prompt(drafts[approval_id])
        except ValueError as reason:
            words = ["  " + format_line(f"{draft.name or ''} {reason}", 1_000)]


def _apply_line(draft: FormDraft, text: str) -> FormDraft:
    """The draft after a typed line; ValueError for an invalid line."""
    if text.strip() == BACK:
        return draft.step_back()
    return draft.take_text(text) if draft.name is not None else draft.change_field(text.strip())


def _format_prompt(draft: FormDraft) -> list[str]:
    """The lines above the input line."""
    if draft.name is not None:
        return ["", *draft.format_question()]
    return ["", "Your answer:", *draft.format_review(), f"  ({_SEND_HINT})"]


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
"""The labels for a call of which it is unknown whether it ran."""
DONE_ANSWER = "It was done."
KEY_DECISIONS = {
    "y": ("proceed_once", False, "Approved."),
    "n": ("cancel", False, "Refused."),
    "N": ("cancel", True, "Refused, and the turn stops."),
}
"""The decision, whether it stops the turn, and what is printed, by key."""
UNKNOWN_OUTCOME_DECISIONS = {
    "y": ("proceed_once", False, "It runs again."),
    "n": ("cancel", False, "Recorded as failed."),
    "N": ("cancel", True, "Recorded as failed, and the turn stops."),
}


def list_keys(approval: ApprovalView, offer: int | None) -> dict[str, str]:
    """The keys that answer an approval, with their labels. With `offer`, one of its grants is about to be given."""
    if approval.kind == approval_text.QUESTION_KIND:
        return {}
    if offer is not None:
        numbers = {str(number): "another" for number in range(1, min(len(approval.offers), 9) + 1)}
        return {"y": "yes", "n": "no", **numbers}
    keys = UNKNOWN_OUTCOME_LABELS if approval.kind == approval_text.UNKNOWN_KIND else KEY_LABELS
    return {key: label for key, label in keys.items() if key != "a" or approval.offers}


def format_keys(approval: ApprovalView, offer: int | None, width: int) -> str:
    """The keys with their labels, on as many lines as they need; no label is broken."""
    if offer is None:
        words = [f"[{key}] {label}" for key, label in list_keys(approval, None).items()]
    else:
        most = min(len(approval.offers), 9)
        words = [f"from now on, as {offer + 1}?", "[y] yes", "[n] no", *([f"[1-{most}] another"] if most > 1 else [])]
    return "\n".join(_fill_lines(words, width))


def describe_waiting(waiting: list[Row], again: str) -> str:
    """What is pending, and how to decide; `again` says how to be asked here again."""
    kinds = {row.asks == approval_text.QUESTION_KIND for row in waiting}
    what = "a decision" if kinds != {True} else "an answer"
    commands = " or ".join(f"`holdfast {'respond' if kind else 'approve'}`" for kind in sorted(kinds))
    return f"{what}: {again} to be asked, or use {commands}"


def format_heading(approval: ApprovalView, place: str) -> str:
    """The first line of a question."""
    if approval.kind == approval_text.QUESTION_KIND:
        by = f": {approval_text.describe_asker(approval)}" if approval.server else ","
        return f"{place.capitalize()}, {render.format_tool(approval.tool, approval.display_name)}{by} asks you:"
    if approval.kind == approval_text.UNKNOWN_KIND:
        return f"Unknown outcome of {place}: {render.format_line(approval.title)}"
    return f"Approve {place}? {render.format_line(approval.title)}"


def describe_delivery(acknowledged: DecisionResult | None) -> str:
    """A note if no worker has acknowledged the decision; empty otherwise."""
    return "" if acknowledged else " No worker answered, so it was sent as a signal for the next one."


def _fill_lines(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines
