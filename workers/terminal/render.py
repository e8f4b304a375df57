"""Text for people, on a terminal or as plain lines.

Text of models, tools and people is printed without markup: control characters are removed from output
(`strip_controls`), and shown escaped in what a person decides on (`escape_controls`), so that nothing is hidden. rich
writes colours only on a terminal, and never with NO_COLOR.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.styled import Styled
from rich.text import Text

from holdfast.domain.approvals.approval import ToolNotes
from holdfast.domain.calls.call import Call
from holdfast.domain.calls.events import Event
from holdfast.domain.content import Response, escape_name, format_tool_name
from holdfast.domain.turn.activity_io import LiveOutput
from holdfast.util.text import (
    count_changes,
    cut_diff,
    drop_surrogates,
    escape_controls,
    shorten_text,
    strip_all_but_styles,
    strip_controls,
)
from holdfast.workers.terminal.layout import UNBOUNDED_WIDTH, CallCell, PlainTable, Prose
from holdfast.workers.terminal.turn_board import Row

WORDS_LIMIT = 1_000
"""Most characters of the text about a call in one line."""
STATUS_STYLES = {
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
    "delivered": "green",
    "discarding": "dim",
    "discarded": "dim",
    "interrupted": "bold yellow",
    "context": "cyan",
}


def build_console(*, to_stderr: bool = False) -> Console:
    """A console on standard output, or on standard error for remarks beside the answer."""
    width = None if (sys.stderr if to_stderr else sys.stdout).isatty() else UNBOUNDED_WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width, soft_wrap=True, stderr=to_stderr)


def print_line(target: Console, item: RenderableType) -> None:
    """One line, cut to the width of a terminal; or as many as an event needs for its names."""
    target.print(item, no_wrap=True, overflow="ellipsis", soft_wrap=False)


def format_line(text: str | None, limit: int = 200) -> str:
    """The text in one line, with escaped control characters, shortened to the limit."""
    return shorten_text(" ".join(escape_controls(text or "").split()), limit)


def format_tool(tool: str, display_name: str | None, beside: str = "") -> str:
    """The name of a tool and, in quotes, what its author calls it, where that is another name and not said `beside`.

    Its author may be anybody: the name that rules and approvals go by is always shown, and comes first.
    """
    real, called = format_tool_name(tool), format_line(display_name, 80)
    return real if called in ("", real) or called in beside else f"{real} ({json.dumps(called, ensure_ascii=False)})"


def render_name(text: str) -> Text:
    """An id in a table."""
    return Text(escape_name(text))


def render_state(status: str) -> Text:
    """A state, in its colour."""
    return Text(status.replace("_", " "), STATUS_STYLES.get(status, ""))


def render_diff(text: str, limit: int | None = None, changes: str | None = None) -> Text:
    """A diff, coloured by line; one over the limit begins with its counts and shows both ends of every change.

    `changes` are the counts of the whole, where the text is cut already.
    """
    styles = {"+": "green", "-": "red", "@": "cyan", "…": "dim"}
    lines = escape_controls(text).removesuffix("\n").split("\n")
    shown = Text()
    if changes or (limit and len(lines) > limit):
        shown.append(f"{changes or count_changes(lines)}\n", "bold")
    if limit:
        lines = cut_diff(lines, limit)
    for number, row in enumerate(lines):
        shown.append(("\n" if number else "") + row, styles.get(row[:1], ""))
    return shown


def quote_shell(text: str) -> str:
    """Quote text so that a shell passes it on unchanged when it is pasted.

    Text that begins with `-` could be taken for an option: it is changed visibly, so that no id matches it.
    """
    if text.startswith("-"):
        return shlex.quote(f"⟨-⟩{escape_name(text[1:])}")
    if escape_name(text) == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, drop_surrogates(text)))}'"


def _escaped(character: str) -> str:
    """Escape a character for bash and zsh between `$'` and `'`."""
    if character in "\\'":
        return f"\\{character}"
    code = ord(character)
    if escape_name(character) == character:
        return character
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def render_rows(
    shown: Iterable[Row],
    now: datetime | None = None,
    *,
    asked_call_id: str | None = None,
    held_back: Mapping[str, str] | None = None,
) -> PlainTable:
    """Calls with their states, and the end of the output of those that run.

    `asked_call_id` is marked. `held_back` says what a call waits for whose result is not delivered yet.
    """
    rows, waits = list(shown), held_back or {}
    names = [format_tool(row.tool, row.display_name, row.error or row.title) for row in rows]
    width = max(map(cell_len, names), default=0)
    lines = [
        (
            _render_place(row, row.call == asked_call_id),
            Text("stopping", "magenta") if row.stopping else render_state(row.status),
            Text(format_run_time(row.started, row.ended, now)),
            CallCell(name, _describe_row(row, waits.get(row.call)), _render_tail(row), width),
        )
        for row, name in zip(rows, names, strict=True)
    ]
    return PlainTable(lines, right=frozenset({2}))


def _describe_row(row: Row, held_back: str | None) -> Text:
    waits = (f"delivered {held_back}: ", "dim") if held_back else ""
    return Text.assemble(waits, format_line(row.error or row.title, WORDS_LIMIT))


def _render_tail(row: Row) -> list[Text]:
    """Who decided, and the last lines of the output of a call that runs."""
    tail = [] if row.is_terminal else [one for one in render_styled(row.tail).split("\n") if one.plain.strip()]
    lines = [*([Text(format_line(row.decided, 400), "dim")] if row.decided else []), *(one[:400] for one in tail[-3:])]
    return [Text("│ ", "dim").append_text(line) for line in lines]


def render_output(live: LiveOutput) -> Text:
    """The output of a tool, with its colours if it has any."""
    return render_styled(live.styled or live.tail)


def render_styled(text: str) -> Text:
    """A text with the colours of its escape codes; all other escape codes are removed."""
    return Text.from_ansi(strip_all_but_styles(text), end="")


def render_event(
    item: Event,
    *,
    since: datetime | None = None,
    indent: str = "",
    growing: bool = False,
    remark: str | None = None,
    dim: bool = False,
) -> RenderableType:
    """One event as a line; with `since`, its time is relative.

    `growing`: the batch of the call may get further calls. `remark` replaces the text of the event.
    """
    clock = f"{(item.at - since).total_seconds():7.2f} s" if since else item.at.astimezone().strftime("%H:%M:%S")
    by = Text(f"  (by {format_actor(item.actor, item.by)})" if item.by else "", "dim")
    if item.kind in ("call", "result"):
        after = "delivered" if item.kind == "result" else item.after
        said = format_line(remark or item.error or item.note or item.title, WORDS_LIMIT)
        words = Text(said).append_text(by)
        row: list[RenderableType] = [
            Text(indent + clock),
            Text(f"{format_line(item.call, 20):6} {item.place}/{item.of}{'+' if growing else ''}"),
            Text(f"{after.replace('_', ' '):<17}", STATUS_STYLES.get(after, "")),
            CallCell(format_tool(item.tool or "", item.display_name, said), words),
        ]
        return Styled(PlainTable([row]), "dim") if dim else PlainTable([row])
    text = Text(f"{indent}{clock}  ")
    subject = {"batch": f"batch {format_line(item.batch, 20)}", "model": "model", "turn": "turn"}[item.kind]
    calls = f" {format_call_count(item.of or 0)}" if item.after == "discarding" else ""
    text.append(f"{subject} {item.after}{calls}", STATUS_STYLES.get(item.after, "bold"))
    if item.note:
        text.append(f": {format_line(item.note)}")
    return text.append_text(by)


def format_call_count(calls: int) -> str:
    """The number with `call` or `calls`."""
    return "1 call" if calls == 1 else f"{calls:,} calls"


def render_call(whole: Call) -> Group:
    """Everything about one call."""
    head = Text(f"call {whole.id} ", "bold")
    head.append(format_tool(whole.tool, whole.bound.tool.display_name if whole.bound else None))
    head.append(" ")
    head.append_text(render_state(whole.status.value))
    parts: list[RenderableType] = [head]
    facts = {
        "rule": whole.rule,
        "decided": _describe_decision(whole),
        "approved": ", ".join(one.by or "somebody" for one in whole.approvals) if len(whole.approvals) > 1 else None,
        "note": whole.decision.note if whole.decision else None,
        "changed": f"by {' and '.join(whole.changed_by)}" if whole.changed_by else None,
        "editing": whole.editing.by if whole.editing else None,
        "problem": whole.problem,
        "took": f"{whole.duration.total_seconds():.2f} s" if whole.duration else None,
        "ran": f"{whole.execution_time.total_seconds():.2f} s" if whole.execution_time else None,
        "error": f"{whole.error.type}: {whole.error.message}" if whole.error else None,
    }
    parts.append(render_facts((name, format_line(value, 2_000)) for name, value in facts.items() if value))
    arguments = whole.bound.arguments if whole.bound else whole.request.arguments
    if whole.original is not None:
        parts += [Text("arguments as requested", "dim"), _render_json(whole.original)]
    parts += [Text("arguments", "dim"), _render_json(arguments)]
    shown = whole.confirmation
    if shown and (known := describe_definition(shown.server, shown.about)):
        parts += [Text("tool", "dim"), *(build_prose(f"  {words}") for words in known)]
    if shown and shown.diff:
        parts += [Text("diff", "dim"), render_diff(shown.diff)]
    if whole.response:
        output = "\n".join(part.text for part in whole.response.parts)
        parts += [Text("output", "dim"), Text(strip_controls(output))]
        display = whole.response.display
        if display and not (shown and display == shown.diff):
            parts += [Text("shown to people", "dim"), Text(strip_controls(display))]
    return Group(*parts)


def render_facts(facts: Iterable[tuple[str, str]], style: str = "") -> PlainTable:
    """Names and values below a heading, each on a line."""
    return PlainTable([(Text(f"  {name}", style), Text(value, style)) for name, value in facts])


def describe_definition(server: str | None, about: ToolNotes | None) -> list[str]:
    """The definition of a server's tool, line by line: its description and hints, and the effect that they give."""
    found = [f"server {format_line(server, 100)}"] if server else []
    if about is None:
        return found
    if about.effect:
        found.append(f"effect {format_line(about.effect, 50)}: {format_line(about.because)}")
    if about.hints:
        found.append(f"the server's hints: {format_line(', '.join(about.hints), 500)}")
    lines = escape_controls(about.description).strip().split("\n")
    return [*found, "described as:", *(f"  {line}".rstrip() for line in lines)] if about.description else found


