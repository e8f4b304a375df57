"""Standing answers: which of them answers a call, and which a question offers, the narrowest first (S24)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from holdfast.activities.policy.commands import Reading
from holdfast.activities.policy.deciding import Ruling
from holdfast.activities.policy.globs import escaped
from holdfast.activities.policy.hosts import host_of
from holdfast.activities.policy.matching import Facts
from holdfast.activities.policy.phrases import END, quoted
from holdfast.activities.policy.scopes import Call, covers, rule_of
from holdfast.activities.policy.subjects import Kind, Subject
from holdfast.activities.shell.knowledge import harmless
from holdfast.activities.shell.model import Program
from holdfast.activities.shell.subcommands import subcommand
from holdfast.content import encodable, ends, visible
from holdfast.grants import Grant
from holdfast.outcomes import Offer, Outcome, Scope

__all__ = ["answerable", "covering", "offers", "rule_of"]

LIMIT = 10_000
"""Characters of a command that a scope repeats; a longer one is known by its digest."""
SHOWN = 500
"""Characters of what is covered."""
EXCEPT = (
    "commands that are known to destroy or to write files, that run an interpreter, a program by its path or as "
    "somebody else (`sudo`), that set variables, or that cannot be read with certainty"
)
"""What an answer for a whole tool leaves out of its commands. `scopes` and `shell.whole_tool` see to it."""


def answerable(ruling: Ruling | None) -> bool:
    """May a standing answer speak where the policy asks so? Not where each call is a matter of its own."""
    return ruling is None or not (ruling.always_ask or ruling.needs.approvals > 1)


def covering(grants: Iterable[Grant], call: Subject | Facts, digest: str, now: datetime) -> Grant | None:
    """The standing answer to a call: the first that refuses it, else the first that allows it."""
    looked_at = Call(call, digest)
    allowing: Grant | None = None
    for grant in grants:
        if (allowing and grant.allows) or not grant.stands(now) or not covers(grant.scope, looked_at, grant.allows):
            continue
        if not grant.allows:
            return grant
        allowing = grant
    return allowing


def offers(subject: Subject, digest: str, ruling: Ruling | None) -> tuple[Offer, ...]:
    """What a person may answer for good. Nothing for a question, or where the policy wants to hear of each call."""
    if subject.kind is Kind.QUESTION or not answerable(ruling):
        return ()
    call = Call(subject, digest)
    narrow = [offer for offer in _narrow(subject, call) if _fits(offer, call)]
    exactly = "exactly this call, with the same arguments"
    if subject.command is not None:
        exactly = "exactly this command as it is written, with the same folder and variables"
    only = Offer(outcome=Outcome.PROCEED_ALWAYS, scope=Scope(digest=digest), covers=exactly)
    return (*(narrow or [only]), *(offer for offer in _wide(subject) if _fits(offer, call)))


def _fits(offer: Offer, call: Call) -> bool:
    """Does it cover the call it is offered for?"""
    return covers(offer.scope, call, True)


def _offer(outcome: Outcome, covers: str, subject: Subject, **scope: Any) -> Iterator[Offer]:
    """An offer, if it can be said at all: names may be too long, or no text."""
    pinned = {"tool": escaped(subject.tool), "server": escaped(subject.server or "")}
    try:
        made = Scope(**{**pinned, **scope})
        made.model_dump_json()
    except (ValidationError, ValueError):
        return
    yield Offer(outcome=outcome, scope=made, covers=covers)


def _narrow(subject: Subject, call: Call) -> Iterator[Offer]:
    always = Outcome.PROCEED_ALWAYS
    if subject.command is not None:
        yield from _of_command(subject, call)
    elif subject.kind is Kind.EDIT and subject.paths:
        paths = tuple(dict.fromkeys(subject.paths))
        words = f"edits of {_listed(paths)} by {_code(subject.tool)}"
        yield from _offer(always, words, subject, path=tuple(map(escaped, paths)))
    elif subject.urls and None not in (hosts := [host_of(url) for url in subject.urls]):
        named = tuple(dict.fromkeys(host for host in hosts if host is not None))
        yield from _offer(always, f"{_code(subject.tool)} from {_listed(named)}", subject, host=named)


def _of_command(subject: Subject, call: Call) -> Iterator[Offer]:
    """Of one program its words, of a chain all of it as it stands; then well-known programs whatever follows."""
    facts = call.understood
    if facts is None or facts.reading is None or subject.sets_variables or len(facts.subject.command or "") > LIMIT:
        return
    place = subject.arguments.get("directory", ".")
    about = {} if place == "." else {"directory": place}
    where = "" if place == "." else f", in the folder {_code(str(place))}"
    programs = [program for program in facts.reading.programs if not program.runner]
    if len(programs) == 1 and _plain(programs[0]):
        words = f"{_told(programs[0].words)}, exactly these words{where}"
        command = (_exact(programs[0].words),)
        yield from _offer(Outcome.PROCEED_ALWAYS, words, subject, command=command, arguments=about)
    else:
        text = facts.subject.command or ""
        words = f"{_code(text)}, exactly as it stands{where}"
        yield from _offer(Outcome.PROCEED_ALWAYS, words, subject, arguments={"command": text, **about})
    if opened := _opened(facts.reading):
        words = f"{opened.told}{where}"
        yield from _offer(Outcome.PROCEED_ALWAYS, words, subject, command=opened.phrases, arguments=about)


@dataclass(frozen=True)
class _Opened:
    phrases: tuple[str, ...]
    told: str


def _opened(reading: Reading) -> _Opened | None:
    """Well-known programs with any further words; beside them harmless ones as they stand. None for all others."""
    open_words = [words for program in reading.programs if (words := subcommand(program))]
    others = [program for program in reading.programs if not subcommand(program)]
    if not open_words or not all(_plain(program) and harmless(program) for program in others):
        return None
    phrases = [*map(_phrase, open_words), *(_exact(program.words) for program in others)]
    opened = " and ".join(dict.fromkeys(_told(words) for words in open_words))
    exact = " and ".join(dict.fromkeys(_told(program.words) for program in others))
    told = f"{opened} with further words that are known to be harmless"
    return _Opened(tuple(dict.fromkeys(phrases)), f"{told}; beside it {exact}, exactly" if exact else told)


def _wide(subject: Subject) -> Iterator[Offer]:
    tool, server = _code(subject.tool), subject.server
    but = "" if subject.command is None else f", but not {EXCEPT}"
    yield from _offer(Outcome.PROCEED_ALWAYS_TOOL, f"every call of {tool}{but}", subject)
    if server is not None:
        words = f"every tool of the server {_code(server)}{but}"
        yield from _offer(Outcome.PROCEED_ALWAYS_SERVER, words, subject, tool=None)


def _plain(program: Program) -> bool:
    return not program.wrappers and not program.assignments and None not in program.words


def _exact(words: Iterable[str | None]) -> str:
    return f"{_phrase(words)} {END}"


def _phrase(words: Iterable[str | None]) -> str:
    return " ".join(quoted(word) for word in words if word is not None)


def _told(words: Iterable[str | None]) -> str:
    return _code(_phrase(words))


def _listed(texts: Iterable[str]) -> str:
    return ends(" and ".join(map(_code, texts)), SHOWN)


def _code(text: str) -> str:
    return f"`{ends(visible(encodable(text)).replace(chr(10), '␊'), SHOWN)}`"
