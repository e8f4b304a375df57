"""Finds the grant that applies to a call, and the grants that a question offers (S24).

A grant stands for a rule on the fields of its scope, and is narrower than a policy rule: it is given in passing. One
that allows must cover the whole call: a command counts as it was rebuilt, since that is what will run; a phrase that is
open at its end (`git diff` and any further words) covers only words that are known to be harmless; every further
argument must be named. One that refuses applies as soon as it certainly matches a part of the call. No grant ever
answers a question, and the policy says which calls are asked about.

Why: docs/decisions/0007-grants-are-offers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from pydantic import ValidationError

from holdfast.activities.policy.command_phrases import END_MARK, Words, parse_phrase, quote_word
from holdfast.activities.policy.command_reading import CommandReading
from holdfast.activities.policy.conditions import CallFacts, build_conditions, match_rule
from holdfast.activities.policy.patterns import find_host
from holdfast.activities.policy.policy import RuleIndex, Ruling
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.subject import BUILT_IN, FOLDER_ARGUMENT, CallKind, Subject, Truth
from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.program_effects import (
    find_subcommand,
    is_harmless,
    may_do_more,
    needs_own_approval,
)
from holdfast.domain.approvals.approval import DecisionAction, Offer, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.domain.base import describe_problems
from holdfast.errors import BadInput
from holdfast.util.globs import escape_glob
from holdfast.util.text import drop_surrogates, elide_middle, escape_controls, shorten_text

CACHED_SCOPES = 2_000
"""Scopes whose rules are cached."""
COMMAND_LIMIT = 10_000
"""Characters of a command that a scope repeats; a grant for a longer one is for its digest."""
TEXT_SHOWN = 500
"""Characters of the description of a grant."""
EXCEPTIONS = (
    "commands that are known to destroy or to write files, that run an interpreter, a program by its path or as "
    "somebody else (`sudo`), that set variables, or that cannot be read with certainty"
)
"""The commands that a grant for a whole tool does not cover; `GrantRule` and `needs_own_approval` enforce this."""
_REASON_LIMIT = 1_000
_FREE_ARGUMENTS = frozenset(["command", "timeout_seconds"])
_DEFAULT_ARGUMENTS = {FOLDER_ARGUMENT: ".", "environment": {}}
"""Values of further arguments of a command that change nothing."""


class CandidateCall:
    """A call that a grant may apply to: as it was asked about, and as it would run."""

    def __init__(self, call: Subject | CallFacts, digest: str | None = None) -> None:
        self.facts = call if isinstance(call, CallFacts) else CallFacts(call)
        self.digest = digest

    @property
    def subject(self) -> Subject:
        """The call as it was asked about."""
        return self.facts.subject

    @cached_property
    def rebuilt_facts(self) -> CallFacts | None:
        """The call with its command rebuilt from the analysed words; None when that is not possible.

        Only the built-in shell is known to run the rebuilt command: for other tools, None if it differs.
        """
        subject, reading = self.subject, self.facts.reading
        if reading is None:
            return self.facts
        text = reading.rebuilt
        if text == subject.command:
            return self.facts
        if text is None or subject.server is not None or subject.tool not in BUILT_IN:
            return None
        given = subject.arguments
        arguments = {**given, "command": text} if given.get("command") == subject.command else given
        return CallFacts(subject.model_copy(update={"command": text, "arguments": arguments}))


class GrantRule:
    """The compiled rule of a grant."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._conditions = build_conditions(rule)
        self._phrases = tuple(map(parse_phrase, rule.command or ()))

    def covers_call(self, call: CandidateCall) -> bool:
        """Does the grant apply to the call? One that allows must cover all of it, one that refuses any part."""
        return self._covers_all(call) if self.rule.decision is RuleEffect.ALLOW else self.covers_some(call)

    def covers_some(self, call: CandidateCall) -> bool:
        """Does the rule match the call, as it was written or as it would run?"""
        return self._matches(call.facts) or (call.rebuilt_facts is not None and self._matches(call.rebuilt_facts))

    def _covers_all(self, call: CandidateCall) -> bool:
        facts = call.rebuilt_facts
        if facts is None or not self._matches(facts):
            return False
        return facts.reading is None or not any(self._find_openings(facts, facts.reading))

    def _find_openings(self, facts: CallFacts, reading: CommandReading) -> Iterator[bool]:
        """Parts of a command that an allow rule would cover and a grant does not."""
        programs, about = reading.covered_programs, self.rule.arguments or {}
        if self._phrases:
            yield any(
                may_do_more(program) and not self._spells_out(program.runner or program.words) for program in programs
            )
        if self._phrases or "command" in about:
            named, given = {*_FREE_ARGUMENTS, *about}, facts.subject.arguments
            yield any(name not in named and given[name] != _DEFAULT_ARGUMENTS.get(name) for name in given)
        else:
            yield facts.subject.sets_variables or bool(reading.extra_effects)
            yield any(None in one.words or find_effects(one) or needs_own_approval(one) for one in programs)

    def _spells_out(self, words: Words) -> bool:
        return any(phrase.exact and phrase.covers_words(words) for phrase in self._phrases)

    def _matches(self, facts: CallFacts) -> bool:
        return match_rule(self.rule, self._conditions, facts)[0] is Truth.YES