def build_table(header: tuple[str, ...], rows: Iterable[tuple[Any, ...]], right: Iterable[int] = ()) -> PlainTable:
    """A table. On a narrow terminal the last column is wrapped; the columns in `right` are aligned to the right."""
    return PlainTable([tuple(map(_build_cell, row)) for row in rows], header, frozenset(right))


def build_responses(responses: Iterable[Response], decisions: Mapping[str, str]) -> PlainTable:
    """The responses of calls, each with who decided where that is known."""
    found = list(responses)
    width = max((cell_len(format_tool_name(one.tool)) for one in found), default=0)
    rows = []
    for one in found:
        below = [Text(decisions[one.call_id], "dim")] if decisions.get(one.call_id) else []
        text = Text(format_line(strip_controls(one.text), WORDS_LIMIT))
        cell = CallCell(format_tool_name(one.tool), text, below, width)
        rows.append((Text(f"  {one.call_id}"), render_state(one.status), cell))
    return PlainTable(rows)


def _build_cell(value: Any) -> Text:
    return value if isinstance(value, Text) else Text(" ".join(strip_controls(str(value)).split()))


def format_age(then: datetime | None) -> str:
    """How long ago, roughly."""
    if then is None:
        return "some time ago"
    seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return f"{seconds} s ago"


