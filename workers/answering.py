"""What a person types at a terminal to answer a question: a line, or a form field by field.

What does not fit is asked again here, before anything is sent. The turn checks it all the same.
"""

from __future__ import annotations

from holdfast.views import ApprovalView
from holdfast.workers.filling import FormDraft
from holdfast.workers.keyboard import Keyboard
from holdfast.workers.questions import describe_only_answers, resolve_option
from holdfast.workers.render import format_line

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
