"""Approvals and questions as a person sees them: with the command or diff, or with the answers to choose from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.domain.approvals.approval import ApprovalId, Needs
from holdfast.domain.content import escape_name, format_tool_name
from holdfast.domain.forms.description import describe_fields
from holdfast.domain.forms.validation import find_option, list_fields, list_required
from holdfast.domain.turn.activity_io import QUESTION_LIMIT
from holdfast.domain.turn.approval_view import ApprovalView
from holdfast.util.durations import format_duration
from holdfast.util.text import LINE_LIMIT, cut_lines, escape_controls, first_line
from holdfast.workers.terminal.grant_text import number_offers
from holdfast.workers.terminal.render import (
    build_prose,
    describe_definition,
    format_age,
    format_line,
    format_tool,
    quote_shell,
    render_diff,
)

QUESTION_KIND = "question"
UNKNOWN_KIND = "outcome_unknown"
OTHERS_LIMIT = 1_000
QUESTION_LINES = 60
"""Most lines of a command or a diff in a question, so that the question itself stays on the screen."""
DEADLINE_WORDS = {"deny": "denied", "allow": "let run"}
FieldDetail = Literal["some", "all", "names"]
"""How much of a form is shown: some fields, all, or only their names, where they are asked one by one below."""
FIELDS_SHOWN = 50
FIELD_LIMIT = 2_000
"""Characters of a field in a list of them."""


def format_decide_command(approval_id: str, kind: str | None, answer: str = "ANSWER") -> str:
    """The command that approves a call, or answers a question."""
    if kind == QUESTION_KIND:
        return f"holdfast respond {quote_shell(approval_id)} --content {answer}"
    return f"holdfast approve {quote_shell(approval_id)}"


def format_answer_command(approval: ApprovalView) -> str:
    """As `format_decide_command`, with the answer that the approval takes."""
    answer = (
        quote_shell(approval.options[0]) if _has_one_answer(approval) else "JSON" if approval.fields > 1 else "ANSWER"
    )
    return format_decide_command(approval.approval_id, approval.kind, answer)


def resolve_option(approval: ApprovalView, typed: str) -> str:
    """The option that was typed, as its number or its text; else the typed text."""
    words = typed.strip()
    if words.isdecimal() and 0 < int(words) <= len(approval.options) and not _has_one_answer(approval):
        return approval.options[int(words) - 1]
    return find_option(approval.options, words) or words


def describe_only_answers(approval: ApprovalView) -> str:
    """The answers of a question that accepts only its options."""
    return f"the only answer is `{format_line(approval.options[0])}`" if _has_one_answer(approval) else "one of these"


def describe_asker(approval: ApprovalView, the: str = "the") -> str:
    """Who asks a question."""
    return (
        f"{the} MCP server {format_line(approval.server, 100)!r}"
        if approval.server
        else format_tool(approval.tool, approval.display_name)
    )


def render_question(
    approval: ApprovalView, *, heading: str | None = None, more: str | None = None, fields: FieldDetail = "some"
) -> Group:
    """An approval or a question, bounded; `more` says where the whole is shown, when it is cut."""
    head = heading or format_line(approval.title)
    parts: list[RenderableType] = [Text(head, "bold")]
    if approval.kind == QUESTION_KIND:
        return Group(*_render_asked(approval, heading, more, fields), *_render_circumstances(approval))
    parts += [Text(f"  {words}") for words in _list_names(approval)]
    if approval.kind == UNKNOWN_KIND:
        parts += [build_prose(f"  {row}") for row in cut_lines((approval.question or "").split("\n"), QUESTION_LINES)]
        parts.append(Text("  approve: run it again; respond: it was done; deny: it failed", "bold"))
    if approval.command is not None:
        rows = cut_lines(escape_controls(approval.command).split("\n"), QUESTION_LINES)
        parts.append(Text("\n".join(f"  $ {row}" for row in rows), "yellow"))
    elif approval.diff is not None:
        parts.append(render_diff(approval.diff, QUESTION_LINES, approval.changes if approval.cut else None))
    if approval.description:
        parts.append(Text(f"  the model says: {format_line(approval.description, 500)}", "dim italic"))
    if approval.others and approval.others not in head:
        parts.append(Text(f"  with {format_line(approval.others, OTHERS_LIMIT)}", "yellow"))
    if len(approval.programs) > 1:
        parts.append(Text(f"  runs: {format_line(', '.join(approval.programs), 500)}", "dim"))
    if approval.doubts:
        parts.append(Text(f"  not known before it runs: {format_line('; '.join(approval.doubts), 500)}", "magenta"))
    if approval.reason:
        parts.append(Text(f"  asked because: {format_line(approval.reason, 500)}", "dim"))
    if approval.server:
        parts.append(Text(f"  server {format_line(approval.server, 100)}"))
    if approval.about and (words := first_line(approval.about.description)):
        parts.append(build_prose(f"  described as: {words}"))
    if approval.urls:
        parts.append(Text(f"  {format_line(' '.join(approval.urls), 500)}"))
    parts += _render_circumstances(approval)
    long = len(approval.others) > OTHERS_LIMIT
    if approval.cut or long or any(_is_too_long(text) for text in (approval.command, approval.diff)):
        parts.append(Text(f"  cut: {more or describe_full_view(approval)}", "bold"))
    return Group(*parts)


def _list_names(approval: ApprovalView) -> Iterator[str]:
    """The name of a tool that is called something else for people; the title of a server's tool has both already."""
    if not approval.server and approval.display_name not in ("", approval.tool):
        yield f"tool {format_tool(approval.tool, approval.display_name)}"


