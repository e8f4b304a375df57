"""Turns that belong together: those of one session, and those that a turn's calls run. Their ids tell.

A grant given in one of them counts in all (S24). Nobody gives a turn such an id from outside.
"""

from __future__ import annotations

MARK = "~"


def turn_of_session(session: str, number: int) -> str:
    """The id of a session's turn."""
    return f"{session}{MARK}{number}"


def number_in_session(turn: str) -> int:
    """The place of a turn among those of its session; 0 of one that is no session's."""
    number = turn.rpartition(MARK)[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def turn_of_call(turn: str, call: str, run: int = 1) -> str:
    """The id of the turn that a call runs."""
    return f"{turn}{MARK}{call}" if run == 1 else f"{turn}{MARK}{call}-{run}"


def family(turn: str) -> str:
    """What the turns of one session have in common; of a turn alone, itself."""
    return turn.partition(MARK)[0]
