"""What was found, for a person: a mark and a sentence for each, and below it what to do. Colours only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.text import Text

from holdfast.content import visible
from holdfast.workers import render
from holdfast.workers.columns import Columns, Line
from holdfast.workers.doctor.findings import Finding, Level, Report, count

MARKS: dict[Level, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "warning": ("!", "!", "yellow"),
    "problem": ("✗", "X", "bold red"),
}
"""The mark, the same where it cannot be written, and its colour."""


def tell(reports: Sequence[Report]) -> None:
    """All of it."""
    target = render.console()
    target.print(Columns([line for report in reports for line in _lines(report)]))
    render.console().print(summary(reports))


def summary(reports: Sequence[Report]) -> str:
    """In one line."""
    problems, warnings = count(reports, "problem"), count(reports, "warning")
    if not problems and not warnings:
        return "Everything is well."
    return f"{_counted(problems, 'problem')}, {_counted(warnings, 'warning')}."


def _lines(report: Report) -> Iterator[Line]:
    for place, finding in enumerate(report.findings):
        name = report.check if place == 0 else ""
        yield Line((Text(name), _mark(finding), Text(_shown(finding.says))))
        if finding.do:
            yield Line((Text(""), Text(""), Text(f"{_arrow()} {_shown(finding.do)}", "dim")))


def _shown(text: str) -> str:
    return " ".join(visible(text).split())


def _mark(finding: Finding) -> Text:
    mark, plain, style = MARKS[finding.level]
    return Text(mark if _can_say(mark) else plain, style)


def _arrow() -> str:
    return "→" if _can_say("→") else "->"


def _can_say(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