def _render_asked(
    approval: ApprovalView, heading: str | None, more: str | None, fields: FieldDetail
) -> Iterator[RenderableType]:
    """A question to the person: who asks, the whole text, and the answers to choose from."""
    yield Text(heading or f"{describe_asker(approval, 'The')} asks:", "bold")
    yield from (build_prose(f"  {row}") for row in (approval.question or approval.title).split("\n"))
    if not _has_one_answer(approval):
        yield from (
            Text(f"  {number}. {format_line(option)}") for number, option in enumerate(approval.options, start=1)
        )
    if approval.options and not approval.other:
        yield Text(f"  {describe_only_answers(approval)}", "dim")
    yield from _render_fields(approval, more, fields)
    if approval.cut and (approval.form is not None or not approval.fields):
        yield Text(f"  cut: {more or describe_full_view(approval)}", "bold")


def _render_fields(approval: ApprovalView, more: str | None, shown: FieldDetail) -> Iterator[Text]:
    """The fields of a form; of a long one, how many more there are and where they are shown."""
    if approval.form is None:
        if approval.fields:
            turn = ApprovalId.parse(approval.approval_id).turn
            yield Text(f"  {_format_field_count(approval.fields)}: {more or f'holdfast turn show {quote_shell(turn)}'}")
        return
    if shown == "names":
        needed = list_required(approval.form)
        names = (f"{name}*" if name in needed else name for name in list_fields(approval.form))
        marked = " (* required)" if needed else ""
        yield Text(f"  {_format_field_count(approval.fields)}{marked}: {format_line(', '.join(names), 500)}")
        return
    most, limit = (approval.fields, QUESTION_LIMIT) if shown == "all" else (FIELDS_SHOWN, FIELD_LIMIT)
    yield from (Text(f"  {format_line(row, limit)}") for row in islice(describe_fields(approval.form), most))
    if approval.fields > most:
        yield Text(f"  … and {approval.fields - most:,} more: {describe_full_view(approval)}")


def _has_one_answer(approval: ApprovalView) -> bool:
    return len(approval.options) == 1 and not approval.other


def _format_field_count(fields: int) -> str:
    return f"{fields:,} field{'' if fields == 1 else 's'}"


def _is_too_long(text: str | None) -> bool:
    lines = (text or "").removesuffix("\n").split("\n")
    return len(lines) > QUESTION_LINES or max(map(len, lines)) > LINE_LIMIT


def describe_full_view(approval: ApprovalView) -> str:
    """The command that shows all of the approval."""
    address = ApprovalId.parse(approval.approval_id)
    return f"see all with `holdfast turn show {quote_shell(address.turn)} --call {address.call}`"


def format_whole(approval: ApprovalView) -> str:
    """Everything that a person decides on, as text; of an approval that is not cut."""
    arguments = json.dumps(json.loads(approval.others), indent=2, ensure_ascii=False) if approval.others else ""
    details = [approval.title, *_list_names(approval), approval.question, approval.command, approval.diff, arguments]
    parts = [*details, "\n".join(describe_definition(approval.server, approval.about)), *approval.urls]
    return escape_controls("\n\n".join(part for part in parts if part)) + "\n"


