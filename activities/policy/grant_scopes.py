"""What a standing answer covers: the rule that a scope stands for, and whether it holds of a call (S24).

An allowing one must cover all of a call and know for certain what that is, as an allow rule, and is narrower still:
answers are given in passing. A command counts as it was understood, since that is what will run; open words (`git
diff` and whatever follows) cover nothing that destroys or leads elsewhere; what a call is given besides must be named.
A refusing one is about a call as soon as it surely is about part of it. Neither ever answers a question, and which
calls are asked about is for the policy to say.

Why: docs/decisions/0007-grants-are-offers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property, lru_cache

from pydantic import ValidationError

from holdfast.activities.policy.conditions import CallFacts, Condition, build_conditions, match_rule
from holdfast.activities.policy.rules import Rule, RuleEffect
from holdfast.activities.policy.subject.command_patterns import Phrase, parse_phrase
from holdfast.activities.policy.subject.shell_commands import rebuild_understood
from holdfast.activities.policy.subject.subject import BUILT_IN, CallKind, Subject
from holdfast.activities.policy.subject.ternary import Truth
from holdfast.activities.shell.programs.option_effects import find_effects
from holdfast.activities.shell.programs.program_effects import may_do_more, needs_own_approval
from holdfast.domain.approvals.approval import Scope
from holdfast.domain.base import describe_problems
from holdfast.errors import BadInput
from holdfast.util.text import shorten_text

CACHED_SCOPES = 2_000
"""Scopes whose rules are remembered."""
_FREE_ARGUMENTS = frozenset(["command", "timeout_seconds"])
_DEFAULT_ARGUMENTS = {"directory": ".", "environment": {}}
"""Arguments beside a command that say nothing when they are these."""
_REASON_LIMIT = 1_000


class CandidateCall:
    """What a standing answer looks at: a call as it was asked about, and as it would run."""

    def __init__(self, call: Subject | CallFacts, digest: str | None = None) -> None:
        self.facts = call if isinstance(call, CallFacts) else CallFacts(call)
        self.digest = digest

    @property
    def subject(self) -> Subject:
        """The call."""
        return self.facts.subject

    @cached_property
    def rebuilt_facts(self) -> CallFacts | None:
        """With its command rebuilt from the words that were judged; None when it is more than a plain chain.

        Also when it would have to be rebuilt: only our own shell is known to run what it is given.
        """
        subject = self.subject
        if subject.command is None:
            return self.facts
        text = rebuild_understood(subject.command)
        if text == subject.command:
            return self.facts
        if text is None or subject.server is not None or subject.tool not in BUILT_IN:
            return None
        given = subject.arguments
        arguments = {**given, "command": text} if given.get("command") == subject.command else given
        return CallFacts(subject.model_copy(update={"command": text, "arguments": arguments}))


def build_scope_rule(
    scope: Scope,
    *,
    allow: bool,
    name: str | None = None,
    expires: datetime | None = None,
    reason: str | None = None,
) -> Rule | None:
    """The rule that a scope stands for; None when it is about one digest, which no rule can say.

    BadInput when it says nothing, or what no rule may say.
    """
    if scope.digest is not None:
        return None
    try:
        return Rule.model_validate(
            {
                "decision": RuleEffect.ALLOW if allow else RuleEffect.DENY,
                **_build_conditions(scope),
                "name": name,
                "expires": expires,
                "reason": shorten_text(reason, _REASON_LIMIT) if reason else None,
            }
        )
    except ValidationError as error:
        raise BadInput(f"the scope covers nothing that a rule could say: {describe_problems(error, 'scope')}") from None


def is_covered(scope: Scope, call: CandidateCall, allow: bool) -> bool:
    """Does an answer of this scope cover a call? One that makes no sense covers nothing."""
    if call.subject.kind is CallKind.QUESTION:
        return False
    if scope.digest is not None and scope.digest != call.digest:
        return False
    compiled = _compile_scope(scope.model_dump_json(exclude={"digest"}, exclude_defaults=True), allow)
    if scope.digest is not None:
        return not _build_conditions(scope) or (compiled is not None and compiled.covers_some(call))
    return compiled is not None and compiled.covers_call(call)


class GrantRule:
    """A rule that answers instead of a person."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._conditions = build_conditions(rule)
        self._phrases = tuple(map(parse_phrase, rule.command or ()))

    def covers_call(self, call: CandidateCall) -> bool:
        """Is the call meant?"""
        return self._covers_all(call) if self.rule.decision is RuleEffect.ALLOW else self.covers_some(call)

    def covers_some(self, call: CandidateCall) -> bool:
        """As it was written, or as it would run."""
        seen = [call.facts, *([call.rebuilt_facts] if call.rebuilt_facts not in (None, call.facts) else [])]
        return any(_is_matching(self.rule, self._conditions, facts) for facts in seen if facts)

    def _covers_all(self, call: CandidateCall) -> bool:
        facts = call.rebuilt_facts
        if facts is None or not _is_matching(self.rule, self._conditions, facts):
            return False
        return facts.reading is None or not any(self._find_openings(facts))

    def _find_openings(self, facts: CallFacts) -> Iterator[bool]:
        """What an allow rule may cover of a command, and an answer given in passing does not."""
        programs = facts.reading.covered_programs if facts.reading else ()
        about = self.rule.arguments or {}
        if self._phrases:
            yield any(
                may_do_more(program) and not _is_spelled_out(self._phrases, program.runner or program.words)
                for program in programs
            )
        if self._phrases or "command" in about:
            given = facts.subject.arguments
            yield any(
                name not in {*_FREE_ARGUMENTS, *about} and given[name] != _DEFAULT_ARGUMENTS.get(name) for name in given
            )
        else:
            yield facts.subject.sets_variables or bool(facts.reading and facts.reading.extra_effects)
            yield any(
                None in program.words or find_effects(program) or needs_own_approval(program) for program in programs
            )


def _is_spelled_out(phrases: Iterable[Phrase], words: tuple[str | None, ...]) -> bool:
    return any(phrase.exact and phrase.covers_words(words) for phrase in phrases)


def _is_matching(rule: Rule, conditions: tuple[Condition, ...], facts: CallFacts) -> bool:
    return match_rule(rule, conditions, facts)[0] is Truth.YES


@lru_cache(maxsize=CACHED_SCOPES)
def _compile_scope(scope: str, allow: bool) -> GrantRule | None:
    try:
        rule = build_scope_rule(Scope.model_validate_json(scope), allow=allow)
    except (BadInput, ValidationError):
        return None
    return GrantRule(rule) if rule else None


def _build_conditions(scope: Scope) -> dict[str, object]:
    """The keys of a rule; a server that is empty stands for none, as in `Rule`."""
    server = False if scope.server == "" else scope.server
    said = {"tool": scope.tool, "command": scope.command, "path": scope.path, "host": scope.host}
    return {
        **{key: value for key, value in said.items() if value},
        **({"server": server} if server is not None else {}),
        **({"arguments": scope.arguments} if scope.arguments else {}),
    }
