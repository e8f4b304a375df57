"""What a standing answer covers: the rule that a scope stands for, and whether it holds of a call (S24).

An allowing one must cover all of a call and know for certain what that is, as an allow rule, and is narrower still:
answers are given in passing. A command counts as it was understood, since that is what will run; open words (`git
diff` and whatever follows) cover nothing that destroys or leads elsewhere; what a call is given besides must be named.
A refusing one is about a call as soon as it surely is about part of it. Neither ever answers a question, and which
calls are asked about is for the policy to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property, lru_cache

from pydantic import ValidationError

from holdfast.activities.policy.commands import as_understood
from holdfast.activities.policy.matching import Condition, Facts, conditions_of, standing
from holdfast.activities.policy.phrases import Phrase, phrase_of
from holdfast.activities.policy.rules import Answer, Rule
from holdfast.activities.policy.subjects import BUILT_IN, Kind, Subject
from holdfast.activities.policy.truths import Truth
from holdfast.activities.shell.effects import find_effects
from holdfast.activities.shell.subcommands import goes_further
from holdfast.activities.shell.whole_tool import needs_own_answer
from holdfast.content import shorten
from holdfast.errors import BadInput
from holdfast.model import problems
from holdfast.outcomes import Scope

COMPILED = 2_000
"""Scopes whose rules are remembered."""
_FREE = frozenset(["command", "timeout_seconds"])
_USUAL = {"directory": ".", "environment": {}}
"""Arguments beside a command that say nothing when they are these."""
_REASON = 1_000


class Call:
    """What a standing answer looks at: a call as it was asked about, and as it would run."""

    def __init__(self, call: Subject | Facts, digest: str | None = None) -> None:
        self.facts = call if isinstance(call, Facts) else Facts(call)
        self.digest = digest

    @property
    def subject(self) -> Subject:
        """The call."""
        return self.facts.subject

    @cached_property
    def understood(self) -> Facts | None:
        """With its command rebuilt from the words that were judged; None when it is more than a plain chain.

        Also when it would have to be rebuilt: only our own shell is known to run what it is given.
        """
        subject = self.subject
        if subject.command is None:
            return self.facts
        text = as_understood(subject.command)
        if text == subject.command:
            return self.facts
        if text is None or subject.server is not None or subject.tool not in BUILT_IN:
            return None
        given = subject.arguments
        arguments = {**given, "command": text} if given.get("command") == subject.command else given
        return Facts(subject.model_copy(update={"command": text, "arguments": arguments}))


def rule_of(
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
                "decision": Answer.ALLOW if allow else Answer.DENY,
                **_conditions(scope),
                "name": name,
                "expires": expires,
                "reason": shorten(reason, _REASON) if reason else None,
            }
        )
    except ValidationError as error:
        raise BadInput(f"the scope covers nothing that a rule could say: {problems(error, 'scope')}") from None


def covers(scope: Scope, call: Call, allow: bool) -> bool:
    """Does an answer of this scope cover a call? One that makes no sense covers nothing."""
    if call.subject.kind is Kind.QUESTION:
        return False
    if scope.digest is not None and scope.digest != call.digest:
        return False
    compiled = _compiled(scope.model_dump_json(exclude={"digest"}, exclude_defaults=True), allow)
    if scope.digest is not None:
        return not _conditions(scope) or (compiled is not None and compiled.covers_some(call))
    return compiled is not None and compiled.covers(call)


class Standing:
    """A rule that answers instead of a person."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._conditions = conditions_of(rule)
        self._phrases = tuple(map(phrase_of, rule.command or ()))

    def covers(self, call: Call) -> bool:
        """Is the call meant?"""
        return self._covers_all(call) if self.rule.decision is Answer.ALLOW else self.covers_some(call)

    def covers_some(self, call: Call) -> bool:
        """As it was written, or as it would run."""
        seen = [call.facts, *([call.understood] if call.understood not in (None, call.facts) else [])]
        return any(_holds(self.rule, self._conditions, facts) for facts in seen if facts)

    def _covers_all(self, call: Call) -> bool:
        facts = call.understood
        if facts is None or not _holds(self.rule, self._conditions, facts):
            return False
        return facts.reading is None or not any(self._left_open(facts))

    def _left_open(self, facts: Facts) -> Iterator[bool]:
        """What an allow rule may cover of a command, and an answer given in passing does not."""
        programs = facts.reading.to_cover if facts.reading else ()
        about = self.rule.arguments or {}
        if self._phrases:
            yield any(
                goes_further(program) and not _spelled_out(self._phrases, program.runner or program.words)
                for program in programs
            )
        if self._phrases or "command" in about:
            given = facts.subject.arguments
            yield any(name not in {*_FREE, *about} and given[name] != _USUAL.get(name) for name in given)
        else:
            yield facts.subject.sets_variables or bool(facts.reading and facts.reading.extras)
            yield any(
                None in program.words or find_effects(program) or needs_own_answer(program) for program in programs
            )


def _spelled_out(phrases: Iterable[Phrase], words: tuple[str | None, ...]) -> bool:
    return any(phrase.exact and phrase.covers(words) for phrase in phrases)


def _holds(rule: Rule, conditions: tuple[Condition, ...], facts: Facts) -> bool:
    return standing(rule, conditions, facts)[0] is Truth.YES


@lru_cache(maxsize=COMPILED)
def _compiled(scope: str, allow: bool) -> Standing | None:
    try:
        rule = rule_of(Scope.model_validate_json(scope), allow=allow)
    except (BadInput, ValidationError):
        return None
    return Standing(rule) if rule else None


def _conditions(scope: Scope) -> dict[str, object]:
    """The keys of a rule; a server that is empty stands for none, as in `Rule`."""
    server = False if scope.server == "" else scope.server
    said = {"tool": scope.tool, "command": scope.command, "path": scope.path, "host": scope.host}
    return {
        **{key: value for key, value in said.items() if value},
        **({"server": server} if server is not None else {}),
        **({"arguments": scope.arguments} if scope.arguments else {}),
    }
