"""Turns that belong together: those of one session, and those that a turn's calls run. Their ids tell.

A grant given in one of them counts in all (S24). Nobody gives a turn such an id from outside.
"""

from __future__ import annotations

ID_MARK = "~"


def format_session_turn_id(session: str, number: int) -> str:
    """The id of a session's turn."""
    return f"{session}{ID_MARK}{number}"


def parse_session_number(turn: str) -> int:
    """The place of a turn among those of its session; 0 of one that is no session's."""
    number = turn.rpartition(ID_MARK)[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def format_call_turn_id(turn: str, call: str, run: int = 1) -> str:
    """The id of the turn that a call runs."""
    return f"{turn}{ID_MARK}{call}" if run == 1 else f"{turn}{ID_MARK}{call}-{run}"


def find_family(turn: str) -> str:
    """What the turns of one session have in common; of a turn alone, itself."""
    return turn.partition(ID_MARK)[0]
