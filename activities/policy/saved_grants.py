"""Saved grants: those that outlive a session, as rules in a file of the data folder.

They apply where the policy asks, like the grants of a turn, and lift no denial. The file is replaced as a whole, by one
process at a time, and only when it can be read, so nothing in it is lost. When it cannot be read, it allows nothing,
and what it refused before stays refused: a typing error lets nothing run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grants import CandidateCall, GrantIndex, build_scope_rule
from holdfast.activities.policy.load_policy import LoadedFile, format_rule, read_policy_file
from holdfast.activities.policy.policy import PolicyRule
from holdfast.activities.policy.rules import CONDITION_KEYS, Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import Subject
from holdfast.config.toml_document import FILE_LIMIT, FileContent, FileProblem, format_problems, read_content
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput
from holdfast.util.json_values import digest_canonical
from holdfast.util.private_files import lock_file, replace_private
from holdfast.util.text import escape_controls, shorten_text

FILE_NAME = "granted.toml"
"""The name of the file in the data folder."""
LOCK_SECONDS = 5.0
"""Seconds to wait for another process that changes the file."""
_GRANT_KEYS = ("tool", "server", "command", "path", "host", "arguments")
"""The conditions that a saved grant may have: the fields of a scope."""
_HEADER = "# Saved grants. `holdfast grants` lists and revokes them.\n"


def load_saved(file: Path) -> LoadedFile:
    """The grants in a file, or its problems. A missing file is empty."""
    return read_saved(read_content(file) if _may_exist(file) else FileContent(file))


def find_saved(file: Path, name: str) -> Rule | None:
    """The grant of this name; None when the file does not have it or cannot be read."""
    return next((entry.rule for entry in load_saved(file).entries if entry.rule.name == name), None)


def save_grant(file: Path, grant: Grant | Rule) -> str:
    """Add a grant, and return its name; a second call changes nothing. BadInput when it cannot be saved."""
    rule = grant if isinstance(grant, Rule) else build_grant_rule(grant)
    with lock_file(file, LOCK_SECONDS):
        loaded = _check_sound(load_saved(file))
        there = find_same_grant(rule, [entry.rule for entry in loaded.entries], escape_controls(str(file)))
        if there is not None:
            return there
        before = loaded.document.text or _HEADER
        _replace_file(file, f"{before.rstrip()}\n\n{format_rule(rule)}")
    return rule.name or ""


def remove_grant(file: Path, name: str) -> Rule:
    """Remove a grant, and return its rule. BadInput when there is none of this name, or the file is damaged."""
    with lock_file(file, LOCK_SECONDS):
        loaded = _check_sound(load_saved(file))
        entries = loaded.entries
        place = next((at for at, entry in enumerate(entries) if entry.rule.name == name), None)
        if place is None:
            raise BadInput(f"{escape_controls(str(file))}: no saved grant is called {shorten_text(name, 100)!r}")
        lines = loaded.document.text.split("\n")
        end = entries[place + 1].line - 1 if place + 1 < len(entries) else len(lines)
        text = "\n".join([*lines[: entries[place].line - 1], *lines[end:]])
        left = [entry.rule for at, entry in enumerate(entries) if at != place]
        if [entry.rule for entry in read_saved(FileContent(file, text.encode())).entries] != left:
            where = f"{escape_controls(str(file))}, line {entries[place].line}"
            raise BadInput(f"{where}: the file was changed by hand: take {name!r} out by hand as well")
        _replace_file(file, text)
    return entries[place].rule


def build_grant_rule(grant: Grant) -> Rule:
    """The rule for a grant. BadInput when no rule can express it."""
    decision = grant.decision
    if grant.scope.digest is not None:
        raise BadInput("this grant is for one call alone and cannot be saved: choose a wider one")
    if decision.uses is not None:
        raise BadInput("a grant for a number of calls cannot be saved: leave out the number")
    reason = f"given by {grant.given_by} on {grant.given_at:%Y-%m-%d} for {decision.approval_id}"
    made = build_scope_rule(grant.scope, allow=grant.is_allowance, expires=decision.expires, reason=reason)
    assert made  # it has no digest
    name = digest_canonical([_dump_conditions(made), made.decision, decision.expires and decision.expires.isoformat()])
    return made.model_copy(update={"name": f"granted-{name[:8]}"})


def find_same_grant(rule: Rule, rules: Iterable[Rule], where: str) -> str | None:
    """The name of a rule that says the same already; None without one. BadInput when one contradicts it."""
    known = list(rules)
    if there := next((one for one in known if _is_as_good(one, rule)), None):
        return there.name or ""
    if other := next((one for one in known if one.name == rule.name or _is_opposite(one, rule)), None):
        raise BadInput(f"{where}: {other.name!r} is in the way: revoke it first")
    return None


class GrantSource(Protocol):
    """Saved grants for a judgement, which calls `refresh` first."""

    async def refresh(self) -> None:
        """Load what changed, unless that was done a second ago."""

    @property
    def may_miss_refusals(self) -> bool:
        """May there be refusals that could never be read?"""

    @property
    def note(self) -> str | None:
        """A warning for the person who is asked about a call; None without one."""

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """The rule of the grant that applies to a call: one that refuses it, else one that allows it."""


class _FileState(NamedTuple):
    """A file with the same values is unchanged."""

    changed: int
    size: int
    inode: int


class SavedGrants:
    """The grants in a file, which is read again whenever it changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._state: _FileState | None = None
        self._grants = GrantIndex(())
        self._has_known = False
        """The file could be read before."""
        self.problem: str | None = None
        """Why the file cannot be read; then only the refusals that were read before apply."""

    note: str | None = None
    """No warning for a file."""

    async def refresh(self) -> None:
        """Do nothing: the file is checked at every use."""

    async def disconnect(self) -> None:
        """Do nothing: no connection is held."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, expired ones included."""
        self._read_file()
        return self._grants.rules

    @property
    def may_miss_refusals(self) -> bool:
        """May there be refusals that could never be read? True for a damaged file that was never in order."""
        self._read_file()
        return self.problem is not None and not self._has_known

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """See `GrantSource`."""
        self._read_file()
        return self._grants.find_covering(CandidateCall(call), now)

    def _read_file(self) -> None:
        seen = _read_state(self.file)
        if seen == self._state and seen is not None:
            return
        self._state = seen
        if seen is None and not _may_exist(self.file):
            self.problem, self._grants, self._has_known = None, GrantIndex(()), False
            return
        loaded = load_saved(self.file)
        if loaded.problems:
            self.problem = format_problems(self.file, loaded.problems)
            self._grants = GrantIndex(self._grants.refusals)
        else:
            self.problem = None
            self._grants = GrantIndex(tuple(entry.rule for entry in loaded.entries))
            self._has_known = seen is not None


