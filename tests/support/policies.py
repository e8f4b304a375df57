"""Policies written in a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.activities.policy.load_policy import LoadedFile, build_policy, load_shipped, read_policy_file
from holdfast.activities.policy.policy import Policy, PolicyRule
from holdfast.activities.policy.rules import Tier
from holdfast.activities.policy.subject import Subject, build_call_subject
from holdfast.config.toml_document import FileContent, FileProblem
from holdfast.domain.modes import Mode

FILE = Path("/project/policy.toml")


def load(text: str | bytes, tier: Tier = Tier.USER) -> LoadedFile:
    """A file of this text."""
    return read_policy_file(FileContent(FILE, text if isinstance(text, bytes) else text.encode()), tier)


def found(text: str | bytes, tier: Tier = Tier.USER) -> tuple[FileProblem, ...]:
    """What is wrong with it."""
    return load(text, tier).problems


def policy(*texts: str, tier: Tier = Tier.USER, **tiers: str) -> Policy:
    """The rules of these texts and no others: of one tier, or `admin="…"`."""
    files = [load(text, tier) for text in texts] + [load(text, Tier(name)) for name, text in tiers.items()]
    return build_policy(files)


def with_defaults(*entries: PolicyRule) -> Policy:
    """With those that come with Holdfast."""
    return Policy([*load_shipped().entries, *entries])


def rule(keys: str, decision: str = "allow") -> str:
    """One rule of a file."""
    return f'[[rule]]\ndecision = "{decision}"\n{keys}\n'


def run(command: str, **known: Any) -> Subject:
    """A command."""
    return build_call_subject("shell", {"command": command}, **known)


def said(rules: Policy, subject: Subject, mode: Mode = Mode.DEFAULT) -> str | None:
    """The decision alone."""
    ruling = rules.find_ruling(subject, mode)
    return ruling.decision.value if ruling else None
