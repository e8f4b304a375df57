"""What a person types at a terminal to answer a question: a line, or a form field by field.

What does not fit is asked again here, before anything is sent. The turn checks it all the same.
"""

from __future__ import annotations

from holdfast.views import ApprovalView
from holdfast.workers.filling import Filling
from holdfast.workers.keyboard import Keyboard
from holdfast.workers.questions import chosen, only_answers
from holdfast.workers.render import line

LATER = ""
"""They put it off."""
NO, STOP = "/no", "/stop"
"""They would not say; and the turn is to stop as well."""
BACK = "/back"
_DECLINING = f"{NO} declines, {STOP} declines and stops the turn"
_LINE = f"an empty line skips, {_DECLINING}"
_FORM = f"{BACK} goes back, Ctrl-D puts it off and keeps what you typed, {_DECLINING}"
_SENDING = "an empty line sends it, the number of a field changes that"

Drafts = dict[str, Filling]
"""Forms that were begun, by approval."""


def how_to_answer(approval: ApprovalView) -> str:
    """What can be typed."""
    if approval.form is not None:
        return _FORM
    return f"a number chooses, {_LINE}" if len(approval.options) > 1 else _LINE


async def typed_answer(approval: ApprovalView, keyboard: Keyboard, drafts: Drafts) -> str:
    """The answer that they typed, once it fits; or LATER, NO or STOP."""
    if approval.form is None:
        return await _one_line(approval, keyboard)
    drafts.setdefault(approval.approval_id, Filling(approval.form))
    return await _filled(approval.approval_id, keyboard, drafts)


async def _one_line(approval: ApprovalView, keyboard: Keyboard) -> str:
    told = ""
    while True:
        answer = chosen(approval, await keyboard.line(f"{told}answer> "))
        if answer in (LATER, NO, STOP) or approval.other or answer in approval.options:
            return answer
        told = f"  {only_answers(approval)}; {NO} declines\n"


async def _filled(approval_id: str, keyboard: Keyboard, drafts: Drafts) -> str:
    told = _asked(drafts[approval_id])
    while True:
        filling = drafts[approval_id]
        text = await keyboard.line("\n".join([*told, f"{line(filling.name or 'send', 60)}> "]))
        if not text.endswith("\n"):  # Ctrl-D
            return LATER
        if text.strip() in (NO, STOP):
            return text.strip()
        if filling.name is None and not text.strip():
            return filling.content
        try:
            drafts[approval_id] = _after(filling, text.rstrip("\r\n"))
            told = _asked(drafts[approval_id])
        except ValueError as reason:
            told = ["  " + line(f"{filling.name or ''} {reason}", 1_000)]


def _after(filling: Filling, text: str) -> Filling:
    """After a line; ValueError says what is wrong with it."""
    if text.strip() == BACK:
        return filling.back()
    return filling.take(text) if filling.name is not None else filling.change(text.strip())


def _asked(filling: Filling) -> list[str]:
    """What stands above the prompt."""
    if filling.name is not None:
        return ["", *filling.question()]
    return ["", "Your answer:", *filling.review(), f"  ({_SENDING})"]
