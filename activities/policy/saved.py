"""Standing answers that were given for good: a policy file of their own, written for the person who gave them.

They answer where the policy asks, as the grants of a turn do, and lift no denial. A file is changed as a whole, by one
process at a time, and only if it can be read: what is in it is never lost. One that cannot be read allows nothing, and
what was refused before it broke stays refused: a slip of the keyboard lets nothing run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from holdfast.activities.policy.deciding import Entry
from holdfast.activities.policy.indexing import Index
from holdfast.activities.policy.loading import LoadedFile, load_file
from holdfast.activities.policy.matching import Facts
from holdfast.activities.policy.rules import CONDITIONS, Answer, Rule, Tier
from holdfast.activities.policy.scopes import Call, Standing, rule_of
from holdfast.activities.policy.subjects import Kind, Subject
from holdfast.activities.policy.writing import toml_of
from holdfast.approvals import canonical_digest
from holdfast.content import shorten, visible
from holdfast.documents import LIMIT, Content, Problem, complaint, read
from holdfast.errors import BadInput, HoldfastError
from holdfast.grants import Grant
from holdfast.locks import locked
from holdfast.whole_files import write_whole

FILE = "granted.toml"
"""In the data folder."""
PATIENCE = 5.0
"""Seconds to wait for another process that changes the file."""
_KEYS = ("tool", "server", "command", "path", "host", "arguments")
"""What a standing answer may be about: the keys of a scope."""
_HEADER = "# Standing answers that were given for good. `holdfast grants` lists and revokes them.\n"


def load_saved(file: Path) -> LoadedFile:
    """The answers in a file, or what is wrong with it. No file holds none."""
    try:
        os.lstat(file)
    except FileNotFoundError:
        return load_file(Content(file), Tier.USER)
    except OSError:
        pass  # it may be there: reading it tells what is wrong
    return load_text(read(file))


def find_saved(file: Path, name: str) -> Rule | None:
    """The answer of this name, if the file can be read and has it."""
    return next((entry.rule for entry in load_saved(file).entries if entry.rule.name == name), None)


def save(file: Path, grant: Grant | Rule) -> str:
    """Add an answer, once however often it is saved; its name. BadInput when it, or the file, is not fit for that."""
    rule = grant if isinstance(grant, Rule) else rule_for(grant)
    with _locked(file):
        loaded = _sound(load_saved(file))
        there = standing_as(rule, [entry.rule for entry in loaded.entries], visible(str(file)))
        if there is not None:
            return there
        before = loaded.document.text or _HEADER
        _replace(file, f"{before.rstrip()}\n\n{toml_of(rule)}")
    return rule.name or ""


def remove(file: Path, name: str) -> Rule:
    """Take an answer out. BadInput when there is none of this name, or the file is not fit for that."""
    with _locked(file):
        loaded = _sound(load_saved(file))
        entries = loaded.entries
        place = next((at for at, entry in enumerate(entries) if entry.rule.name == name), None)
        if place is None:
            raise BadInput(f"{visible(str(file))}: no answer is called {shorten(name, 100)!r}")
        lines = loaded.document.text.split("\n")
        end = entries[place + 1].line - 1 if place + 1 < len(entries) else len(lines)
        text = "\n".join([*lines[: entries[place].line - 1], *lines[end:]])
        left = [entry.rule for at, entry in enumerate(entries) if at != place]
        if [entry.rule for entry in load_text(Content(file, text.encode())).entries] != left:
            where = f"{visible(str(file))}, line {entries[place].line}"
            raise BadInput(f"{where}: the file was changed by hand: take {name!r} out by hand as well")
        _replace(file, text)
    return entries[place].rule


def rule_for(grant: Grant) -> Rule:
    """The rule that keeps a grant; BadInput when none can."""
    decision = grant.decision
    if grant.scope.digest is not None:
        raise BadInput("this answer is about one call alone, and cannot be kept for good: choose a wider one")
    if decision.uses is not None:
        raise BadInput("an answer for a number of calls cannot be kept for good: leave out the number")
    reason = f"given by {grant.by} on {grant.given_at:%Y-%m-%d} for {decision.approval_id}"
    made = rule_of(grant.scope, allow=grant.allows, expires=decision.expires, reason=reason)
    assert made  # it has no digest
    name = canonical_digest([_conditions(made), made.decision, decision.expires and decision.expires.isoformat()])
    return made.model_copy(update={"name": f"granted-{name[:8]}"})


def standing_as(rule: Rule, rules: Iterable[Rule], where: str) -> str | None:
    """The name of one of these that says the same already. BadInput when one of them is in the way."""
    known = list(rules)
    if there := next((one for one in known if _is_as_good(one, rule)), None):
        return there.name or ""
    if other := next((one for one in known if one.name == rule.name or _is_opposite(one, rule)), None):
        raise BadInput(f"{where}: {other.name!r} is in the way: revoke it first")
    return None


class Saved(Protocol):
    """Standing answers as a judgement asks for them. `look` comes first."""

    async def look(self) -> None:
        """Know what is there now, or as of a second ago."""

    @property
    def uncertain(self) -> bool:
        """May there be refusals that nobody knows of?"""

    @property
    def note(self) -> str | None:
        """What whoever is asked about a call should know of them."""

    def covering(self, call: Subject | Facts, now: datetime) -> Rule | None:
        """The answer to a call: the first that refuses it, else the first that allows it."""


class _Seen(NamedTuple):
    """By what a file is known to be the same."""

    changed: int
    size: int
    inode: int


class SavedGrants:
    """The answers in a file, read again whenever it changed."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._seen: _Seen | None = None
        self._answers = Answers(())
        self._known = False
        """Whether its refusals are those of a file that could be read."""
        self.problem: str | None = None
        """Why nothing in the file counts, and of what was read before only the refusals."""

    note: str | None = None
    """Whoever is asked need not know anything of a file."""

    async def look(self) -> None:
        """Nothing: a file is looked at whenever it is asked."""

    async def rest(self) -> None:
        """Nothing: nothing is held."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All of them, expired ones too."""
        self._read()
        return self._answers.rules

    @property
    def uncertain(self) -> bool:
        """May there be refusals that nobody knows of? The file is broken, and was never seen in order."""
        self._read()
        return self.problem is not None and not self._known

    def covering(self, call: Subject | Facts, now: datetime) -> Rule | None:
        """The answer to a call: the first that refuses it, else the first that allows it."""
        self._read()
        return self._answers.covering(Call(call), now)

    def _read(self) -> None:
        seen = _seen(self.file)
        if seen == self._seen and seen is not None:
            return
        self._seen = seen
        loaded = load_saved(self.file)
        if loaded.problems:
            self.problem = complaint(self.file, loaded.problems)
            self._answers = Answers(self._answers.refusals)
        else:
            self.problem = None
            self._answers = Answers(tuple(entry.rule for entry in loaded.entries))
            self._known = seen is not None


