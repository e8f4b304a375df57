"""Ids of the turns of a session, and of delegated turns: `<session>~<number>`, `<turn>~<call>`.

A grant given in one of them applies to all (S24). The client refuses such ids for other turns.
"""

from __future__ import annotations

ID_MARK = "~"


def format_session_turn_id(session: str, number: int) -> str:
    """Return the id of a turn of a session."""
    return f"{session}{ID_MARK}{number}"


def parse_session_number(turn: str) -> int:
    """Return the number of a turn in its session; 0 for a turn outside a session."""
    number = turn.rpartition(ID_MARK)[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def format_call_turn_id(turn: str, call: str, run: int = 1) -> str:
    """Return the id of the turn that a call delegates."""
    return f"{turn}{ID_MARK}{call}" if run == 1 else f"{turn}{ID_MARK}{call}-{run}"


def find_family(turn: str) -> str:
    """Return the id that related turns share: that of their session, or of the first turn that delegated."""
    return turn.partition(ID_MARK)[0]
