"""Calls that a rule says it matches, or not: tried when its file is read, so that a rule means what it seems to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.activities.policy.matching import Facts, conditions_of, standing
from holdfast.activities.policy.outside import told_apart
from holdfast.activities.policy.rules import Example, Fault, Rule
from holdfast.activities.policy.subjects import BUILT_IN, Subject, subject_of
from holdfast.activities.policy.truths import Truth


def misbehaving(rule: Rule) -> Iterator[Fault]:
    """The examples of a rule that do not behave."""
    conditions = conditions_of(rule)
    for key, wanted in (("match", Truth.YES), ("not_match", Truth.NO)):
        for place, example in enumerate(getattr(rule, key)):
            tool = example.tool or _usual_tool(rule, example)
            if tool is None:
                yield Fault((key, place), "the example says no tool, and the rule names none")
                continue
            facts = Facts(_subject(tool, example))
            found, condition = standing(rule, conditions, facts)
            if found is not wanted:
                why = condition.why(facts) if condition else "every condition holds"
                why = "that is not known before it runs" if found is Truth.MAYBE else why
                yield Fault((key, place), f"the rule {_does(found)} match this example: {why}")


def _does(found: Truth) -> str:
    return {Truth.NO: "does not", Truth.MAYBE: "may or may not", Truth.YES: "does"}[found]


def _usual_tool(rule: Rule, example: Example) -> str | None:
    if example.command is not None or rule.on_programs:
        return "shell"
    if example.url is not None:
        return "fetch"
    literal = [name for name in rule.tool or () if name in BUILT_IN]
    return literal[0] if literal else next(iter(rule.tool or ()), None)


def _subject(tool: str, example: Example) -> Subject:
    short = {"command": example.command, "path": example.path, "url": example.url}
    arguments = {**{name: value for name, value in short.items() if value is not None}, **example.arguments}
    given: dict[str, Any] = {
        name: getattr(example, name)
        for name in ("server", "effect", "kind", "in_workspace", "tainted")
        if getattr(example, name) is not None
    }
    if tool not in BUILT_IN:
        given |= _said(example)
    return told_apart(subject_of(tool, arguments, **given), example.sends)


def _said(example: Example) -> dict[str, Any]:
    """Of a tool that nobody knows, what the example calls its path, url and command is that."""
    return {
        "paths": (example.path,) if example.path is not None else (),
        "urls": (example.url,) if example.url is not None else (),
        "command": example.command,
    }
