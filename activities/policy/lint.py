"""Finds mistakes in policy files: rules that can never match, examples that fail, and rules that match too much.

A rule without effect is worse than none, because somebody relies on it. Only certain cases are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from holdfast.activities.policy.command_phrases import Phrase
from holdfast.activities.policy.conditions import CallFacts, build_conditions, match_rule
from holdfast.activities.policy.patterns import is_one_file
from holdfast.activities.policy.protected_files import complete_subject
from holdfast.activities.policy.rules import CONDITION_KEYS, Example, Rule, RuleEffect, RuleFault
from holdfast.activities.policy.subject import (
    BUILT_IN,
    DESCRIPTION_ARGUMENT,
    CallKind,
    Subject,
    Truth,
    build_call_subject,
)
from holdfast.activities.shell.programs.program_effects import may_run_files
from holdfast.config.types import find_impossible_names
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.util.json_values import digest_canonical
from holdfast.util.suggestions import suggest_names

_WITH_COMMAND = re.compile(r"\w+[ (](\w[^:()]*)")
"""Rules on commands in the form of other programs: `Bash(rm:*)`, `shell(rm)`."""
KNOWN_ELSEWHERE = {
    "Bash": "shell", "bash": "shell", "run_shell_command": "shell", "execute": "shell", "Read": "read_file",
    "Write": "write_file", "Edit": "edit", "replace": "edit", "LS": "list_directory", "Grep": "grep", "Glob": "glob",
    "search_file_content": "grep", "WebFetch": "fetch", "web_fetch": "fetch", "Task": "delegate",
}  # fmt: skip
"""Built-in tools by their names in other assistants."""
_READING_PLAN = "plan, reads"
"""The calls that a rule without modes, save a deny rule, matches in plan mode (see `policy`)."""
_TRUTH_TEXTS = {Truth.NO: "does not", Truth.MAYBE: "may or may not", Truth.YES: "does"}
_STRICTNESS = {RuleEffect.DENY: 0, RuleEffect.ASK: 1, RuleEffect.ALLOW: 2}


def precedence_key(rule: Rule) -> tuple[int, int]:
    """The sort key within a tier: the higher priority first, then the stricter decision."""
    return -rule.priority, _STRICTNESS[rule.decision]


def find_contradictions(rule: Rule) -> Iterator[RuleFault]:
    """Conditions of one rule that no call can meet together."""
    yield from _find_impossible_names(rule)
    kinds = frozenset(rule.kind or ())
    tools = rule.tools if rule.server in (None, ("",)) else frozenset[str]()  # a server's `edit` may be anything
    for key in ("command", "harmless", "destructive"):
        if getattr(rule, key) is None:
            continue
        if kinds and CallKind.EXEC not in kinds:
            yield RuleFault(
                (key,), f"can never match: only calls of kind `exec` have a command, and `{key}` is about it"
            )
        elif tools and all(name in BUILT_IN and not BUILT_IN[name].command for name in tools):
            yield RuleFault((key,), f"can never match: {_format_tools(tools)} has no command for `{key}`")
    if (
        DESCRIPTION_ARGUMENT in (rule.arguments or {})
        and tools
        and all(name in BUILT_IN and BUILT_IN[name].command for name in tools)
    ):
        words = f"what a model says of a command is never looked at: leave `{DESCRIPTION_ARGUMENT}` out"
        yield RuleFault(("arguments",), f"can never match: {words}")
    if rule.harmless and rule.destructive:
        yield RuleFault(("destructive",), "can never match: nothing is both harmless and destructive")
    if rule.protected and rule.decision is RuleEffect.ALLOW and not any(map(is_one_file, rule.path or ())):
        words = "an allow rule covers a file that decides what runs only by naming that very file in `path`"
        yield RuleFault(("protected",), f"can never match: {words}")
    if rule.path and (kinds == {CallKind.QUESTION} or tools == {"ask_user"}):
        yield RuleFault(("path",), "can never match: a question names no path")
    if rule.host and (kinds == {CallKind.QUESTION} or (tools and all(_has_no_host(name) for name in tools))):
        yield RuleFault(("host",), "can never match: such a call has no url")


def _find_impossible_names(rule: Rule) -> Iterator[RuleFault]:
    """Names that no tool can have. A server may give its own tools any name."""
    for name in chain.from_iterable(map(find_impossible_names, rule.tool or ())) if rule.server is None else ():
        words = _WITH_COMMAND.match(name)
        hint = f': say `tool = "shell"` and `command = "{words[1].strip()}"` instead' if words else ""
        yield RuleFault(("tool",), f"can never match: no tool can be called {name!r}{hint}")


def find_misspelt(names: Iterable[str]) -> Iterator[str]:
    """A sentence for each name that no built-in tool has, and that is close to the name of one."""
    for name in sorted(set(names) - BUILT_IN.keys()):
        close = KNOWN_ELSEWHERE.get(name) or next(iter(suggest_names(name.lower(), BUILT_IN, 1, similar=0.75)), None)
        if close:
            yield f"no built-in tool is called {name!r}: do you mean {close!r}? It is right for a tool of your own"


def find_shadowed(rules: Sequence[Rule]) -> Iterator[RuleFault]:
    """Rules of one file behind one that matches every call, or behind one with the same conditions."""
    ranked = sorted(range(len(rules)), key=lambda index: (*precedence_key(rules[index]), index))
    total: list[Rule] = []
    same: dict[str, list[Rule]] = {}
    for index in ranked:
        rule = rules[index]
        alike = same.setdefault(_digest_conditions(rule), [])
        if earlier := _find_forestalling(rule, total, alike):
            yield RuleFault(("rule", index), _describe_shadowing(earlier, rules))
        elif rule.expires is None:
            alike.append(rule)
            total += [rule] if not rule.condition_keys else []


def _find_forestalling(rule: Rule, total: Iterable[Rule], alike: Iterable[Rule]) -> Rule | None:
    """An allow rule for every call does not cover destructive calls or protected files, so it does not shadow all."""
    whole = (one for one in total if one.decision is not RuleEffect.ALLOW or not _may_be_left(rule))
    fitting = (one for one in alike if one.decision is not RuleEffect.ALLOW or rule.decision is RuleEffect.ALLOW)
    return next((one for one in (*whole, *fitting) if _list_modes(rule) <= _list_modes(one)), None)


def _may_be_left(rule: Rule) -> bool:
    """May it match a call that an allow rule for every call does not cover?"""
    names = any(map(is_one_file, rule.path or ()))
    if rule.harmless or (rule.decision is RuleEffect.ALLOW and not (rule.is_about_programs or rule.arguments or names)):
        return False
    if rule.effect == (Effect.READ,):
        return False
    tools = rule.tools
    if tools and all(name in BUILT_IN and BUILT_IN[name].effect is Effect.READ for name in tools):
        return False
    return not rule.kind or not {CallKind.INFO, CallKind.QUESTION}.issuperset(rule.kind)


def _list_modes(rule: Rule) -> frozenset[str]:
    """The modes in which it applies."""
    if rule.modes is not None:
        return frozenset({*rule.modes, *({_READING_PLAN} if Mode.PLAN in rule.modes else ())})
    everywhere = frozenset({*Mode, _READING_PLAN})
    return everywhere if rule.decision is RuleEffect.DENY else everywhere - {Mode.PLAN}


def _digest_conditions(rule: Rule) -> str:
    conditions = rule.model_dump(mode="json", include={*CONDITION_KEYS, "anything"}, exclude_none=True)
    return digest_canonical(conditions)


def _describe_shadowing(earlier: Rule, rules: Sequence[Rule]) -> str:
    place = next(index for index, one in enumerate(rules) if one is earlier) + 1
    what = "is about every call" if not earlier.condition_keys else "has the same conditions"
    called = f"{earlier.name!r}" if earlier.name else f"number {place}"
    return f"can never match: rule {called} comes first and {what}"


def _has_no_host(tool: str) -> bool:
    return tool in BUILT_IN and not BUILT_IN[tool].url and not BUILT_IN[tool].command


def _format_tools(tools: Iterable[str]) -> str:
    return " or ".join(f"`{tool}`" for tool in sorted(tools))


def find_example_faults(rule: Rule) -> Iterator[RuleFault]:
    """The examples of a rule that do not match as they should."""
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
                yield RuleFault((key, place), f"the rule {_TRUTH_TEXTS[found]} match this example: {why}")


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
    given = example.known_facts
    if tool not in BUILT_IN:
        given |= _build_arguments(example)
    return complete_subject(build_call_subject(tool, arguments, **given), example.sends)


def _build_arguments(example: Example) -> dict[str, Any]:
    """The path, url and command of an unknown tool, as the example names them."""
    return {
        "paths": (example.path,) if example.path is not None else (),
        "urls": (example.url,) if example.url is not None else (),
        "command": example.command,
    }


def explain_phrase_risk(phrase: Phrase) -> str | None:
    """Explain why an allow rule with these words may cover more or less than it seems to; None without a known risk."""
    from holdfast.activities.shell.programs.wrappers import list_runner_phrases  # loaded with the parser of commands

    any_file = "any-file"
    for name in sorted(phrase.first_words or ("python3", "bash")):
        if may_run_files(name.rpartition("/")[2]) and phrase.covers_words((name, any_file)):
            return f"`{phrase.source}` lets every program in a file run: name the file, or `-m` and the module"
    for runner in list_runner_phrases():
        words = (*runner, any_file)
        if phrase.covers_words(words, {len(runner): any_file}):
            return f"`{phrase.source}` lets every program run that `{' '.join(runner)}` finds: name the command"
        if phrase.first_words is not None and phrase.covers_words(words):
            return f"`{phrase.source}` names no command: what `{' '.join(runner)}` runs must be covered by itself"
    return None