def describe_subject(approval: ApprovalView) -> str:
    """What a call is about, in a few words: its file, its command, the arguments for a server, or its title."""
    arguments = approval.others if approval.kind == "mcp" else ""
    return format_line(f"{approval.tool} {approval.path or approval.command or arguments or approval.title}")


def render_inbox(shown: list[ApprovalView], *, total: int, turns: int) -> Group:
    """The inbox: pending approvals, the most urgent first, and their number."""
    if not shown:
        return Group(Text("No pending approvals."))
    some = "" if len(shown) == total else f", the first {len(shown)} shown"
    counts = f"{total} pending in {turns} turn{'' if turns == 1 else 's'}{some}"
    first = shown[0]
    hint = f"Decide: {format_answer_command(first)}   or: holdfast deny {quote_shell(first.approval_id)}"
    return Group(render_approvals(shown), Text(hint, "dim"), Text(counts, "dim"))


def render_approvals(shown: Iterable[ApprovalView]) -> Group:
    """Pending approvals, each with its id."""
    blocks: list[RenderableType] = []
    for item in shown:
        blocks += [render_label(item, item.since), render_question(item), *render_offers(item), Text("")]
    return Group(*blocks)


def render_label(approval: ApprovalView, since: datetime | None = None) -> Text:
    """The id of an approval, its tool, and how long it has been pending."""
    waits = f", {format_age(since)}" if since else ""
    return Text(escape_name(approval.approval_id), "bold").append(f"   {format_tool_name(approval.tool)}{waits}", "dim")


def render_definitions(shown: Iterable[ApprovalView]) -> Group:
    """The definitions of the servers' tools that calls use, each with its name."""
    blocks: list[RenderableType] = []
    for item in shown:
        words = [build_prose(f"  {row}") for row in describe_definition(item.server, item.about)]
        blocks += [Text(format_tool_name(item.tool), "bold"), *words, Text("")]
    return Group(*blocks)


def render_offers(approval: ApprovalView) -> Iterator[Text]:
    """The grants that the approval offers, numbered."""
    if approval.offers:
        yield Text(
            f"  to allow more than this once: holdfast approve {quote_shell(approval.approval_id)} --scope N", "dim"
        )
    for row in number_offers(approval.offers):
        yield Text(f"    {row}", "dim")


def _render_circumstances(approval: ApprovalView) -> Iterator[Text]:
    """Who changed or edits the call, who must approve it, and the deadline."""
    if approval.changed_by:
        yield Text(f"  arguments changed by {format_line(' and '.join(approval.changed_by), 300)}", "magenta")
    if approval.problem and approval.kind != UNKNOWN_KIND:
        yield Text(f"  the last change was refused: {format_line(approval.problem, 500)}", "magenta")
    if approval.editing:
        yield Text(f"  {format_line(approval.editing, 100)} is editing it", "magenta")
    if approval.needs != Needs():
        yield Text(f"  {'; '.join(_describe_needs(approval))}", "yellow")
    if approval.deadline:
        yield Text(f"  deadline {_describe_deadline(approval)}", "bold yellow" if approval.urgent else "yellow")


def _describe_needs(approval: ApprovalView) -> Iterator[str]:
    needs = approval.needs
    if needs.approvals > 1:
        names = f" ({format_line(', '.join(approval.approved_by), 300)})" if approval.approved_by else ""
        yield f"{len(approval.approved_by)} of {needs.approvals} approvals{names}"
    if needs.role:
        yield f"from somebody with the role {format_line(needs.role, 100)}"
    if needs.not_requester:
        yield "not from the person who started the turn"


def _describe_deadline(approval: ApprovalView) -> str:
    """When the deadline is, rounded, and what happens then."""
    assert approval.deadline, "there is a deadline"
    seconds = int((approval.deadline - datetime.now(UTC)).total_seconds())
    unit = next((unit for least, unit in ((86_400, 3_600), (120, 60)) if seconds >= least), 1)
    when = f"in {format_duration(seconds - seconds % unit)}" if seconds > 0 else "now"
    return f"{when}, then {DEADLINE_WORDS.get(approval.on_deadline or '', 'denied')}"