def format_local_time(moment: str | None, *, zone: bool = False) -> str:
    """A moment in local time; with the zone, as `2031-01-01 12:00:00 +01:00`."""
    if not moment:
        return ""
    here = datetime.fromisoformat(moment).astimezone()
    return here.strftime("%Y-%m-%d %H:%M:%S") + (f" {here.isoformat()[-6:]}" if zone else "")


def build_prose(text: str) -> Prose:
    """Text that is wrapped between words on a terminal, and not wrapped elsewhere."""
    return Prose(strip_controls(text))


def format_run_time(started: datetime | None, ended: datetime | None, now: datetime | None = None) -> str:
    """How long a call has run."""
    end = ended or now
    if started is None or end is None:
        return ""
    return f"{max(0.0, (end - started).total_seconds()):.1f} s"


def format_actor(kind: str | None, name: str) -> str:
    """Who decided: a person by name, others with their kind."""
    return format_line(name if kind in (None, "person") else f"{kind}: {name}", 120)


def _describe_decision(whole: Call) -> str | None:
    by = format_actor(whole.actor.kind, whole.actor.name) if whole.actor else None
    if whole.decision:
        return f"{whole.decision.outcome} by {by or whole.decision.by}"
    return f"by {by}" if by else None


def _render_json(value: Any) -> Text:
    return Text(escape_controls(json.dumps(value, ensure_ascii=False, indent=2)))


def _render_place(row: Row, is_asked: bool) -> Text:
    mark = "▸" if is_asked else " "
    which = f"{mark} {format_line(row.call, 20)} {row.place}/{row.of}{'+' if row.growing else ''}"
    return Text(which, "bold yellow" if is_asked else "dim")
