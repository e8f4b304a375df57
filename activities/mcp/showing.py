"""What a person is shown of a call of a server's tool: who would run it, and what the server and we say of the tool.

A description is a stranger's words. It is kept without what is secret, and only so much of it: every call that is asked
about takes it into a history.
"""

from __future__ import annotations

import json

from holdfast.activities.mcp.definitions import TITLE_LIMIT, Definition, EffectJudgement
from holdfast.activities.mcp.server import Server
from holdfast.approvals import Confirmation, ToolNotes
from holdfast.content import format_tool_name, shorten_text, strip_controls

DESCRIPTION_LIMIT = 4_000
"""Characters of a description; all of it is in `holdfast tools show`."""
HINT_LIMIT = 100


def build_tool_confirmation(server: Server, definition: Definition, judged: EffectJudgement) -> Confirmation:
    """What is shown of a call of this tool. The arguments are shown beside it, once."""
    known = build_tool_notes(server, definition, judged)
    return Confirmation(kind="mcp", title=format_title(server.name, definition), server=server.name, about=known)


def build_tool_notes(server: Server, definition: Definition, judged: EffectJudgement) -> ToolNotes:
    """What the server says of a tool, and what follows from that here."""
    hints = (f"{name} {json.dumps(value)}" for name, value in sorted(definition.annotations.items()))
    return ToolNotes(
        description=shorten_text(server.secrets.hide(definition.description), DESCRIPTION_LIMIT),
        effect=judged.effect.value,
        because=judged.because,
        hints=tuple(shorten_text(hint, HINT_LIMIT) for hint in hints),
    )


def format_title(server: str, definition: Definition) -> str:
    """The server and the tool's own name, and then the title that the server gives it: a stranger's words, which may be
    those of a tool of ours."""
    name = f"{server}/{format_tool_name(definition.name)}"
    title = shorten_text(strip_controls(definition.title), TITLE_LIMIT) if definition.title else definition.name
    return name if title == definition.name else f"{name} ({title})"
