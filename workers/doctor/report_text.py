"""Reports for a person: a mark and a sentence for each finding, and below it what to do. Colours only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.text import Text

from holdfast.util.findings import Finding, Level
from holdfast.util.text import escape_controls
from holdfast.workers.doctor.run_checks import Report, count_findings
from holdfast.workers.terminal import render
from holdfast.workers.terminal.layout import PlainTable

MARKS: dict[Level, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "warning": ("!", "!", "yellow"),
    "problem": ("✗", "X", "bold red"),
}
"""The mark, an ASCII replacement, and the colour."""


def print_reports(reports: Sequence[Report]) -> None:
    """Print all reports and a summary."""
    target = render.build_console()
    target.print(PlainTable([row for report in reports for row in _build_rows(report)]))
    render.build_console().print(format_summary(reports))


def format_summary(reports: Sequence[Report]) -> str:
    """The summary in one line."""
    problems, warnings = count_findings(reports, "problem"), count_findings(reports, "warning")
    if not problems and not warnings:
        return "No problems."
    return f"{_format_count(problems, 'problem')}, {_format_count(warnings, 'warning')}."


def _build_rows(report: Report) -> Iterator[tuple[Text, ...]]:
    for place, finding in enumerate(report.findings):
        name = report.check if place == 0 else ""
        yield Text(name), _render_mark(finding), Text(_escape_text(finding.says))
        if finding.do:
            yield Text(""), Text(""), Text(f"{_choose_arrow()} {_escape_text(finding.do)}", "dim")


def _escape_text(text: str) -> str:
    return " ".join(escape_controls(text).split())


def _render_mark(finding: Finding) -> Text:
    mark, plain, style = MARKS[finding.level]
    return Text(mark if _can_encode(mark) else plain, style)


def _choose_arrow() -> str:
    return "→" if _can_encode("→") else "->"


def _can_encode(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
