"""Standing answers: which of them answers a call, and which a question offers, the narrowest first (S24)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from holdfast.activities.policy.conditions import CallFacts
from holdfast.activities.policy.grant_scopes import CandidateCall, build_scope_rule, is_covered
from holdfast.activities.policy.patterns import find_host
from holdfast.activities.policy.policy import Ruling
from holdfast.activities.policy.subject.command_patterns import END_MARK, quote_word
from holdfast.activities.policy.subject.shell_commands import CommandReading
from holdfast.activities.policy.subject.subject import CallKind, Subject
from holdfast.activities.shell.programs.program import Program
from holdfast.activities.shell.programs.program_effects import find_subcommand, is_harmless
from holdfast.domain.approvals.approval import DecisionAction, Offer, Scope
from holdfast.domain.approvals.grants import Grant
from holdfast.util.globs import escape_glob
from holdfast.util.text import drop_surrogates, elide_middle, escape_controls

__all__ = ["may_use_grants", "find_covering_grant", "build_offers", "build_scope_rule"]

COMMAND_LIMIT = 10_000
"""Characters of a command that a scope repeats; a longer one is known by its digest."""
TEXT_SHOWN = 500
"""Characters of what is covered."""
EXCEPTIONS = (
    "commands that are known to destroy or to write files, that run an interpreter, a program by its path or as "
    "somebody else (`sudo`), that set variables, or that cannot be read with certainty"
)
"""What an answer for a whole tool leaves out of its commands. `grant_scopes` and `programs.own_approval` see to it."""


def may_use_grants(ruling: Ruling | None) -> bool:
    """May a standing answer speak where the policy asks so? Not where each call is a matter of its own."""
    return ruling is None or not (ruling.always_ask or ruling.needs.approvals > 1)


def find_covering_grant(grants: Iterable[Grant], call: Subject | CallFacts, digest: str, now: datetime) -> Grant | None:
    """The standing answer to a call: the first that refuses it, else the first that allows it."""
    looked_at = CandidateCall(call, digest)
    allowing: Grant | None = None
    for grant in grants:
        if (
            (allowing and grant.is_allowance)
            or not grant.is_active(now)
            or not is_covered(grant.scope, looked_at, grant.is_allowance)
        ):
            continue
        if not grant.is_allowance:
            return grant
        allowing = grant
    return allowing


def build_offers(subject: Subject, digest: str, ruling: Ruling | None) -> tuple[Offer, ...]:
    """What a person may answer for good. Nothing for a question, or where the policy wants to hear of each call."""
    if subject.kind is CallKind.QUESTION or not may_use_grants(ruling):
        return ()
    call = CandidateCall(subject, digest)
    narrow = [offer for offer in _build_narrow_offers(subject, call) if _covers_own_call(offer, call)]
    exactly = "exactly this call, with the same arguments"
    if subject.command is not None:
        exactly = "exactly this command as it is written, with the same folder and variables"
    only = Offer(outcome=DecisionAction.PROCEED_ALWAYS, scope=Scope(digest=digest), covers=exactly)
    return (*(narrow or [only]), *(offer for offer in _build_wide_offers(subject) if _covers_own_call(offer, call)))


def _covers_own_call(offer: Offer, call: CandidateCall) -> bool:
    """Does it cover the call it is offered for?"""
    return is_covered(offer.scope, call, True)


def _build_offer(outcome: DecisionAction, covers: str, subject: Subject, **scope: Any) -> Iterator[Offer]:
    """An offer, if it can be said at all: names may be too long, or no text."""
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
        words = f"edits of {_format_list(paths)} by {_format_code(subject.tool)}"
        yield from _build_offer(always, words, subject, path=tuple(map(escape_glob, paths)))
    elif subject.urls and None not in (hosts := [find_host(url) for url in subject.urls]):
        named = tuple(dict.fromkeys(host for host in hosts if host is not None))
        yield from _build_offer(always, f"{_format_code(subject.tool)} from {_format_list(named)}", subject, host=named)


def _build_command_offers(subject: Subject, call: CandidateCall) -> Iterator[Offer]:
    """Of one program its words, of a chain all of it as it stands; then well-known programs whatever follows."""
    facts = call.rebuilt_facts
    if (
        facts is None
        or facts.reading is None
        or subject.sets_variables
        or len(facts.subject.command or "") > COMMAND_LIMIT
    ):
        return
    place = subject.arguments.get("directory", ".")
    about = {} if place == "." else {"directory": place}
    where = "" if place == "." else f", in the folder {_format_code(str(place))}"
    programs = [program for program in facts.reading.programs if not program.runner]
    if len(programs) == 1 and _is_plain(programs[0]):
        words = f"{_format_phrase_code(programs[0].words)}, exactly these words{where}"
        command = (_format_exact(programs[0].words),)
        yield from _build_offer(DecisionAction.PROCEED_ALWAYS, words, subject, command=command, arguments=about)
    else:
        text = facts.subject.command or ""
        words = f"{_format_code(text)}, exactly as it stands{where}"
        yield from _build_offer(DecisionAction.PROCEED_ALWAYS, words, subject, arguments={"command": text, **about})
    if opened := _open_command(facts.reading):
        words = f"{opened.description}{where}"
        yield from _build_offer(DecisionAction.PROCEED_ALWAYS, words, subject, command=opened.phrases, arguments=about)


@dataclass(frozen=True)
class _OpenCommand:
    phrases: tuple[str, ...]
    description: str


def _open_command(reading: CommandReading) -> _OpenCommand | None:
    """Well-known programs with any further words; beside them harmless ones as they stand. None for all others."""
    open_words = [words for program in reading.programs if (words := find_subcommand(program))]
    others = [program for program in reading.programs if not find_subcommand(program)]
    if not open_words or not all(_is_plain(program) and is_harmless(program) for program in others):
        return None
    phrases = [*map(_format_phrase, open_words), *(_format_exact(program.words) for program in others)]
    opened = " and ".join(dict.fromkeys(_format_phrase_code(words) for words in open_words))
    exact = " and ".join(dict.fromkeys(_format_phrase_code(program.words) for program in others))
    told = f"{opened} with further words that are known to be harmless"
    return _OpenCommand(tuple(dict.fromkeys(phrases)), f"{told}; beside it {exact}, exactly" if exact else told)


def _build_wide_offers(subject: Subject) -> Iterator[Offer]:
    tool, server = _format_code(subject.tool), subject.server
    but = "" if subject.command is None else f", but not {EXCEPTIONS}"
    yield from _build_offer(DecisionAction.PROCEED_ALWAYS_TOOL, f"every call of {tool}{but}", subject)
    if server is not None:
        words = f"every tool of the server {_format_code(server)}{but}"
        yield from _build_offer(DecisionAction.PROCEED_ALWAYS_SERVER, words, subject, tool=None)


def _is_plain(program: Program) -> bool:
    return not program.wrappers and not program.assignments and None not in program.words


def _format_exact(words: Iterable[str | None]) -> str:
    return f"{_format_phrase(words)} {END_MARK}"


def _format_phrase(words: Iterable[str | None]) -> str:
    return " ".join(quote_word(word) for word in words if word is not None)


def _format_phrase_code(words: Iterable[str | None]) -> str:
    return _format_code(_format_phrase(words))


def _format_list(texts: Iterable[str]) -> str:
    return elide_middle(" and ".join(map(_format_code, texts)), TEXT_SHOWN)


def _format_code(text: str) -> str:
    return f"`{elide_middle(escape_controls(drop_surrogates(text)).replace(chr(10), '␊'), TEXT_SHOWN)}`"
