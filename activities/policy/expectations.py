"""Tests of a policy: calls with the decision that each should get, as TOML or JSON.

[[expect]]                                 or, as JSON,
tool = "shell"                             {"expect": [{"tool": "shell", "args": {"command": "git push"},
args = { command = "git push" }                         "mode": "default", "decision": "ask"}]}
decision = "ask"
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from holdfast.activities.policy.policy import Policy, Ruling
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.rule_values import Arguments
from holdfast.activities.policy.rules import CallDescription
from holdfast.activities.policy.subject import Subject, build_call_subject
from holdfast.config.toml_document import FileContent, FileProblem, format_problems, parse_document, read_content
from holdfast.config.toml_lines import find_lines
from holdfast.domain.base import StrictData, describe_problems
from holdfast.domain.modes import Mode
from holdfast.errors import BadInput
from holdfast.util.text import escape_controls, shorten_text

_ARRAY_START = re.compile(r'\s*(?:\{\s*"expect"\s*:\s*)?\[')
_SEPARATOR = re.compile(r"\s*,?\s*")
_ARRAY_END = re.compile(r"\s*\]\s*\}?\s*")


class ExpectedDecision(StrEnum):
    """The expected decision; `none` when no rule should match."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    NONE = "none"


class Expectation(CallDescription):
    """A call and the expected decision on it."""

    tool: str
    args: Arguments = Field(default_factory=dict)
    decision: ExpectedDecision
    mode: Mode = Mode.DEFAULT
    rule: str | None = None
    """The name of the rule that should decide; any when left out."""

    @property
    def subject(self) -> Subject:
        """The call, as rules see it."""
        return complete_subject(build_call_subject(self.tool, self.args, **self.known_facts), self.sends)


class _Expectations(StrictData):
    expect: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class ExpectationResult:
    """An expectation with its line, and the ruling of the policy."""

    line: int
    expectation: Expectation
    ruling: Ruling | None

    @property
    def is_met(self) -> bool:
        """Is the ruling as expected?"""
        decision = self.ruling.decision.value if self.ruling else ExpectedDecision.NONE.value
        named = self.expectation.rule is None or (self.ruling is not None and self.ruling.rule == self.expectation.rule)
        return decision == self.expectation.decision.value and named

    @property
    def summary(self) -> str:
        """One line with the call, the expected and the actual decision."""
        wanted = self.expectation
        call = shorten_text(f"{wanted.tool} {json.dumps(wanted.args)}", 200)
        rule = f" by {wanted.rule!r}" if wanted.rule else ""
        got = (
            f"{self.ruling.decision.value} by {self.ruling.rule!r} ({self.ruling.tier.value})"
            if self.ruling
            else "none"
        )
        return escape_controls(f"{call} in mode {wanted.mode.value}: expected {wanted.decision.value}{rule}, got {got}")


def try_expectations(file: Path, policy: Policy) -> list[ExpectationResult]:
    """The result of each expectation in a file. BadInput when the file cannot be read."""
    return [
        ExpectationResult(line, one, policy.find_ruling(one.subject, one.mode))
        for line, one in read_expectations(read_content(file))
    ]


def read_expectations(content: FileContent) -> list[tuple[int, Expectation]]:
    """The expectations of a file, with their lines. BadInput with every problem, or when there are none."""
    found = (
        list(_parse_json(content)) if content.file.suffix == ".json" and not content.problem else _parse_toml(content)
    )
    if not found:
        raise BadInput(format_problems(content.file, [FileProblem(None, "", "holds no expectation: write [[expect]]")]))
    return found


def _parse_toml(content: FileContent) -> list[tuple[int, Expectation]]:
    document = parse_document(content, _Expectations)
    items = document.get_value().expect
    lines = find_lines(document.text, [("expect", place) for place in range(len(items))])
    return [(lines["expect", place], item) for place, item in enumerate(items)]


def _parse_json(content: FileContent) -> Iterator[tuple[int, Expectation]]:
    wrong: list[FileProblem] = []
    for line, value in _list_elements(content):
        try:
            yield line, Expectation.model_validate(value)
        except ValidationError as error:
            wrong.append(FileProblem(line, "", escape_controls(describe_problems(error)).replace("\n", "␊")))
    if wrong:
        raise BadInput(format_problems(content.file, wrong))


def _list_elements(content: FileContent) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON array with their lines, which `json` does not provide."""
    decoder = json.JSONDecoder()
    try:
        text = content.data.decode("utf-8-sig")
        json.loads(text)
        start = _ARRAY_START.match(text)
        at = start.end() if start else -1
        while at >= 0 and not _ARRAY_END.fullmatch(text, at):
            at = _skip_separator(text, at)
            value, end = decoder.raw_decode(text, at)
            yield text.count("\n", 0, at) + 1, value
            at = end
    except (ValueError, RecursionError) as error:
        raise BadInput(
            format_problems(content.file, [FileProblem(None, "", f"is not JSON: {shorten_text(str(error), 200)}")])
        ) from None
    if at < 0:
        raise BadInput(
            format_problems(content.file, [FileProblem(None, "", 'must be {"expect": [ … ]}, or the array alone')])
        )


def _skip_separator(text: str, at: int) -> int:
    blank = _SEPARATOR.match(text, at)
    return blank.end() if blank else at
