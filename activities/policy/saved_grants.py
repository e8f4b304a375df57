"""Grants that outlive a session: the file they stand in, read and written.

They answer where the policy asks, as the grants of a turn do, and lift no denial. A file is changed as a whole, by one
process at a time, and only if it can be read: what is in it is never lost. One that cannot be read allows nothing, and
what was refused before it broke stays refused: a slip of the keyboard lets nothing run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grants import CandidateCall, GrantRule, build_scope_rule
from holdfast.activities.policy.load_policy import LoadedFile, read_policy_file
from holdfast.activities.policy.policy import PolicyRule, RuleIndex
from holdfast.activities.policy.rules import CONDITION_KEYS, Rule, RuleEffect, Tier
from holdfast.activities.policy.subject import CallKind, Subject
from holdfast.config.toml_document import FILE_LIMIT, FileContent, Problem, format_problems, read_content
from holdfast.domain.approvals.grants import Grant
from holdfast.errors import BadInput, HoldfastError
from holdfast.util.files import hold_lock, write_whole
from holdfast.util.json_values import digest_canonical
from holdfast.util.text import escape_controls, shorten_text


def format_rule(rule: Rule) -> str:
    """The rule as it stands in a file, with its header. ValueError for what TOML cannot say (null)."""
    return "\n".join(["[[rule]]", *_format_lines(rule)]) + "\n"


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
    raise ValueError(f"{value!r} cannot be said in TOML")


def _format_text(text: str) -> str:
    """JSON and TOML quote alike, but for DEL, and for what is no text at all."""
    text.encode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


FILE_NAME = "granted.toml"
"""In the data folder."""
LOCK_SECONDS = 5.0
"""Seconds to wait for another process that changes the file."""
_GRANT_KEYS = ("tool", "server", "command", "path", "host", "arguments")
"""What a standing answer may be about: the keys of a scope."""
_HEADER = "# Standing answers that were given for good. `holdfast grants` lists and revokes them.\n"


def load_saved(file: Path) -> LoadedFile:
    """The answers in a file, or what is wrong with it. No file holds none."""
    try:
        os.lstat(file)
    except FileNotFoundError:
        return read_policy_file(FileContent(file), Tier.USER)
    except OSError:
        pass  # it may be there: reading it tells what is wrong
    return read_saved(read_content(file))


def find_saved(file: Path, name: str) -> Rule | None:
    """The answer of this name, if the file can be read and has it."""
    return next((entry.rule for entry in load_saved(file).entries if entry.rule.name == name), None)


def save_grant(file: Path, grant: Grant | Rule) -> str:
    """Add an answer, once however often it is saved; its name. BadInput when it, or the file, is not fit for that."""
    rule = grant if isinstance(grant, Rule) else build_grant_rule(grant)
    with _lock_file(file):
        loaded = _check_sound(load_saved(file))
        there = find_same_grant(rule, [entry.rule for entry in loaded.entries], escape_controls(str(file)))
        if there is not None:
            return there
        before = loaded.document.text or _HEADER
        _replace_file(file, f"{before.rstrip()}\n\n{format_rule(rule)}")
    return rule.name or ""


def remove_grant(file: Path, name: str) -> Rule:
    """Take an answer out. BadInput when there is none of this name, or the file is not fit for that."""
    with _lock_file(file):
        loaded = _check_sound(load_saved(file))
        entries = loaded.entries
        place = next((at for at, entry in enumerate(entries) if entry.rule.name == name), None)
        if place is None:
            raise BadInput(f"{escape_controls(str(file))}: no answer is called {shorten_text(name, 100)!r}")
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
    """The rule that keeps a grant; BadInput when none can."""
    decision = grant.decision
    if grant.scope.digest is not None:
        raise BadInput("this answer is about one call alone, and cannot be kept for good: choose a wider one")
    if decision.uses is not None:
        raise BadInput("an answer for a number of calls cannot be kept for good: leave out the number")
    reason = f"given by {grant.given_by} on {grant.given_at:%Y-%m-%d} for {decision.approval_id}"
    made = build_scope_rule(grant.scope, allow=grant.is_allowance, expires=decision.expires, reason=reason)
    assert made  # it has no digest
    name = digest_canonical([_dump_conditions(made), made.decision, decision.expires and decision.expires.isoformat()])
    return made.model_copy(update={"name": f"granted-{name[:8]}"})


def find_same_grant(rule: Rule, rules: Iterable[Rule], where: str) -> str | None:
    """The name of one of these that says the same already. BadInput when one of them is in the way."""
    known = list(rules)
    if there := next((one for one in known if _is_as_good(one, rule)), None):
        return there.name or ""
    if other := next((one for one in known if one.name == rule.name or _is_opposite(one, rule)), None):
        raise BadInput(f"{where}: {other.name!r} is in the way: revoke it first")
    return None


class GrantSource(Protocol):
    """Standing answers as a judgement asks for them. `refresh` comes first."""

    async def refresh(self) -> None:
        """Know what is there now, or as of a second ago."""

    @property
    def may_miss_refusals(self) -> bool:
        """May there be refusals that nobody knows of?"""

    @property
    def note(self) -> str | None:
        """What whoever is asked about a call should know of them."""

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """The answer to a call: the first that refuses it, else the first that allows it."""


class _FileState(NamedTuple):
    """By what a file is known to be the same."""

    changed: int
    size: int
    inode: int


class SavedGrants:
    """The answers in a file, read again whenever it changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._state: _FileState | None = None
        self._grants = GrantIndex(())
        self._has_known = False
        """Whether its refusals are those of a file that could be read."""
        self.problem: str | None = None
        """Why nothing in the file counts, and of what was read before only the refusals."""

    note: str | None = None
    """Whoever is asked need not know anything of a file."""

    async def refresh(self) -> None:
        """Nothing: a file is looked at whenever it is asked."""

    async def disconnect(self) -> None:
        """Nothing: nothing is held."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All of them, expired ones too."""
        self._read_file()
        return self._grants.rules

    @property
    def may_miss_refusals(self) -> bool:
        """May there be refusals that nobody knows of? The file is broken, and was never seen in order."""
        self._read_file()
        return self.problem is not None and not self._has_known

    def find_covering(self, call: Subject | CallFacts, now: datetime) -> Rule | None:
        """The answer to a call: the first that refuses it, else the first that allows it."""
        self._read_file()
        return self._grants.find_covering(CandidateCall(call), now)

    def _read_file(self) -> None:
        seen = _read_state(self.file)
        if seen == self._state and seen is not None:
            return
        self._state = seen
        loaded = load_saved(self.file)
        if loaded.problems:
            self.problem = format_problems(self.file, loaded.problems)
            self._grants = GrantIndex(self._grants.refusals)
        else:
            self.problem = None
            self._grants = GrantIndex(tuple(entry.rule for entry in loaded.entries))
            self._has_known = seen is not None


