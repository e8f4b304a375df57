"""How a turn stands or ended, for a person."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.content import Response, plain
from holdfast.turns import TurnResult
from holdfast.views import CallView, TurnView
from holdfast.workers.board import Row
from holdfast.workers.questions import question
from holdfast.workers.render import STYLES, cut, line, prose, rows, state


def turn(view: TurnView) -> Group:
    """How a turn stands."""
    head = Text("turn ")
    head.append(plain(view.id), "bold")
    head.append(": ")
    head.append_text(state(view.result.status if view.result else view.state))
    parts: list[RenderableType] = [head]
    if view.prompt:
        parts.append(Text(f"  {line(view.prompt)}", "dim"))
    if view.result:
        parts += result(view.result)
        return Group(*parts)
    if view.batch:
        parts += [Text(f"batch {view.batch.id}", "dim"), rows(map(_row, view.batch.calls))]
    if view.queued:
        parts.append(Text(f"queued: {', '.join(view.queued)}", "dim"))
    for item in view.approvals:
        parts += [Text(""), Text(plain(item.approval_id), "bold"), question(item)]
    return Group(*parts)


def result(ended: TurnResult) -> list[RenderableType]:
    """How a turn ended: every response, then the answer."""
    parts: list[RenderableType] = []
    if ended.reason:
        parts.append(prose(f"  {line(ended.reason, 1_000)}"))
    for batch in ended.batches:
        parts.append(Text(f"batch {batch.id}: {batch.status}", "dim"))
        parts += [_response(found) for found in batch.responses]
    if ended.text is not None:
        parts += [Text(""), prose(ended.text)]
    return parts


def _row(view: CallView) -> Row:
    return Row(
        call=view.id,
        batch="",
        place=view.place,
        of=view.of,
        tool=line(view.tool, 40),
        status=view.status.value,
        title=view.title,
        error=f"{view.error_type}: {view.error}" if view.error else None,
        stopping=bool(view.stopping) and not view.ended_at,
        started=view.started_at,
        ended=view.ended_at or (datetime.now(UTC) if view.started_at else None),
        tail=view.live_output or "",
    )


def _response(found: Response) -> Text:
    text = cut(f"  {found.call_id:6} {line(found.tool, 24):<15} ")
    text.append(f"{found.status:<10}", STYLES.get(found.status, ""))
    text.append(line(plain(found.text), 160))
    return text
