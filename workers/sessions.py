"""Sessions as the server knows them: one by its id, the newest that is open, all of them. And their last messages."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client import Holdfast, Session
from holdfast.conversations import ConversationMessage
from holdfast.errors import BadInput, HoldfastError, RequestRefused, ServerUnavailable, TurnNotFound
from holdfast.sessions import SESSION, SessionView
from holdfast.translating import translated
from holdfast.turns import WORKFLOW

AT_ONCE = 20
SECONDS = 5.0
"""For all listed sessions together; what has not answered by then is told as far as the server knows it."""
TAIL = 6
"""Messages that are shown of a session, unless somebody asks for all."""
_NAMES = {WorkflowExecutionStatus.RUNNING: "open", WorkflowExecutionStatus.COMPLETED: "closed"}


def session_of(holdfast: Holdfast, session_id: str | None) -> Session:
    """A session by its id, or a new one; BadInput for what is no id."""
    if session_id is not None:
        if any("\ud800" <= character <= "\udfff" for character in session_id):
            raise BadInput("the session's id is not UTF-8 text")
        if not session_id.strip():
            raise BadInput("the session's id is empty: see `holdfast sessions`")
    return holdfast.session(session_id)


async def found(holdfast: Holdfast, session_id: str) -> Session:
    """A session that is there, or was; TurnNotFound when there is none."""
    session = session_of(holdfast, session_id)
    await _described(holdfast, session.id)
    return session


async def exists(holdfast: Holdfast, session: Session) -> bool:
    """Is it there? RequestRefused when it was closed."""
    try:
        description = await _described(holdfast, session.id)
    except TurnNotFound:
        return False
    if description.status is not WorkflowExecutionStatus.RUNNING:
        raise RequestRefused("closed", f"session {session.id!r} was closed: start another")
    return True


async def newest_open(holdfast: Holdfast) -> Session:
    """The session that began last and is open; HoldfastError when none is."""
    listing = await _listing(holdfast, f"WorkflowType = '{SESSION}' AND ExecutionStatus = 'Running'", 1)
    if not listing:
        raise HoldfastError("no session is open: begin one with `holdfast chat`")
    return holdfast.session(listing[0].id)


async def listed(holdfast: Holdfast, limit: int) -> list[dict[str, Any]]:
    """The newest sessions, each as it stands, as far as that can be told soon."""
    query = f"WorkflowType = '{SESSION}' AND ExecutionStatus != 'ContinuedAsNew'"
    listing = await _listing(holdfast, query, limit)
    views: dict[str, SessionView] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def look(session_id: str) -> None:
        async with room:
            with suppress(HoldfastError):
                views[session_id] = await holdfast.session(session_id).view()

    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(look(item.id) for item in listing))
    return [_row(item, views.get(item.id)) for item in listing]


async def last_messages(session: Session, most: int | None = TAIL) -> tuple[list[ConversationMessage], int]:
    """The last of what was said, and how much there is; all of it when `most` is None."""
    kept: deque[ConversationMessage] = deque(maxlen=most)
    total = 0
    async for message in session.messages():
        kept.append(message)
        total += 1
    return list(kept), total


async def _described(holdfast: Holdfast, session_id: str) -> WorkflowExecutionDescription:
    try:
        description = await holdfast.client.get_workflow_handle(session_id).describe()
    except Exception as error:
        raise translated(error, session_id, "session") from error
    if description.workflow_type != SESSION:
        what = "a turn" if description.workflow_type == WORKFLOW else "another workflow"
        raise BadInput(f"{session_id!r} is {what}, and no session: see `holdfast sessions`")
    return description


async def _listing(holdfast: Holdfast, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        return [item async for item in holdfast.client.list_workflows(query, limit=limit)]
    except RPCError as error:
        raise ServerUnavailable(f"the sessions cannot be listed: {error.message}") from error


def _row(item: WorkflowExecution, view: SessionView | None) -> dict[str, Any]:
    status = item.status.name.lower() if item.status else "unknown"
    known = _NAMES.get(item.status, status) if item.status else status
    if view and known == "open":
        known = view.doing
    return {
        "id": item.id,
        "status": known,
        "turns": view.turns if view else None,
        "model": view.model if view else None,
        "started": item.start_time.isoformat(timespec="seconds"),
        "ended": item.close_time.isoformat(timespec="seconds") if item.close_time else None,
    }