class GrantIndex:
    """Rules that answer, found by their tools and programs."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.decision is not RuleEffect.DENY))
        self._index = RuleIndex(self.rules)
        self._grant_rules = tuple(map(GrantRule, self.rules))

    @property
    def refusals(self) -> tuple[Rule, ...]:
        """Those that allow nothing."""
        return tuple(rule for rule in self.rules if rule.decision is RuleEffect.DENY)

    def find_covering(self, call: CandidateCall, now: datetime) -> Rule | None:
        """The first that answers, refusals before all others."""
        if not self.rules or call.subject.kind is CallKind.QUESTION:
            return None
        for place in self._index.find_candidates(call.facts):
            rule = self.rules[place]
            if (rule.expires is None or now < rule.expires) and self._grant_rules[place].covers_call(call):
                return rule
        return None


def _read_state(file: Path) -> _FileState | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return _FileState(status.st_mtime_ns, status.st_size, status.st_ino)


def read_saved(content: FileContent) -> LoadedFile:
    """Check standing answers as a file has them."""
    loaded = read_policy_file(content, Tier.USER)
    faults = tuple(Problem(entry.line, "", fault) for entry in loaded.entries for fault in _explain_unfit(entry))
    if not faults:
        return loaded
    document = type(loaded.document)(loaded.document.content, loaded.document.text, None, faults)
    return LoadedFile(loaded.tier, document)


def _explain_unfit(entry: PolicyRule) -> Iterator[str]:
    rule = entry.rule
    if rule.decision is RuleEffect.ASK:
        yield "a standing answer allows or denies: put the rule into a policy file"
    if rule.name is None:
        yield "a standing answer has a `name`, by which it is revoked"
    for key in ("anything", "modes", "priority", *CONDITION_KEYS):
        if key in rule.model_fields_set and key not in _GRANT_KEYS:
            yield f"a standing answer knows no `{key}`: put the rule into a policy file"


def _check_sound(loaded: LoadedFile) -> LoadedFile:
    if loaded.problems:
        raise BadInput(format_problems(loaded.document.content.file, loaded.problems))
    return loaded


def _is_as_good(there: Rule, rule: Rule) -> bool:
    """Does it say the same, and for as long?"""
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


@contextmanager
def _lock_file(file: Path) -> Iterator[None]:
    """One process at a time."""
    name = escape_controls(str(file))
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(hold_lock(file, LOCK_SECONDS, f"{name} is being changed by another process: try again"))
        except OSError as error:
            raise BadInput(f"{name} cannot be written: {error.strerror or error}") from None
        except HoldfastError as error:
            raise BadInput(str(error)) from None
        yield


def _replace_file(file: Path, text: str) -> None:
    """Whole or not at all, and only with what can be read again."""
    data = text.encode()
    if len(data) > FILE_LIMIT:
        raise BadInput(f"{escape_controls(str(file))} is full: revoke answers that nobody needs")
    _check_sound(read_saved(FileContent(file, data)))
    try:
        write_whole(file, data)
    except OSError as error:
        raise BadInput(f"{escape_controls(str(file))} cannot be written: {error.strerror or error}") from None
