"""What a person is shown of a call of a server's tool: who would run it, and what the server and we say of the tool.

A description is a stranger's words. It is kept without what is secret, and only so much of it: every call that is asked
about takes it into a history.
"""

from __future__ import annotations

import json

from holdfast.activities.mcp.definitions import TITLE_LIMIT, Definition, Judged
from holdfast.activities.mcp.server import Server
from holdfast.approvals import About, Confirmation
from holdfast.content import named, plain, shorten

DESCRIPTION_LIMIT = 4_000
"""Characters of a description; all of it is in `holdfast tools show`."""
HINT_LIMIT = 100


def confirmation(server: Server, definition: Definition, judged: Judged) -> Confirmation:
    """What is shown of a call of this tool. The arguments are shown beside it, once."""
    known = about(server, definition, judged)
    return Confirmation(kind="mcp", title=title_of(server.name, definition), server=server.name, about=known)


def about(server: Server, definition: Definition, judged: Judged) -> About:
    """What the server says of a tool, and what follows from that here."""
    hints = (f"{name} {json.dumps(value)}" for name, value in sorted(definition.annotations.items()))
    return About(
        description=shorten(server.secrets.hide(definition.description), DESCRIPTION_LIMIT),
        effect=judged.effect.value,
        because=judged.because,
        hints=tuple(shorten(hint, HINT_LIMIT) for hint in hints),
    )


def title_of(server: str, definition: Definition) -> str:
    """The server and the tool's own name, and then the title that the server gives it: a stranger's words, which may be
    those of a tool of ours."""
    name = f"{server}/{named(definition.name)}"
    title = shorten(plain(definition.title), TITLE_LIMIT) if definition.title else definition.name
    return name if title == definition.name else f"{name} ({title})"
