"""All that checks found, counted and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.util.findings import Finding, Level

LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")


@dataclass(frozen=True)
class Report:
    """All that one check found."""

    check: str
    findings: tuple[Finding, ...]

    @property
    def worst_level(self) -> Level:
        """How bad the worst of it is."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")


def count_findings(reports: Iterable[Report], level: Level) -> int:
    """How many findings are this bad."""
    return sum(finding.level == level for report in reports for finding in report.findings)


def is_server_lost(reports: Iterable[Report]) -> bool:
    """Could the server not be asked?"""
    return any(finding.lost for report in reports for finding in report.findings)


def reports_as_json(reports: Iterable[Report]) -> dict[str, Any]:
    """The same as JSON."""
    found = tuple(reports)
    checks = [
        {"check": report.check, "level": finding.level, "says": finding.says, "do": finding.do}
        for report in found
        for finding in report.findings
    ]
    return {
        "ok": not count_findings(found, "problem"),
        "problems": count_findings(found, "problem"),
        "warnings": count_findings(found, "warning"),
        "checks": checks,
    }
