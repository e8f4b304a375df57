"""Calls that a rule says it matches, or not: tried when its file is read, so that a rule means what it seems to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.activities.policy.conditions import CallFacts, build_conditions, match_rule
from holdfast.activities.policy.rules import Example, Rule, RuleFault
from holdfast.activities.policy.subject.subject import BUILT_IN, Subject, build_call_subject
from holdfast.activities.policy.subject.ternary import Truth
from holdfast.activities.policy.taint import complete_subject


def find_example_faults(rule: Rule) -> Iterator[RuleFault]:
    """The examples of a rule that do not behave."""
    conditions = build_conditions(rule)
    for key, wanted in (("match", Truth.YES), ("not_match", Truth.NO)):
        for place, example in enumerate(getattr(rule, key)):
            tool = example.tool or _find_usual_tool(rule, example)
            if tool is None:
                yield RuleFault((key, place), "the example says no tool, and the rule names none")
                continue
            facts = CallFacts(_build_subject(tool, example))
            found, condition = match_rule(rule, conditions, facts)
            if found is not wanted:
                why = condition.explain(facts) if condition else "every condition holds"
                why = "that is not known before it runs" if found is Truth.MAYBE else why
                yield RuleFault((key, place), f"the rule {_describe_truth(found)} match this example: {why}")


def _describe_truth(found: Truth) -> str:
    return {Truth.NO: "does not", Truth.MAYBE: "may or may not", Truth.YES: "does"}[found]


def _find_usual_tool(rule: Rule, example: Example) -> str | None:
    if example.command is not None or rule.is_about_programs:
        return "shell"
    if example.url is not None:
        return "fetch"
    literal = [name for name in rule.tool or () if name in BUILT_IN]
    return literal[0] if literal else next(iter(rule.tool or ()), None)


def _build_subject(tool: str, example: Example) -> Subject:
    short = {"command": example.command, "path": example.path, "url": example.url}
    arguments = {**{name: value for name, value in short.items() if value is not None}, **example.arguments}
    given: dict[str, Any] = {
        name: getattr(example, name)
        for name in ("server", "effect", "kind", "in_workspace", "tainted")
        if getattr(example, name) is not None
    }
    if tool not in BUILT_IN:
        given |= _build_arguments(example)
    return complete_subject(build_call_subject(tool, arguments, **given), example.sends)


def _build_arguments(example: Example) -> dict[str, Any]:
    """Of a tool that nobody knows, what the example calls its path, url and command is that."""
    return {
        "paths": (example.path,) if example.path is not None else (),
        "urls": (example.url,) if example.url is not None else (),
        "command": example.command,
    }