def _may_exist(file: Path) -> bool:
    """Is there a file, or an error that reading it will report?"""
    try:
        os.lstat(file)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _read_state(file: Path) -> _FileState | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return _FileState(status.st_mtime_ns, status.st_size, status.st_ino)


def read_saved(content: FileContent) -> LoadedFile:
    """Check the content of a file of saved grants."""
    loaded = read_policy_file(content, Tier.USER)
    faults = tuple(FileProblem(entry.line, "", fault) for entry in loaded.entries for fault in _explain_unfit(entry))
    if not faults:
        return loaded
    document = type(loaded.document)(loaded.document.content, loaded.document.text, None, faults)
    return LoadedFile(loaded.tier, document)


def _explain_unfit(entry: PolicyRule) -> Iterator[str]:
    rule = entry.rule
    if rule.decision is RuleEffect.ASK:
        yield "a saved grant allows or denies: put the rule into a policy file"
    if rule.name is None:
        yield "a saved grant needs a `name`, by which it is revoked"
    for key in ("anything", "modes", "priority", *CONDITION_KEYS):
        if key in rule.model_fields_set and key not in _GRANT_KEYS:
            yield f"a saved grant has no `{key}`: put the rule into a policy file"


def _check_sound(loaded: LoadedFile) -> LoadedFile:
    if loaded.problems:
        raise BadInput(format_problems(loaded.document.content.file, loaded.problems))
    return loaded


def _is_as_good(there: Rule, rule: Rule) -> bool:
    """Has `there` the same conditions and decision as `rule`, and does it last at least as long?"""
    lasts = there.expires is None or there.expires == rule.expires
    return lasts and there.decision is rule.decision and _dump_conditions(there) == _dump_conditions(rule)


def _is_opposite(there: Rule, rule: Rule) -> bool:
    return (
        there.expires is None
        and there.decision is not rule.decision
        and _dump_conditions(there) == _dump_conditions(rule)
    )


def _dump_conditions(rule: Rule) -> object:
    return rule.model_dump(mode="json", include=set(_GRANT_KEYS), exclude_none=True)


def _replace_file(file: Path, text: str) -> None:
    """Replace the file atomically, after checking that the text can be read again. Raises BadInput."""
    data = text.encode()
    if len(data) > FILE_LIMIT:
        raise BadInput(f"{escape_controls(str(file))} is full: revoke grants that nobody needs")
    _check_sound(read_saved(FileContent(file, data)))
    replace_private(file, data)
