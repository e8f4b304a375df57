"""Rules that can never speak: what contradicts itself, and what always comes too late. Only what is certain.

A rule that is silently without effect is worse than none: somebody relies on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from holdfast.activities.policy.patterns import is_one_file
from holdfast.activities.policy.rules import CONDITION_KEYS, Rule, RuleEffect, RuleFault
from holdfast.activities.policy.subject.subject import BUILT_IN, DESCRIPTION_ARGUMENT, CallKind
from holdfast.domain.calls.tool import Effect
from holdfast.domain.modes import Mode
from holdfast.util.globs import Glob
from holdfast.util.json_values import digest_canonical
from holdfast.util.suggestions import suggest_names

_POSSIBLE = re.compile(r"[A-Za-z0-9_.:/-]*")
_WITH_COMMAND = re.compile(r"\w+[ (](\w[^:()]*)")
"""As other programs write rules on commands: `Bash(rm:*)`, `shell(rm)`."""
KNOWN_ELSEWHERE = {
    "Bash": "shell", "bash": "shell", "run_shell_command": "shell", "execute": "shell", "Read": "read_file",
    "Write": "write_file", "Edit": "edit", "replace": "edit", "LS": "list_directory", "Grep": "grep", "Glob": "glob",
    "search_file_content": "grep", "WebFetch": "fetch", "web_fetch": "fetch", "Task": "delegate",
}  # fmt: skip
"""What other assistants call tools that are built in here."""
_READING_PLAN = "plan, reads"
"""What a rule that names no mode, and does not deny, says about in plan mode (see `policy`)."""
_STRICTNESS = {RuleEffect.DENY: 0, RuleEffect.ASK: 1, RuleEffect.ALLOW: 2}


def precedence_key(rule: Rule) -> tuple[int, int]:
    """What comes first within a tier: the higher priority, then the stricter."""
    return -rule.priority, _STRICTNESS[rule.decision]


def find_contradictions(rule: Rule) -> Iterator[RuleFault]:
    """Keys of one rule that no call can satisfy together."""
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
    """Names that no tool can have. A server may call its own tools anything."""
    spelled = (
        [text for glob in map(Glob, rule.tool or ()) for text in glob.spelled_texts] if rule.server is None else []
    )
    for name in spelled:
        if not _POSSIBLE.fullmatch(name):
            words = _WITH_COMMAND.match(name)
            hint = f': say `tool = "shell"` and `command = "{words[1].strip()}"` instead' if words else ""
            yield RuleFault(("tool",), f"can never match: no tool can be called {name!r}{hint}")


def find_misspelt(rule: Rule) -> Iterator[str]:
    """Names of tools in a rule that are close to that of a built-in one, which may be meant."""
    for name in sorted(rule.tools - BUILT_IN.keys()) if rule.server is None else ():
        close = KNOWN_ELSEWHERE.get(name) or next(iter(suggest_names(name.lower(), BUILT_IN, 1, similar=0.75)), None)
        if close:
            yield f"no built-in tool is called {name!r}: do you mean {close!r}? It is right for a tool of your own"


def find_shadowed(rules: Sequence[Rule]) -> Iterator[RuleFault]:
    """Rules of one file that another always forestalls: one about every call, or one with the very same conditions."""
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
    """An allow rule must cover all of a call where others only touch it, and leaves what destroys, or decides what
    runs, to others."""
    whole = (one for one in total if one.decision is not RuleEffect.ALLOW or not _may_be_left(rule))
    fitting = (one for one in alike if one.decision is not RuleEffect.ALLOW or rule.decision is RuleEffect.ALLOW)
    return next((one for one in (*whole, *fitting) if _list_modes(rule) <= _list_modes(one)), None)


def _may_be_left(rule: Rule) -> bool:
    """Can it be about a call that an allow rule for everything leaves out?"""
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
    """The modes in which it speaks."""
    if rule.modes is not None:
        return frozenset({*rule.modes, *({_READING_PLAN} if Mode.PLAN in rule.modes else ())})
    everywhere = frozenset({*Mode, _READING_PLAN})
    return everywhere if rule.decision is RuleEffect.DENY else everywhere - {Mode.PLAN}


def _digest_conditions(rule: Rule) -> str:
    said = rule.model_dump(mode="json", include={*CONDITION_KEYS, "anything"}, exclude_none=True)
    return digest_canonical(said)


def _describe_shadowing(earlier: Rule, rules: Sequence[Rule]) -> str:
    place = next(index for index, one in enumerate(rules) if one is earlier) + 1
    what = "is about every call" if not earlier.condition_keys else "has the same conditions"
    called = f"{earlier.name!r}" if earlier.name else f"number {place}"
    return f"can never match: rule {called} comes first and {what}"


def _has_no_host(tool: str) -> bool:
    return tool in BUILT_IN and not BUILT_IN[tool].url and not BUILT_IN[tool].command


def _format_tools(tools: Iterable[str]) -> str:
    return " or ".join(f"`{tool}`" for tool in sorted(tools))
