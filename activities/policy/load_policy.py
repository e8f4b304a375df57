"""Loads policy files: every mistake of every file is reported at once, each with its line, before any rule applies.

Files are read like settings files: at most 1 MB, and not when others may write them. The shipped rules are a file too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.activities.policy.command_phrases import parse_phrase
from holdfast.activities.policy.lint import (
    explain_phrase_risk,
    find_contradictions,
    find_example_faults,
    find_misspelt,
    find_shadowed,
)
from holdfast.activities.policy.policy import Policy, PolicyRule
from holdfast.activities.policy.rules import PolicyFile, Rule, RuleEffect, RuleFault, Tier
from holdfast.config.settings import Settings
from holdfast.config.toml_document import (
    Document,
    FileContent,
    FileProblem,
    format_problems,
    parse_document,
    read_content,
)
from holdfast.config.toml_lines import find_lines
from holdfast.errors import BadInput

WORKSPACE_FILE = Path(".holdfast", "policy.toml")
"""The policy file of a workspace. It may only tighten: anybody who can write there may have written it."""
ADMIN_FILE = Path("/etc/holdfast/policy.toml")
SHIPPED_FILE = Path(__file__).with_name("defaults.toml")
YOLO_FILE = Path(__file__).with_name("yolo.toml")
"""Added when the settings say `yolo_asks = false`: mode `yolo` then asks about nothing."""


@dataclass(frozen=True)
class PolicySource:
    """A policy file and its tier."""

    file: Path
    tier: Tier


@dataclass(frozen=True)
class LoadedFile:
    """A checked policy file: its rules, or its problems."""

    tier: Tier
    document: Document[PolicyFile]
    entries: tuple[PolicyRule, ...] = ()
    warnings: tuple[FileProblem, ...] = ()

    @property
    def problems(self) -> tuple[FileProblem, ...]:
        """The mistakes in it; with any, it has no rules."""
        return self.document.problems


def list_sources(settings: Settings) -> list[PolicySource]:
    """The policy files of a worker: those of the settings, and those of the workspace and the machine that exist."""
    found = [PolicySource(file, Tier.USER) for file in settings.policy]
    if not settings.yolo_asks:
        found.append(PolicySource(YOLO_FILE, Tier.DEFAULT))
    for file, tier in ((settings.workspace / WORKSPACE_FILE, Tier.WORKSPACE), (ADMIN_FILE, Tier.ADMIN)):
        if os.path.lexists(file):
            found.append(PolicySource(file, tier))
    return found


def load_policy(sources: Iterable[PolicySource]) -> Policy:
    """The policy of the shipped rules and these files. BadInput with every problem of every file."""
    return build_policy([load_shipped(), *load_files(sources)])


def load_files(sources: Iterable[PolicySource]) -> list[LoadedFile]:
    """These files, each checked by itself."""
    return [_load_source(source) for source in sources]


def build_policy(loaded: Iterable[LoadedFile]) -> Policy:
    """The policy of these files. BadInput when one of them has problems."""
    files = list(loaded)
    problems = [format_problems(one.document.content.file, one.problems) for one in files if one.problems]
    if problems:
        raise BadInput("\n".join(problems))
    return Policy(entry for one in files for entry in one.entries)


def _load_source(source: PolicySource) -> LoadedFile:
    ours = source.tier is Tier.DEFAULT
    return read_policy_file(
        FileContent(source.file, source.file.read_bytes()) if ours else read_content(source.file), source.tier
    )


@cache
def load_shipped() -> LoadedFile:
    """The rules that come with Holdfast."""
    return read_policy_file(FileContent(SHIPPED_FILE, SHIPPED_FILE.read_bytes()), Tier.DEFAULT)


def read_policy_file(content: FileContent, tier: Tier, now: datetime | None = None) -> LoadedFile:
    """Check a policy file of one tier. Expired rules are warnings, not problems."""
    context = {"inspect": _build_inspection(tier), "compare": find_shadowed}
    document = parse_document(content, PolicyFile, context)
    if document.value is None:
        return LoadedFile(tier, document)
    rules = document.value.rule
    lines = find_lines(document.text, [("rule", place) for place in range(len(rules))])
    entries = tuple(PolicyRule(rule, tier, str(content.file), lines["rule", place]) for place, rule in enumerate(rules))
    warnings = (*_find_expired(entries, now or datetime.now(UTC)), *_find_broad(entries), *_find_misspelt(entries))
    return LoadedFile(tier, document, entries, warnings)


def format_rule(rule: Rule) -> str:
    """The rule as TOML, with its header. ValueError for values that TOML cannot express (null)."""
    return "\n".join(["[[rule]]", *_format_lines(rule)]) + "\n"


def _build_inspection(tier: Tier) -> Callable[[Rule], Iterator[RuleFault]]:
    """A check of one rule in its file: duplicate names, what its tier may not do, contradictions, examples."""
    names: set[str] = set()

    def inspect_rule(rule: Rule) -> Iterator[RuleFault]:
        if rule.name in names:
            yield RuleFault(("name",), f"`name` is taken: another rule is called {rule.name!r}")
        names.update([rule.name] if rule.name else [])
        if tier is Tier.WORKSPACE and rule.decision is RuleEffect.ALLOW:
            yield RuleFault(("decision",), "a workspace's file may only tighten: `allow` belongs in the user's own")
        if tier is Tier.WORKSPACE and rule.on_deadline == "allow":
            yield RuleFault(("on_deadline",), "a workspace's file may only tighten: what nobody answers must be denied")
        faults = list(find_contradictions(rule))
        yield from faults or find_example_faults(rule)

    return inspect_rule


def _find_expired(entries: Iterable[PolicyRule], now: datetime) -> Iterator[FileProblem]:
    for place, entry in enumerate(entries, start=1):
        if entry.rule.expires and entry.rule.expires <= now:
            yield FileProblem(entry.line, f"rule.{place}.expires", "the rule has expired and has no effect any more")


def _find_misspelt(entries: Iterable[PolicyRule]) -> Iterator[FileProblem]:
    for place, entry in enumerate(entries, start=1):
        names = entry.rule.tools if entry.rule.server is None else ()
        yield from (FileProblem(entry.line, f"rule.{place}.tool", why) for why in find_misspelt(names))


def _find_broad(entries: Iterable[PolicyRule]) -> Iterator[FileProblem]:
    """Allow rules on interpreters and runners, which cover more than they seem to."""
    for place, entry in enumerate(entries, start=1):
        for text in (entry.rule.command or ()) if entry.rule.decision is RuleEffect.ALLOW else ():
            if why := explain_phrase_risk(parse_phrase(text)):
                yield FileProblem(entry.line, f"rule.{place}.command", why)


def _format_lines(rule: Rule) -> Iterator[str]:
    for name, value in rule.model_dump(exclude_unset=True, exclude_none=True).items():
        if name == "server" and value == ("",):
            value = False
        yield f"{name} = {_format_value(value)}"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_format_text(key)} = {_format_value(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return _format_text(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value, allow_nan=False)
    raise ValueError(f"{value!r} cannot be written as TOML")


def _format_text(text: str) -> str:
    """A quoted text: TOML quotes like JSON, except for DEL. ValueError for lone surrogates."""
    text.encode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