class GrantIndex:
    """The rules of saved grants, found by their tools and programs."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.decision is not RuleEffect.DENY))
        self._index = RuleIndex(self.rules)
        self._grant_rules = tuple(map(GrantRule, self.rules))

    @property
    def refusals(self) -> tuple[Rule, ...]:
        """The rules that refuse."""
        return tuple(rule for rule in self.rules if rule.decision is RuleEffect.DENY)

    def find_covering(self, call: CandidateCall, now: datetime) -> Rule | None:
        """The first rule that applies to a call, refusals before all others; None when none does."""
        if not self.rules or call.subject.kind is CallKind.QUESTION:
            return None
        for place in self._index.find_candidates(call.facts):
            rule = self.rules[place]
            if (rule.expires is None or now < rule.expires) and self._grant_rules[place].covers_call(call):
                return rule
        return None


def may_use_grants(ruling: Ruling | None) -> bool:
    """May a grant apply where the policy asks with this ruling? Not with `always_ask` or several approvals."""
    return ruling is None or not (ruling.always_ask or ruling.needs.approvals > 1)


def find_covering_grant(grants: Iterable[Grant], call: Subject | CallFacts, digest: str, now: datetime) -> Grant | None:
    """The grant that applies to a call: the first that refuses it, else the first that allows it."""
    candidate = CandidateCall(call, digest)
    allowing: Grant | None = None
    for grant in grants:
        if allowing and grant.is_allowance:
            continue
        if grant.is_active(now) and is_covered(grant.scope, candidate, grant.is_allowance):
            if not grant.is_allowance:
                return grant
            allowing = grant
    return allowing


def is_covered(scope: Scope, call: CandidateCall, allow: bool) -> bool:
    """Does a grant of this scope apply to a call? An invalid scope covers nothing."""
    if call.subject.kind is CallKind.QUESTION:
        return False
    if scope.digest is not None and scope.digest != call.digest:
        return False
    compiled = _compile_scope(scope.model_dump_json(exclude={"digest"}, exclude_defaults=True), allow)
    if scope.digest is not None:
        return not _dump_conditions(scope) or (compiled is not None and compiled.covers_some(call))
    return compiled is not None and compiled.covers_call(call)


def build_scope_rule(
    scope: Scope,
    *,
    allow: bool,
    name: str | None = None,
    expires: datetime | None = None,
    reason: str | None = None,
) -> Rule | None:
    """The rule for a scope; None for a digest, which no rule can express. BadInput when it covers nothing."""
    if scope.digest is not None:
        return None
    try:
        return Rule.model_validate(
            {
                "decision": RuleEffect.ALLOW if allow else RuleEffect.DENY,
                **_dump_conditions(scope),
                "name": name,
                "expires": expires,
                "reason": shorten_text(reason, _REASON_LIMIT) if reason else None,
            }
        )
    except ValidationError as error:
        raise BadInput(f"the scope covers nothing that a rule could say: {describe_problems(error, 'scope')}") from None


@lru_cache(maxsize=CACHED_SCOPES)
def _compile_scope(scope: str, allow: bool) -> GrantRule | None:
    try:
        rule = build_scope_rule(Scope.model_validate_json(scope), allow=allow)
    except (BadInput, ValidationError):
        return None
    return GrantRule(rule) if rule else None


def _dump_conditions(scope: Scope) -> dict[str, object]:
    """The conditions of a scope as keys of a rule, in which `false` stands for no server."""
    server = False if scope.server == "" else scope.server
    texts = {"tool": scope.tool, "command": scope.command, "path": scope.path, "host": scope.host}
    return {
        **{key: value for key, value in texts.items() if value},
        **({"server": server} if server is not None else {}),
        **({"arguments": scope.arguments} if scope.arguments else {}),
    }


# Offers


def build_offers(subject: Subject, digest: str, ruling: Ruling | None) -> tuple[Offer, ...]:
    """The grants that a question offers, the narrowest first. None for a question, or where no grant applies."""
    if subject.kind is CallKind.QUESTION or not may_use_grants(ruling):
        return ()
    call = CandidateCall(subject, digest)
    narrow = [offer for offer in _build_narrow_offers(subject, call) if is_covered(offer.scope, call, True)]
    exactly = "exactly this call, with the same arguments"
    if subject.command is not None:
        exactly = "exactly this command as it is written, with the same folder and variables"
    only = Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=Scope(digest=digest), covers=exactly)
    wide = (offer for offer in _build_wide_offers(subject) if is_covered(offer.scope, call, True))
    return (*(narrow or [only]), *wide)


def _build_offer(outcome: DecisionAction, covers: str, subject: Subject, **scope: Any) -> Iterator[Offer]:
    """One offer, or none when its scope is invalid: a name may be too long, or hold lone surrogates."""
    pinned = {"tool": escape_glob(subject.tool), "server": escape_glob(subject.server or "")}
    try:
        made = Scope(**{**pinned, **scope})
        made.model_dump_json()
    except (ValidationError, ValueError):
        return
    yield Offer(outcome=outcome, scope=made, covers=covers)


def _build_narrow_offers(subject: Subject, call: CandidateCall) -> Iterator[Offer]:
    always = DecisionAction.PROCEED_ALWAYS
    if subject.command is not None:
        yield from _build_command_offers(subject, call)
    elif subject.kind is CallKind.EDIT and subject.paths:
        paths = tuple(dict.fromkeys(subject.paths))
        covers = f"edits of {_format_list(paths)} by {_format_code(subject.tool)}"
        yield from _build_offer(always, covers, subject, path=tuple(map(escape_glob, paths)))
    elif subject.urls and None not in (hosts := [find_host(url) for url in subject.urls]):
        named = tuple(dict.fromkeys(host for host in hosts if host is not None))
        covers = f"{_format_code(subject.tool)} from {_format_list(named)}"
        yield from _build_offer(always, covers, subject, host=named)


def _build_command_offers(subject: Subject, call: CandidateCall) -> Iterator[Offer]:
    """Offer the words of one program or the whole text of a chain; then well-known programs with any further words."""
    always, facts = DecisionAction.PROCEED_ALWAYS, call.rebuilt_facts
    if facts is None or facts.reading is None or subject.sets_variables:
        return
    text, reading = facts.subject.command or "", facts.reading
    if len(text) > COMMAND_LIMIT:
        return
    folder = subject.arguments.get(FOLDER_ARGUMENT, ".")
    about = {} if folder == "." else {FOLDER_ARGUMENT: folder}
    where = "" if folder == "." else f", in the folder {_format_code(str(folder))}"
    programs = [program for program in reading.programs if not program.runner]
    if len(programs) == 1 and _is_plain(programs[0]):
        covers = f"{_format_words(programs[0].words)}, exactly these words{where}"
        command = (_build_exact_phrase(programs[0].words),)
        yield from _build_offer(always, covers, subject, command=command, arguments=about)
    else:
        covers = f"{_format_code(text)}, exactly as it stands{where}"
        yield from _build_offer(always, covers, subject, arguments={"command": text, **about})
    if found := _find_open_command(reading):
        yield from _build_offer(always, found.covers + where, subject, command=found.phrases, arguments=about)


class _OpenCommand(NamedTuple):
    phrases: tuple[str, ...]
    covers: str


def _find_open_command(reading: CommandReading) -> _OpenCommand | None:
    """The phrases of well-known programs with any further words, beside harmless ones as they are; else None."""
    known = [words for program in reading.programs if (words := find_subcommand(program))]
    others = [program for program in reading.programs if not find_subcommand(program)]
    if not known or not all(_is_plain(program) and is_harmless(program) for program in others):
        return None
    phrases = [*map(_build_phrase, known), *(_build_exact_phrase(program.words) for program in others)]
    opened = " and ".join(dict.fromkeys(map(_format_words, known)))
    exact = " and ".join(dict.fromkeys(_format_words(program.words) for program in others))
    covers = f"{opened} with further words that are known to be harmless"
    return _OpenCommand(tuple(dict.fromkeys(phrases)), f"{covers}; beside it {exact}, exactly" if exact else covers)


def _build_wide_offers(subject: Subject) -> Iterator[Offer]:
    tool, server = _format_code(subject.tool), subject.server
    but = "" if subject.command is None else f", but not {EXCEPTIONS}"
    yield from _build_offer(DecisionAction.PROCEED_ALWAYS_TOOL, f"every call of {tool}{but}", subject)
    if server is not None:
        covers = f"every tool of the server {_format_code(server)}{but}"
        yield from _build_offer(DecisionAction.PROCEED_ALWAYS_SERVER, covers, subject, tool=None)


def _is_plain(program: Program) -> bool:
    return not program.wrappers and not program.assignments and None not in program.words


def _build_phrase(words: Words) -> str:
    return " ".join(quote_word(word) for word in words if word is not None)


def _build_exact_phrase(words: Words) -> str:
    return f"{_build_phrase(words)} {END_MARK}"


def _format_words(words: Words) -> str:
    return _format_code(_build_phrase(words))


def _format_list(texts: Iterable[str]) -> str:
    return elide_middle(" and ".join(map(_format_code, texts)), TEXT_SHOWN)


def _format_code(text: str) -> str:
    return f"`{elide_middle(escape_controls(drop_surrogates(text)).replace(chr(10), '␊'), TEXT_SHOWN)}`"
