"""Showing things to a person: text for a terminal, or for whoever reads our lines.

Whatever came from a model, a tool or a person is made harmless and printed as it is, without markup: output loses its
control characters (`plain`), and what a person is to decide on shows them written out (`visible`), so nothing hides.
Colours are rich's concern: only on a terminal, never with NO_COLOR.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.approvals import ApprovalId
from holdfast.calls import Call
from holdfast.content import Response, plain, shorten, visible
from holdfast.events import Event
from holdfast.turns import TurnResult
from holdfast.views import ApprovalView, CallView, TurnView
from holdfast.workers.board import Row
from holdfast.workers.cutting import LINE_LIMIT, count_changes, cut_diff, cut_lines

_JUSTIFY: tuple[JustifyMethod, ...] = ("left", "left", "right", "left")
WIDE = 1_000
"""Columns when nobody looks: lines are not to be broken for a pipe."""
QUESTION_LINES = 60
"""Lines of a command or a diff in a question: what is asked must not scroll away."""
STYLES = {
    "validating": "dim",
    "awaiting_approval": "bold yellow",
    "scheduled": "cyan",
    "executing": "bold blue",
    "success": "green",
    "error": "red",
    "cancelled": "magenta",
    "completed": "bold green",
    "stopped": "magenta",
    "failed": "bold red",
}


def console(*, aside: bool = False) -> Console:
    """Standard output, or standard error for what is said beside the answer."""
    width = None if (sys.stderr if aside else sys.stdout).isatty() else WIDE
    return Console(highlight=False, markup=False, emoji=False, width=width, soft_wrap=True, stderr=aside)


def print_line(target: Console, text: Text) -> None:
    """One line, cut to the width of a terminal."""
    target.print(text, no_wrap=True, overflow="ellipsis", soft_wrap=False)


def line(text: str | None, limit: int = 200) -> str:
    """One harmless line of a text."""
    return shorten(" ".join(visible(text or "").split()), limit)


def state(status: str) -> Text:
    """A state, in its colour."""
    return Text(status.replace("_", " "), STYLES.get(status, ""))


def diff(text: str, limit: int | None = None) -> Text:
    """A diff, coloured by line; one over the limit begins with its counts and shows both ends of every change."""
    styles = {"+": "green", "-": "red", "@": "cyan", "…": "dim"}
    lines = visible(text).removesuffix("\n").split("\n")
    shown = Text()
    if limit and len(lines) > limit:
        shown.append(f"{count_changes(lines)}\n", "bold")
    if limit:
        lines = cut_diff(lines, limit)
    for number, row in enumerate(lines):
        shown.append(("\n" if number else "") + row, styles.get(row[:1], ""))
    return shown


def question(approval: ApprovalView, *, heading: str | None = None, more: str | None = None) -> Group:
    """What a person is asked to decide on, bounded; `more` says where all of it is, when it is cut."""
    parts: list[RenderableType] = [Text(heading or line(approval.title), "bold")]
    if approval.command is not None:
        rows = cut_lines(visible(approval.command).split("\n"), QUESTION_LINES)
        parts.append(Text("\n".join(f"  $ {row}" for row in rows), "yellow"))
    elif approval.diff is not None:
        parts.append(diff(approval.diff, QUESTION_LINES))
    elif approval.arguments:
        parts.append(Text(f"  {line(approval.arguments, 1_000)}"))
    if len(approval.programs) > 1:
        parts.append(Text(f"  runs: {line(', '.join(approval.programs), 500)}", "dim"))
    if approval.server or approval.urls:
        parts.append(Text("  " + line(" ".join(filter(None, [approval.server, *approval.urls])), 500)))
    if approval.cut or any(_too_long(text) for text in (approval.command, approval.diff)):
        parts.append(Text(f"  cut: {more or _see_all(approval)}", "bold"))
    return Group(*parts)


def _too_long(text: str | None) -> bool:
    lines = (text or "").removesuffix("\n").split("\n")
    return len(lines) > QUESTION_LINES or max(map(len, lines)) > LINE_LIMIT


def _see_all(approval: ApprovalView) -> str:
    address = ApprovalId.parse(approval.approval_id)
    return f"see all with `holdfast turn show {quoted(address.turn)} --call {address.call}`"


def whole(approval: ApprovalView) -> str:
    """All of what a person is asked to decide on, as text."""
    details = [approval.command, approval.diff, approval.arguments]
    parts = [approval.title, next((text for text in details if text), ""), approval.server or "", *approval.urls]
    return visible("\n\n".join(part for part in parts if part)) + "\n"


def subject(approval: ApprovalView) -> str:
    """What a call is about, in a few words: a file, a command, or its title."""
    return line(f"{approval.tool} {approval.path or approval.command or approval.title}")


def quoted(text: str) -> str:
    """Text to be pasted into a shell."""
    return shlex.quote(plain(text))


def whole_approval(turn_id: str, call: Call) -> ApprovalView:
    """All of what a person is shown of a call, where a view is cut."""
    shown = call.confirmation
    arguments = call.bound.arguments if call.bound else {}
    return ApprovalView(
        approval_id=str(ApprovalId(turn_id, call.id, call.revision)),
        digest=call.bound.digest if call.bound else "",
        tool=call.tool,
        kind=shown.kind if shown else "info",
        title=shown.title if shown else call.tool,
        command=shown.command if shown else None,
        programs=shown.programs if shown else (),
        diff=shown.diff if shown else None,
        path=shown.path if shown else None,
        server=shown.server if shown else None,
        urls=shown.urls if shown else (),
        arguments=json.dumps(arguments, ensure_ascii=False),
    )


def inbox(shown: list[ApprovalView], *, total: int, turns: int) -> Group:
    """What waits, newest first, and how much there is."""
    if not shown:
        return Group(Text("Nothing waits for a decision."))
    first = quoted(shown[0].approval_id)
    some = "" if len(shown) == total else f", the newest {len(shown)} shown"
    counts = f"{total} {'waits' if total == 1 else 'wait'} in {turns} turn{'' if turns == 1 else 's'}{some}"
    hint = f"Decide: holdfast approve {first}   or: holdfast deny {first}"
    return Group(approvals(shown), Text(hint, "dim"), Text(counts, "dim"))


def approvals(shown: Iterable[ApprovalView]) -> Group:
    """Things that wait, each with its id."""
    blocks: list[RenderableType] = []
    for item in shown:
        head = Text(plain(item.approval_id), "bold")
        head.append(f"   {line(item.tool, 60)}, {ago(item.since)}", "dim")
        blocks += [head, question(item), Text("")]
    return Group(*blocks)


def rows(shown: Iterable[Row], now: datetime | None = None, *, asked: str | None = None) -> Table:
    """Calls with their states, one line each, and the end of the output of those that run; `asked` is marked."""
    lines = list(shown)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in _JUSTIFY:
        table.add_column(no_wrap=True, justify=justify)
    table.add_column()  # the one that rich may shrink: its texts do not wrap, they are cut
    for row in lines:
        what = _cut(line(row.error or row.title, 300))
        status = Text("stopping", "magenta") if row.stopping else state(row.status)
        ran = took(row.started, row.ended, now)
        table.add_row(_place(row, row.call == asked), status, ran, Text(line(row.tool, 20)), what)
        for tail in plain(row.tail).rstrip().splitlines()[-3:] if not row.terminal else ():
            table.add_row("", "", "", "", _cut(f"│ {line(tail)}", "dim"))
    return table


def event(item: Event, *, since: datetime | None = None, indent: str = "") -> Text:
    """One event as a line; with `since`, its time is relative."""
    clock = f"{(item.at - since).total_seconds():7.2f} s" if since else item.at.astimezone().strftime("%H:%M:%S")
    text = Text(f"{indent}{clock}  ")
    if item.kind == "call":
        text.append(f"{line(item.call, 20):6} {item.place}/{item.of}  {line(item.tool, 24):<15} ")
        text.append(f"{item.after.replace('_', ' '):<18}", STYLES.get(item.after, ""))
        text.append(line(item.error or item.note or item.title, 110))
        if item.by:
            text.append(f"  (by {line(item.by, 80)})", "dim")
        return text
    subject = {"batch": f"batch {line(item.batch, 20)}", "model": "model", "turn": "turn"}[item.kind]
    text.append(f"{subject} {item.after}", STYLES.get(item.after, "bold"))
    if item.note:
        text.append(f": {line(item.note)}")
    return text


def turn(view: TurnView) -> Group:
    """How a turn stands."""
    head = Text("turn ")
    head.append(plain(view.id), "bold")
    head.append(": ")
    head.append_text(state(view.result.status if view.result else view.state))
    parts: list[RenderableType] = [head]
    if view.prompt:
        parts.append(Text(f"  {line(view.prompt)}", "dim"))
    if view.result:
        parts += result(view.result)
        return Group(*parts)
    if view.batch:
        parts += [Text(f"batch {view.batch.id}", "dim"), rows(map(_row, view.batch.calls))]
    if view.queued:
        parts.append(Text(f"queued: {', '.join(view.queued)}", "dim"))
    for item in view.approvals:
        parts += [Text(""), Text(plain(item.approval_id), "bold"), question(item)]
    return Group(*parts)


def result(ended: TurnResult) -> list[RenderableType]:
    """How a turn ended: every response, then the answer."""
    parts: list[RenderableType] = []
    if ended.reason:
        parts.append(prose(f"  {line(ended.reason, 1_000)}"))
    for batch in ended.batches:
        parts.append(Text(f"batch {batch.id}: {batch.status}", "dim"))
        parts += [_response(found) for found in batch.responses]
    if ended.text is not None:
        parts += [Text(""), prose(ended.text)]
    return parts


def call(whole: Call) -> Group:
    """All there is to know of one call."""
    head = Text(f"call {whole.id} ", "bold")
    head.append(line(whole.tool, 100))
    head.append(" ")
    head.append_text(state(whole.status.value))
    parts: list[RenderableType] = [head]
    facts = {
        "rule": whole.rule,
        "decided": f"{whole.decision.outcome} by {whole.decision.by}" if whole.decision else None,
        "note": whole.decision.note if whole.decision else None,
        "ran": f"{whole.duration.total_seconds():.2f} s" if whole.duration else None,
        "error": f"{whole.error.type}: {whole.error.message}" if whole.error else None,
    }
    parts += [Text(f"  {name:8} {line(value, 2_000)}") for name, value in facts.items() if value]
    arguments = whole.bound.arguments if whole.bound else whole.request.arguments
    parts += [Text("arguments", "dim"), Text(plain(json.dumps(arguments, ensure_ascii=False, indent=2)))]
    if whole.confirmation and whole.confirmation.diff:
        parts += [Text("diff", "dim"), diff(whole.confirmation.diff)]
    if whole.response:
        output = "\n".join(part.text for part in whole.response.parts)
        parts += [Text("output", "dim"), Text(plain(output))]
    return Group(*parts)


def table(header: tuple[str, ...], lines: Iterable[tuple[Any, ...]]) -> Table:
    """Columns."""
    found = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in header:
        found.add_column(name, overflow="fold")
    for row in lines:
        found.add_row(*(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row))
    return found


def ago(then: datetime | None) -> str:
    """How long ago, roughly."""
    if then is None:
        return "some time ago"
    seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{seconds} s ago"


def local(moment: str | None) -> str:
    """A moment as the clock here shows it."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


