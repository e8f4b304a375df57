"""What a run of the harness found: numbers for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.domain.base import Data
from tests.chaos.harness.deaths import Death
from tests.chaos.harness.judging import EndedTurn, Finding, Wrong
from tests.chaos.harness.person import AGAIN, DONE, FAIL, Question
from tests.chaos.harness.plan import Point

SHOWN = 40
"""Findings that are printed; JSON has all of them."""


class Kills(Data):
    """Every SIGKILL."""

    all: int
    worker: int
    server: int
    at_points: dict[Point, int]
    """Of workers, at named points."""
    at_random: int
    """Of workers, at random moments."""
    while_running: int
    """While calls ran: on that worker, or, of the server, anywhere."""


class Asked(Data):
    """Of what nobody knew."""

    all: int
    done: int
    again: int
    failed: int
    while_going_on: int
    """That came while an attempt at the same call still lived."""


class Report(Data):
    """One run."""

    seed: int
    seconds: float
    turns: int
    calls: int
    answered: dict[str, int]
    """By status, errors by their type."""
    kills: Kills
    other_faults: dict[str, int]
    disk: str
    approved: int
    asked: Asked
    workers_ended_by_themselves: int
    wrong: dict[Wrong, int]
    findings: list[Finding]
    shortcomings: list[str]
    """What the run itself failed to do, or left behind."""

    @property
    def good(self) -> bool:
        """Was everything as it should be?"""
        return not self.findings and not self.shortcomings


def kills_of(deaths: Sequence[Death]) -> Kills:
    """Counted."""
    workers = [death for death in deaths if death.whom == "worker"]
    points = Counter(death.point for death in workers if death.point)
    return Kills(
        all=len(deaths),
        worker=len(workers),
        server=len(deaths) - len(workers),
        at_points={point: points[point] for point in Point},
        at_random=len(workers) - sum(points.values()),
        while_running=sum(death.running > 0 for death in deaths),
    )


def asked_of(questions: Sequence[Question], while_going_on: int) -> Asked:
    """Counted."""
    answers = Counter(question.answer for question in questions)
    return Asked(
        all=len(questions),
        done=answers[DONE],
        again=answers[AGAIN],
        failed=answers[FAIL],
        while_going_on=while_going_on,
    )


def answered_of(turns: Iterable[EndedTurn]) -> dict[str, int]:
    """How many calls ended how."""
    responses = [response for turn in turns if turn.result for response in turn.result.responses]
    return dict(Counter(each.error.type if each.error else each.status for each in responses))


def wrong_of(findings: Sequence[Finding]) -> dict[Wrong, int]:
    """How many of each, those of which there are none included."""
    counted = Counter(finding.wrong for finding in findings)
    return {wrong: counted[wrong] for wrong in Wrong}


def text_of(report: Report) -> str:
    """For people."""
    kills, asked = report.kills, report.asked
    minutes, seconds = divmod(round(report.seconds), 60)
    points = ", ".join(f"{point.value.replace('_', ' ')} {number}" for point, number in kills.at_points.items())
    lines = [
        f"Seed {report.seed}: {report.turns} turns, {report.calls} calls, {minutes} min {seconds:02} s",
        f"  answered   {_listed(report.answered)}",
        f"  kills      {kills.all}, of which {kills.while_running} while calls ran",
        f"    worker   {kills.worker}: at random {kills.at_random}, {points}",
        f"    server   {kills.server}",
        f"  besides    {_listed(report.other_faults)} ({report.disk})",
        f"  asked      {asked.all}: taken as done {asked.done}, run again {asked.again}, failed {asked.failed}"
        f" ({asked.while_going_on} while an attempt went on); {report.approved} ordinary approvals",
        f"  wrong      {_listed({wrong.value: number for wrong, number in report.wrong.items()})}",
    ]
    lines += [f"    {finding.wrong.value:8} {finding.where}: {finding.words}" for finding in report.findings[:SHOWN]]
    lines += [f"    {short}" for short in report.shortcomings]
    lines.append("Everything was as it should be." if report.good else "This is not as it should be.")
    return "\n".join(lines)


def _listed(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items()) or "nothing"
