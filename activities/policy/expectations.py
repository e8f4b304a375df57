"""What a team expects of its policy: calls with the decision each should get, for a test in its CI.

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

from holdfast.activities.policy.deciding import Policy, Ruling
from holdfast.activities.policy.fields import Arguments, Flag
from holdfast.activities.policy.outside import told_apart
from holdfast.activities.policy.subjects import Kind, Subject, subject_of
from holdfast.content import shorten, visible
from holdfast.documents import Content, Problem, check, complaint, read
from holdfast.errors import BadInput
from holdfast.model import Message, problems
from holdfast.modes import Mode
from holdfast.positions import lines_of
from holdfast.tools import Effect

_START = re.compile(r'\s*(?:\{\s*"expect"\s*:\s*)?\[')
_NEXT = re.compile(r"\s*,?\s*")
_END = re.compile(r"\s*\]\s*\}?\s*")


class Expected(StrEnum):
    """What the policy should say; `none` when it should say nothing."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    NONE = "none"


class Expectation(Message):
    """A call, and what should become of it."""

    tool: str
    args: Arguments = Field(default_factory=dict)
    decision: Expected
    mode: Mode = Mode.DEFAULT
    rule: str | None = None
    """The name of the rule that should decide."""
    server: str | None = None
    effect: Effect | None = None
    kind: Kind | None = None
    in_workspace: Flag | None = None
    tainted: Flag = False
    sends: Flag | None = None

    @property
    def subject(self) -> Subject:
        """The call, as rules see it."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("server", "effect", "kind", "in_workspace", "tainted")
            if getattr(self, name) is not None
        }
        return told_apart(subject_of(self.tool, self.args, **given), self.sends)


class _Expectations(Message):
    expect: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class Tried:
    """An expectation, the line on which it stands, and what the policy said."""

    line: int
    expectation: Expectation
    ruling: Ruling | None

    @property
    def holds(self) -> bool:
        """Was it as expected?"""
        decision = self.ruling.decision.value if self.ruling else Expected.NONE.value
        named = self.expectation.rule is None or (self.ruling is not None and self.ruling.rule == self.expectation.rule)
        return decision == self.expectation.decision.value and named

    @property
    def told(self) -> str:
        """In one line: the call, what was expected and what came."""
        wanted = self.expectation
        call = shorten(f"{wanted.tool} {json.dumps(wanted.args)}", 200)
        rule = f" by {wanted.rule!r}" if wanted.rule else ""
        got = (
            f"{self.ruling.decision.value} by {self.ruling.rule!r} ({self.ruling.tier.value})"
            if self.ruling
            else "none"
        )
        return visible(f"{call} in mode {wanted.mode.value}: expected {wanted.decision.value}{rule}, got {got}")


def try_all(file: Path, policy: Policy) -> list[Tried]:
    """Every expectation of a file against a policy; BadInput when the file cannot be read."""
    return [Tried(line, one, policy.rule_on(one.subject, one.mode)) for line, one in read_expectations(read(file))]


def read_expectations(content: Content) -> list[tuple[int, Expectation]]:
    """The expectations of a TOML or JSON file with their lines; BadInput with every problem, or when there are none."""
    found = list(_from_json(content)) if content.file.suffix == ".json" and not content.problem else _from_toml(content)
    if not found:
        raise BadInput(complaint(content.file, [Problem(None, "", "holds no expectation: write [[expect]]")]))
    return found


def _from_toml(content: Content) -> list[tuple[int, Expectation]]:
    document = check(content, _Expectations)
    items = document.require().expect
    lines = lines_of(document.text, [("expect", place) for place in range(len(items))])
    return [(lines["expect", place], item) for place, item in enumerate(items)]


def _from_json(content: Content) -> Iterator[tuple[int, Expectation]]:
    wrong: list[Problem] = []
    for line, value in _elements(content):
        try:
            yield line, Expectation.model_validate(value)
        except ValidationError as error:
            wrong.append(Problem(line, "", visible(problems(error)).replace("\n", "␊")))
    if wrong:
        raise BadInput(complaint(content.file, wrong))


def _elements(content: Content) -> Iterator[tuple[int, Any]]:
    """The elements of a JSON array, each with the line on which it begins: `json` tells no lines."""
    decoder = json.JSONDecoder()
    try:
        text = content.data.decode("utf-8-sig")
        json.loads(text)
        start = _START.match(text)
        at = start.end() if start else -1
        while at >= 0 and not _END.fullmatch(text, at):
            at = _skipped(text, at)
            value, end = decoder.raw_decode(text, at)
            yield text.count("\n", 0, at) + 1, value
            at = end
    except (ValueError, RecursionError) as error:
        raise BadInput(
            complaint(content.file, [Problem(None, "", f"is not JSON: {shorten(str(error), 200)}")])
        ) from None
    if at < 0:
        raise BadInput(complaint(content.file, [Problem(None, "", 'must be {"expect": [ … ]}, or the array alone')]))


def _skipped(text: str, at: int) -> int:
    blank = _NEXT.match(text, at)
    return blank.end() if blank else at