def prose(text: str) -> Text:
    """Text that is broken between words on a terminal, and not at all elsewhere."""
    return Text(plain(text), no_wrap=not sys.stdout.isatty())


def took(started: datetime | None, ended: datetime | None, now: datetime | None = None) -> str:
    """How long a call has run."""
    end = ended or now
    if started is None or end is None:
        return ""
    return f"{max(0.0, (end - started).total_seconds()):.1f} s"


def _cut(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _place(row: Row, asked: bool) -> Text:
    mark = "▸" if asked else " "
    return Text(f"{mark} {line(row.call, 20)} {row.place}/{row.of}", "bold yellow" if asked else "dim")


def _row(view: CallView) -> Row:
    return Row(
        call=view.id,
        batch="",
        place=view.place,
        of=view.of,
        tool=line(view.tool, 40),
        status=view.status.value,
        title=view.title,
        error=f"{view.error_type}: {view.error}" if view.error else None,
        stopping=bool(view.stopping) and not view.ended_at,
        started=view.started_at,
        ended=view.ended_at or (datetime.now(UTC) if view.started_at else None),
        tail=view.live_output or "",
    )


def _response(found: Response) -> Text:
    text = _cut(f"  {found.call_id:6} {line(found.tool, 24):<15} ")
    text.append(f"{found.status:<10}", STYLES.get(found.status, ""))
    text.append(line(plain(found.text), 160))
    return text
