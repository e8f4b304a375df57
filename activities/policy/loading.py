"""Policy files, read and checked: every mistake of every file at once, each with its line, before a rule counts.

Files are read as settings files are: once, at most 1 MB, and not when others may write them. The shipped rules are a
file like any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from holdfast.activities.policy.commands import warn_of_phrase
from holdfast.activities.policy.deciding import Entry, Policy
from holdfast.activities.policy.examples import misbehaving
from holdfast.activities.policy.phrases import phrase_of
from holdfast.activities.policy.reachable import contradictions, find_misspelt, shadowed
from holdfast.activities.policy.rules import Answer, Fault, PolicyFile, Rule, Tier
from holdfast.documents import Content, Document, Problem, check, complaint, read
from holdfast.errors import BadInput
from holdfast.positions import lines_of
from holdfast.settings import Settings

WORKSPACE_FILE = Path(".holdfast", "policy.toml")
"""In the workspace. It may only tighten: whoever can write there wrote it."""
ADMIN_FILE = Path("/etc/holdfast/policy.toml")
SHIPPED = Path(__file__).with_name("defaults.toml")
YOLO = Path(__file__).with_name("yolo.toml")
"""What is added where mode `yolo` is to ask about nothing that destroys."""


@dataclass(frozen=True)
class PolicySource:
    """A policy file, and how much it may say."""

    file: Path
    tier: Tier


@dataclass(frozen=True)
class LoadedFile:
    """A file that was checked: its rules, or what is wrong with it."""

    tier: Tier
    document: Document[PolicyFile]
    entries: tuple[Entry, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why none of it counts."""
        return self.document.problems


def sources_of(settings: Settings) -> list[PolicySource]:
    """The files that count for a worker: the user's, and those of the workspace and the machine where there are any.

    Where mode `yolo` is to ask about nothing that destroys, one of our own as well.
    """
    found = [PolicySource(file, Tier.USER) for file in settings.policy]
    if not settings.yolo_asks:
        found.append(PolicySource(YOLO, Tier.DEFAULT))
    for file, tier in ((settings.workspace / WORKSPACE_FILE, Tier.WORKSPACE), (ADMIN_FILE, Tier.ADMIN)):
        if os.path.lexists(file):
            found.append(PolicySource(file, tier))
    return found


def load_policy(sources: Iterable[PolicySource]) -> Policy:
    """The shipped rules with those of these files; BadInput with every problem of every file."""
    loaded = [shipped(), *(_loaded(source) for source in sources)]
    return policy_of(loaded)


def policy_of(loaded: Iterable[LoadedFile]) -> Policy:
    """One policy of files that were read; BadInput when one of them has problems."""
    files = list(loaded)
    told = [complaint(one.document.content.file, one.problems) for one in files if one.problems]
    if told:
        raise BadInput("\n".join(told))
    return Policy(entry for one in files for entry in one.entries)


def _loaded(source: PolicySource) -> LoadedFile:
    ours = source.tier is Tier.DEFAULT
    return load_file(Content(source.file, source.file.read_bytes()) if ours else read(source.file), source.tier)


@cache
def shipped() -> LoadedFile:
    """The rules that come with Holdfast."""
    return load_file(Content(SHIPPED, SHIPPED.read_bytes()), Tier.DEFAULT)


def load_file(content: Content, tier: Tier, now: datetime | None = None) -> LoadedFile:
    """Check a file of one tier. Rules that have expired are told, and are not wrong."""
    context = {"inspect": _inspecting(tier), "compare": shadowed}
    document = check(content, PolicyFile, context)
    if document.value is None:
        return LoadedFile(tier, document)
    rules = document.value.rule
    lines = lines_of(document.text, [("rule", place) for place in range(len(rules))])
    entries = tuple(Entry(rule, tier, str(content.file), lines["rule", place]) for place, rule in enumerate(rules))
    warnings = (*_expired(entries, now or datetime.now(UTC)), *_broad(entries), *_misspelt(entries))
    return LoadedFile(tier, document, entries, warnings)


def _inspecting(tier: Tier) -> Callable[[Rule], Iterator[Fault]]:
    """What is wrong with a rule of this tier, beside the others of its file."""
    names: set[str] = set()

    def inspect(rule: Rule) -> Iterator[Fault]:
        if rule.name in names:
            yield Fault(("name",), f"`name` is taken: another rule is called {rule.name!r}")
        names.update([rule.name] if rule.name else [])
        if tier is Tier.WORKSPACE and rule.decision is Answer.ALLOW:
            yield Fault(("decision",), "a workspace's file may only tighten: `allow` belongs in the user's own")
        if tier is Tier.WORKSPACE and rule.on_deadline == "allow":
            yield Fault(("on_deadline",), "a workspace's file may only tighten: what nobody answers must be denied")
        faults = list(contradictions(rule))
        yield from faults or misbehaving(rule)

    return inspect


def _expired(entries: Iterable[Entry], now: datetime) -> Iterator[Problem]:
    for place, entry in enumerate(entries, start=1):
        if entry.rule.expires and entry.rule.expires <= now:
            yield Problem(entry.line, f"rule.{place}.expires", "the rule has expired, and says nothing any more")


def _misspelt(entries: Iterable[Entry]) -> Iterator[Problem]:
    for place, entry in enumerate(entries, start=1):
        yield from (Problem(entry.line, f"rule.{place}.tool", why) for why in find_misspelt(entry.rule))


def _broad(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Allow rules on interpreters and runners, which are seldom meant as wide as they are."""
    for place, entry in enumerate(entries, start=1):
        for text in (entry.rule.command or ()) if entry.rule.decision is Answer.ALLOW else ():
            if why := warn_of_phrase(phrase_of(text)):
                yield Problem(entry.line, f"rule.{place}.command", why)
