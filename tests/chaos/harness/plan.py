"""What is run, and where workers are to die: endless turns from one seed. Pure.

Kinds and points are dealt from decks that are shuffled anew when they are empty, so that every kind of call meets every
point of death soon, and as often as the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import count
from typing import Generic, TypeVar

from holdfast import CallRequest, TurnInput
from holdfast.domain.base import Data
from holdfast.domain.modes import Mode
from holdfast.testing import build_request, script_model

T = TypeVar("T")


class Kind(StrEnum):
    """What a call does outside, and by which counter it is counted."""

    SHELL = "shell"
    """The built-in command: two lines in a file, one at its beginning and one at its end."""
    APPEND = "append"
    """The same by a tool that must run once."""
    POST = "post"
    """A request to a service that counts, once."""
    ROW = "row"
    """A row in a database, once."""
    VERIFIED = "verified"
    """The same, by a tool that finds out whether it happened."""
    KEYED = "keyed"
    """A request that may be repeated: the service goes by the key of the effect."""
    LOOK = "look"
    """Merely reads."""
    LOCAL = "local__append"
    """Two lines in a file, once, by an MCP server that the worker starts."""
    REMOTE = "remote__append"
    """The same by one that is reached over HTTP."""
    REMOTE_KEYED = "remote__keyed"
    """The same, but it may be repeated: that server goes by the key of the effect."""
    WRITE = "write_file"
    EDIT = "edit"


class Point(StrEnum):
    """Where a worker dies by its own hand."""

    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    IN_EFFECT = "in_effect"
    AFTER_EFFECT = "after_effect"
    """Before its result is recorded."""
    AFTER_RESULT = "after_result"
    """Before it is answered."""


REPEATABLE = frozenset({Kind.KEYED, Kind.LOOK, Kind.WRITE, Kind.REMOTE_KEYED})
"""Calls of these have no intent: dying before it means before they begin."""
OF_SERVERS = frozenset({Kind.LOCAL, Kind.REMOTE, Kind.REMOTE_KEYED})
"""Tools of MCP servers."""
_REACHED = {
    Kind.WRITE: (Point.BEFORE_INTENT, Point.AFTER_RESULT),
    Kind.EDIT: (Point.BEFORE_INTENT, Point.AFTER_INTENT, Point.AFTER_EFFECT, Point.AFTER_RESULT),
    Kind.KEYED: (Point.BEFORE_INTENT, Point.IN_EFFECT, Point.AFTER_EFFECT, Point.AFTER_RESULT),
    Kind.LOOK: (Point.BEFORE_INTENT, Point.IN_EFFECT, Point.AFTER_EFFECT, Point.AFTER_RESULT),
    Kind.REMOTE_KEYED: (Point.BEFORE_INTENT, Point.IN_EFFECT, Point.AFTER_RESULT),
}
_LONG = {Kind.VERIFIED: 0.4, Kind.SHELL: 0.25}
"""The share of long calls. Of one that goes on elsewhere `verify` cannot know, and a command may be handed over."""
LONGEST = 4.5
"""Seconds of an effect: longer than a worker that is told to end waits for its commands."""
MOST_DEATHS = 2
"""Planned for one turn. Each costs it seconds, and the others have ended by then."""
MARK = "mark:"
"""What an edit replaces by itself and a plus, so that a second one shows."""


class PlannedCall(Data):
    """One call. `label` is its turn and its id: what it is counted by outside."""

    label: str
    kind: Kind
    seconds: float
    """How long its effect takes."""
    asks: bool
    deaths: tuple[Point, ...] = ()

    @property
    def path(self) -> str:
        """The file that it writes or edits."""
        return f"{self.label}.txt"


class PlannedTurn(Data):
    """One turn."""

    id: str
    mode: Mode
    modelled: bool
    """A model asks for its batches, one after the other."""
    batches: tuple[tuple[PlannedCall, ...], ...]

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        """All of them, in order."""
        return tuple(call for batch in self.batches for call in batch)


def points_of(kind: Kind) -> tuple[Point, ...]:
    """Where a worker can be made to die under such a call."""
    return _REACHED.get(kind, tuple(Point))


def turns(seed: int, deadly: float) -> Iterator[PlannedTurn]:
    """Turns without end, of whose calls so large a share is deadly."""
    chance = random.Random(seed)
    dealer = _Dealer(chance, deadly)
    for number in count(1):
        turn = f"t{number:03}"
        calls: list[PlannedCall] = []
        batches = []
        for batch in range(1, chance.choice((1, 1, 1, 2)) + 1):
            before = len(calls)
            for place in range(1, chance.choice((1, 2, 2, 3)) + 1):
                calls.append(dealer.call(f"{turn}-b{batch}c{place}", calls))
            batches.append(tuple(calls[before:]))
        mode = chance.choice((Mode.DEFAULT, Mode.AUTO_EDIT, Mode.YOLO))
        yield PlannedTurn(id=turn, mode=mode, modelled=chance.random() < 0.3, batches=tuple(batches))


def input_of(turn: PlannedTurn, act: str) -> TurnInput:
    """What starts it; `act` is the command that has an effect, without its label and seconds."""
    batches = [[_request(call, act) for call in batch] for batch in turn.batches]
    if turn.modelled:
        return TurnInput(prompt="go", model=script_model(*batches, "Answered."), mode=turn.mode)
    return TurnInput(batches=tuple(map(tuple, batches)), mode=turn.mode)


class _Deck(Generic[T]):
    def __init__(self, chance: random.Random, cards: Sequence[T]) -> None:
        self._chance = chance
        self._cards = tuple(cards)
        self._left: list[T] = []

    def next(self) -> T:
        if not self._left:
            self._left = self._chance.sample(self._cards, len(self._cards))
        return self._left.pop()


class _Dealer:
    """Every point comes in turn, and at each of them every kind."""

    def __init__(self, chance: random.Random, deadly: float) -> None:
        self._chance = chance
        self._deadly = deadly
        self._kinds = _Deck(chance, list(Kind))
        self._points = _Deck(chance, list(Point))
        self._dying = {point: _Deck(chance, [kind for kind in Kind if point in points_of(kind)]) for point in Point}

    def call(self, label: str, before: Sequence[PlannedCall]) -> PlannedCall:
        """The next one of a turn."""
        chance = self._chance
        most_deaths = MOST_DEATHS - sum(len(call.deaths) for call in before)
        deaths: tuple[Point, ...] = ()
        if most_deaths > 0 and chance.random() < self._deadly:
            point = self._points.next()
            kind = self._dying[point].next()
            deaths = (point, chance.choice(points_of(kind))) if chance.random() < 0.15 else (point,)
        else:
            kind = self._kinds.next()
        long = chance.random() < _LONG.get(kind, 0.1) and all(call.seconds <= 1 for call in before)
        seconds = chance.uniform(2, LONGEST) if long else chance.random() ** 2
        asks = chance.random() < 0.3
        return PlannedCall(label=label, kind=kind, seconds=round(seconds, 2), asks=asks, deaths=deaths[:most_deaths])


def _request(call: PlannedCall, act: str) -> CallRequest:
    match call.kind:
        case Kind.SHELL:
            return build_request("shell", command=f"{act} {call.label} {call.seconds}")
        case Kind.WRITE:
            return build_request("write_file", path=call.path, content=call.label)
        case Kind.EDIT:
            return build_request("edit", path=call.path, old_text=MARK, new_text=f"{MARK}+")
    if call.kind in OF_SERVERS:
        return build_request(call.kind.value, label=call.label, seconds=call.seconds)
    return build_request(call.kind.value, label=call.label, seconds=call.seconds, asks=call.asks)