class Answers:
    """Rules that answer, found by their tools and programs."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.decision is not Answer.DENY))
        self._index = Index(self.rules)
        self._standing = tuple(map(Standing, self.rules))

    @property
    def refusals(self) -> tuple[Rule, ...]:
        """Those that allow nothing."""
        return tuple(rule for rule in self.rules if rule.decision is Answer.DENY)

    def covering(self, call: Call, now: datetime) -> Rule | None:
        """The first that answers, refusals before all others."""
        if not self.rules or call.subject.kind is Kind.QUESTION:
            return None
        for place in self._index.candidates(call.facts):
            rule = self.rules[place]
            if (rule.expires is None or now < rule.expires) and self._standing[place].covers(call):
                return rule
        return None


def _seen(file: Path) -> _Seen | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return _Seen(status.st_mtime_ns, status.st_size, status.st_ino)


def load_text(content: Content) -> LoadedFile:
    """Check standing answers as a file has them."""
    loaded = load_file(content, Tier.USER)
    faults = tuple(Problem(entry.line, "", fault) for entry in loaded.entries for fault in _unfit(entry))
    if not faults:
        return loaded
    document = type(loaded.document)(loaded.document.content, loaded.document.text, None, faults)
    return LoadedFile(loaded.tier, document)


def _unfit(entry: Entry) -> Iterator[str]:
    rule = entry.rule
    if rule.decision is Answer.ASK:
        yield "a standing answer allows or denies: put the rule into a policy file"
    if rule.name is None:
        yield "a standing answer has a `name`, by which it is revoked"
    for key in ("anything", "modes", "priority", *CONDITIONS):
        if key in rule.model_fields_set and key not in _KEYS:
            yield f"a standing answer knows no `{key}`: put the rule into a policy file"


def _sound(loaded: LoadedFile) -> LoadedFile:
    if loaded.problems:
        raise BadInput(complaint(loaded.document.content.file, loaded.problems))
    return loaded


def _is_as_good(there: Rule, rule: Rule) -> bool:
    """Does it say the same, and for as long?"""
    lasts = there.expires is None or there.expires == rule.expires
    return lasts and there.decision is rule.decision and _conditions(there) == _conditions(rule)


def _is_opposite(there: Rule, rule: Rule) -> bool:
    return there.expires is None and there.decision is not rule.decision and _conditions(there) == _conditions(rule)


def _conditions(rule: Rule) -> object:
    return rule.model_dump(mode="json", include=set(_KEYS), exclude_none=True)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time."""
    name = visible(str(file))
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(locked(file, PATIENCE, f"{name} is being changed by another process: try again"))
        except OSError as error:
            raise BadInput(f"{name} cannot be written: {error.strerror or error}") from None
        except HoldfastError as error:
            raise BadInput(str(error)) from None
        yield


def _replace(file: Path, text: str) -> None:
    """Whole or not at all, and only with what can be read again."""
    data = text.encode()
    if len(data) > LIMIT:
        raise BadInput(f"{visible(str(file))} is full: revoke answers that nobody needs")
    _sound(load_text(Content(file, data)))
    try:
        write_whole(file, data)
    except OSError as error:
        raise BadInput(f"{visible(str(file))} cannot be written: {error.strerror or error}") from None
