"""Reading a person's answer at a terminal: the keys, the prompt, a line or a form.

What does not fit is asked again here, before anything is sent. The turn checks it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.domain.content import format_tool_name
from holdfast.domain.turn.update_bodies import DecisionResult
from holdfast.domain.turn.views import ApprovalView
from holdfast.workers.terminal import approval_text, render
from holdfast.workers.terminal.approval_text import describe_only_answers, resolve_option
from holdfast.workers.terminal.input import Keyboard
from holdfast.workers.terminal.live.form_input import FormDraft
from holdfast.workers.terminal.render import format_line
from holdfast.workers.terminal.turn_board import Row

LATER = ""
"""They put it off."""
NO, STOP = "/no", "/stop"
"""They would not say; and the turn is to stop as well."""
BACK = "/back"
_DECLINE_HINT = f"{NO} declines, {STOP} declines and stops the turn"
_LINE_HINT = f"an empty line skips, {_DECLINE_HINT}"
_FORM_HINT = f"{BACK} goes back, Ctrl-D puts it off and keeps what you typed, {_DECLINE_HINT}"
_SEND_HINT = "an empty line sends it, the number of a field changes that"

Drafts = dict[str, FormDraft]
"""Forms that were begun, by approval."""


def describe_answering(approval: ApprovalView) -> str:
    """What can be typed."""
    if approval.form is not None:
        return _FORM_HINT
    return f"a number chooses, {_LINE_HINT}" if len(approval.options) > 1 else _LINE_HINT


async def read_answer(approval: ApprovalView, keyboard: Keyboard, drafts: Drafts) -> str:
    """The answer that they typed, once it fits; or LATER, NO or STOP."""
    if approval.form is None:
        return await _read_line(approval, keyboard)
    drafts.setdefault(approval.approval_id, FormDraft(approval.form))
    return await _fill_form(approval.approval_id, keyboard, drafts)


async def _read_line(approval: ApprovalView, keyboard: Keyboard) -> str:
    told = ""
    while True:
        answer = resolve_option(approval, await keyboard.read_line(f"{told}answer> "))
        if answer in (LATER, NO, STOP) or approval.other or answer in approval.options:
            return answer
        told = f"  {describe_only_answers(approval)}; {NO} declines\n"


async def _fill_form(approval_id: str, keyboard: Keyboard, drafts: Drafts) -> str:
    told = _format_prompt(drafts[approval_id])
    while True:
        filling = drafts[approval_id]
        text = await keyboard.read_line("\n".join([*told, f"{format_line(filling.name or 'send', 60)}> "]))
        if not text.endswith("\n"):  # Ctrl-D
            return LATER
        if text.strip() in (NO, STOP):
            return text.strip()
        if filling.name is None and not text.strip():
            return filling.content
        try:
            drafts[approval_id] = _apply_line(filling, text.rstrip("\r\n"))
            told = _format_prompt(drafts[approval_id])
        except ValueError as reason:
            told = ["  " + format_line(f"{filling.name or ''} {reason}", 1_000)]


def _apply_line(filling: FormDraft, text: str) -> FormDraft:
    """After a line; ValueError says what is wrong with it."""
    if text.strip() == BACK:
        return filling.step_back()
    return filling.take_text(text) if filling.name is not None else filling.change_field(text.strip())


def _format_prompt(filling: FormDraft) -> list[str]:
    """What stands above the prompt."""
    if filling.name is not None:
        return ["", *filling.format_question()]
    return ["", "Your answer:", *filling.format_review(), f"  ({_SEND_HINT})"]


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
    kinds = {row.asks == approval_text.QUESTION_KIND for row in waiting}
    what = "a decision" if kinds != {True} else "an answer"
    commands = " or ".join(f"`holdfast {'respond' if kind else 'approve'}`" for kind in sorted(kinds))
    return f"{what}: press [a] to be asked, or use {commands}"


def format_heading(approval: ApprovalView, place: str) -> str:
    """The first line of a question."""
    if approval.kind == approval_text.QUESTION_KIND:
        by = f": {approval_text.describe_asker(approval)}" if approval.server else ","
        return f"{place.capitalize()}, {format_tool_name(approval.tool)}{by} asks you:"
    if approval.kind == approval_text.UNKNOWN_KIND:
        return f"What became of {place}? {render.format_line(approval.title)}"
    return f"Approve {place}? {render.format_line(approval.title)}"


def describe_delivery(acknowledged: DecisionResult | None) -> str:
    """How an answer went that no worker has acknowledged."""
    return "" if acknowledged else " No worker answered, so it was left as a signal for the next one."


def format_keys(prompt: str, width: int) -> str:
    """Keys on as many lines as they need; none of them is broken."""
    return "\n".join(_fill_lines(prompt.split("  "), width))


def _fill_lines(words: Iterable[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += f"  {word}"
        else:
            lines.append(word)
    return lines
