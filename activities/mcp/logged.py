"""What is wrong with a server, as a log says it: in our words. What the server itself said is withheld."""

from __future__ import annotations

import re

from holdfast.withheld import Redacted

_OWN_WORDS = re.compile(
    r"(it was ended by signal \d+|it (?:ended|exited)[^;:]*|it was not ready within [\d.]+ seconds"
    r"|the connection [^;:]*|it was closed|it cannot be connected|it does not speak the protocol"
    r"|its command is not there|its command may not be run|it lists over [\d,]+ tools)"
)


def redact_problem(problem: str | None) -> Redacted:
    """A server's problem: how it begins, where that is ours."""
    found = _OWN_WORDS.match(problem or "")
    return Redacted(problem, found[0] if found else "")
