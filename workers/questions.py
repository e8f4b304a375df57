"""What a person is asked, as they see it: an approval with its command or diff, or a question with its answers."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.approvals import ApprovalId
from holdfast.calls import Call
from holdfast.content import plain, visible
from holdfast.views import ApprovalView
from holdfast.workers.cutting import LINE_LIMIT, cut_lines
from holdfast.workers.render import ago, diff, line, prose, quoted

QUESTION = "question"
OTHERS_LIMIT = 1_000
QUESTION_LINES = 60
"""Lines of a command or a diff in a question: what is asked must not scroll away."""


def how_to_decide(approval_id: str, kind: str | None) -> str:
    """The command that says yes, or that answers."""
    if kind == QUESTION:
        return f"holdfast respond {quoted(approval_id)} --content ANSWER"
    return f"holdfast approve {quoted(approval_id)}"


def chosen(approval: ApprovalView, typed: str) -> str:
    """What somebody means who typed this: an option's number or words stand for the option."""
    words = typed.strip()
    if words.isdigit() and 0 < int(words) <= len(approval.options):
        return approval.options[int(words) - 1]
    return next((option for option in approval.options if option.casefold() == words.casefold()), words)


def question(approval: ApprovalView, *, heading: str | None = None, more: str | None = None) -> Group:
    """What a person is asked to decide on, bounded; `more` says where all of it is, when it is cut."""
    parts: list[RenderableType] = [Text(heading or line(approval.title), "bold")]
    if approval.kind == QUESTION:
        return Group(*_asked(approval, heading))
    if approval.command is not None:
        rows = cut_lines(visible(approval.command).split("\n"), QUESTION_LINES)
        parts.append(Text("\n".join(f"  $ {row}" for row in rows), "yellow"))
    elif approval.diff is not None:
        parts.append(diff(approval.diff, QUESTION_LINES))
    if approval.others:
        parts.append(Text(f"  with {line(approval.others, OTHERS_LIMIT)}", "yellow"))
    if len(approval.programs) > 1:
        parts.append(Text(f"  runs: {line(', '.join(approval.programs), 500)}", "dim"))
    if approval.doubts:
        parts.append(Text(f"  not known before it runs: {line('; '.join(approval.doubts), 500)}", "magenta"))
    if approval.reason:
        parts.append(Text(f"  asked because: {line(approval.reason, 500)}", "dim"))
    if approval.server or approval.urls:
        parts.append(Text("  " + line(" ".join(filter(None, [approval.server, *approval.urls])), 500)))
    long = len(approval.others) > OTHERS_LIMIT
    if approval.cut or long or any(_too_long(text) for text in (approval.command, approval.diff)):
        parts.append(Text(f"  cut: {more or _see_all(approval)}", "bold"))
    return Group(*parts)


def _asked(approval: ApprovalView, heading: str | None) -> list[RenderableType]:
    """A question to the person: all of its words, and the answers to choose from."""
    parts: list[RenderableType] = [Text(heading, "bold")] if heading else []
    parts += [prose(f"  {row}") for row in (approval.question or approval.title).split("\n")]
    parts += [Text(f"  {number}. {line(option)}") for number, option in enumerate(approval.options, start=1)]
    if approval.options and not approval.other:
        parts.append(Text("  one of these", "dim"))
    return parts


def _too_long(text: str | None) -> bool:
    lines = (text or "").removesuffix("\n").split("\n")
    return len(lines) > QUESTION_LINES or max(map(len, lines)) > LINE_LIMIT


def _see_all(approval: ApprovalView) -> str:
    address = ApprovalId.parse(approval.approval_id)
    return f"see all with `holdfast turn show {quoted(address.turn)} --call {address.call}`"


def whole(approval: ApprovalView) -> str:
    """All of what a person is asked to decide on, as text."""
    details = [approval.question, approval.command, approval.diff, approval.others]
    parts = [approval.title, *(text or "" for text in details), approval.server or "", *approval.urls]
    return visible("\n\n".join(part for part in parts if part)) + "\n"


def subject(approval: ApprovalView) -> str:
    """What a call is about, in a few words: a file, a command, or its title."""
    return line(f"{approval.tool} {approval.path or approval.command or approval.title}")


def whole_approval(turn_id: str, call: Call) -> ApprovalView:
    """All of what a person is shown of a call, where a view is cut."""
    shown = call.confirmation
    arguments = call.bound.arguments if call.bound else {}
    untold = {name: value for name, value in arguments.items() if not shown or name not in shown.told}
    return ApprovalView(
        approval_id=str(ApprovalId(turn_id, call.id, call.revision)),
        digest=call.bound.digest if call.bound else "",
        tool=call.tool,
        kind=shown.kind if shown else "info",
        title=shown.title if shown else call.tool,
        command=shown.command if shown else None,
        programs=shown.programs if shown else (),
        doubts=shown.doubts if shown else (),
        reason=shown.reason if shown else None,
        diff=shown.diff if shown else None,
        path=shown.path if shown else None,
        server=shown.server if shown else None,
        urls=shown.urls if shown else (),
        question=shown.question if shown else None,
        options=shown.options if shown else (),
        other=shown.other if shown else True,
        arguments=json.dumps(arguments, ensure_ascii=False),
        others=json.dumps(untold, ensure_ascii=False) if untold else "",
    )


def inbox(shown: list[ApprovalView], *, total: int, turns: int) -> Group:
    """What waits, newest first, and how much there is."""
    if not shown:
        return Group(Text("Nothing waits for a decision."))
    some = "" if len(shown) == total else f", the newest {len(shown)} shown"
    counts = f"{total} {'waits' if total == 1 else 'wait'} in {turns} turn{'' if turns == 1 else 's'}{some}"
    first = shown[0]
    hint = f"Decide: {how_to_decide(first.approval_id, first.kind)}   or: holdfast deny {quoted(first.approval_id)}"
    return Group(approvals(shown), Text(hint, "dim"), Text(counts, "dim"))


def approvals(shown: Iterable[ApprovalView]) -> Group:
    """Things that wait, each with its id."""
    blocks: list[RenderableType] = []
    for item in shown:
        head = Text(plain(item.approval_id), "bold")
        head.append(f"   {line(item.tool, 60)}, {ago(item.since)}", "dim")
        blocks += [head, question(item), Text("")]
    return Group(*blocks)
