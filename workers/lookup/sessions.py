"""Sessions on a server: one by its id, the newest open one, all of them; and their last messages."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from temporalio.client import WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client.client import Holdfast
from holdfast.client.error_mapping import translate_error
from holdfast.client.session import Session
from holdfast.domain.conversation.messages import ConversationMessage
from holdfast.domain.session.session_io import SessionView
from holdfast.errors import BadInput, HoldfastError, RequestRefused, ServerUnavailable, TurnNotFound
from holdfast.names import SESSION_WORKFLOW, TURN_WORKFLOW

CONCURRENT_QUERIES = 20
VIEW_SECONDS = 5.0
"""Time limit for all listed sessions together; of one that has not answered by then only the server's data is shown."""
TAIL_MESSAGES = 6
"""Messages of a session that are shown by default."""
_STATUS_NAMES = {WorkflowExecutionStatus.RUNNING: "open", WorkflowExecutionStatus.COMPLETED: "closed"}


def build_session(holdfast: Holdfast, session_id: str | None) -> Session:
    """A session by its id, or a new one; BadInput for an invalid id."""
    if session_id is not None:
        if any("\ud800" <= character <= "\udfff" for character in session_id):
            raise BadInput("the session's id is not UTF-8 text")
        if not session_id.strip():
            raise BadInput("the session's id is empty: see `holdfast sessions`")
    return holdfast.get_session(session_id)


async def get_session(holdfast: Holdfast, session_id: str) -> Session:
    """An open or closed session; TurnNotFound when there is none with this id."""
    session = build_session(holdfast, session_id)
    await _fetch_description(holdfast, session.id)
    return session


async def session_exists(holdfast: Holdfast, session: Session) -> bool:
    """Whether the session exists. RequestRefused when it was closed."""
    try:
        description = await _fetch_description(holdfast, session.id)
    except TurnNotFound:
        return False
    if description.status is not WorkflowExecutionStatus.RUNNING:
        raise RequestRefused("closed", f"session {session.id!r} was closed: start another")
    return True


async def get_newest_open(holdfast: Holdfast) -> Session:
    """The open session that was started last; HoldfastError when none is open."""
    listing = await _list_workflows(holdfast, f"WorkflowType = '{SESSION_WORKFLOW}' AND ExecutionStatus = 'Running'", 1)
    if not listing:
        raise HoldfastError("no session is open: start one with `holdfast chat`")
    return holdfast.get_session(listing[0].id)


async def fetch_sessions(holdfast: Holdfast, limit: int) -> list[dict[str, Any]]:
    """The newest sessions with their states, as far as these are known within VIEW_SECONDS."""
    query = f"WorkflowType = '{SESSION_WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
    listing = await _list_workflows(holdfast, query, limit)
    views: dict[str, SessionView] = {}
    room = asyncio.Semaphore(CONCURRENT_QUERIES)

    async def fetch_view(session_id: str) -> None:
        async with room:
            with suppress(HoldfastError):
                views[session_id] = await holdfast.get_session(session_id).fetch_view()

    with suppress(TimeoutError):
        async with asyncio.timeout(VIEW_SECONDS):
            await asyncio.gather(*(fetch_view(item.id) for item in listing))
    return [_build_row(item, views.get(item.id)) for item in listing]


async def fetch_last_messages(
    session: Session, most: int | None = TAIL_MESSAGES
) -> tuple[list[ConversationMessage], int]:
    """The last messages, all of them when `most` is None; and how many there are."""
    messages: deque[ConversationMessage] = deque(maxlen=most)
    total = 0
    async for message in session.fetch_messages():
        messages.append(message)
        total += 1
    return list(messages), total


async def _fetch_description(holdfast: Holdfast, session_id: str) -> WorkflowExecutionDescription:
    try:
        description = await holdfast.client.get_workflow_handle(session_id).describe()
    except Exception as error:
        raise translate_error(error, session_id, "session") from error
    if description.workflow_type != SESSION_WORKFLOW:
        what = "a turn" if description.workflow_type == TURN_WORKFLOW else "another workflow"
        raise BadInput(f"{session_id!r} is {what}, not a session: see `holdfast sessions`")
    return description


async def _list_workflows(holdfast: Holdfast, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        return [item async for item in holdfast.client.list_workflows(query, limit=limit)]
    except RPCError as error:
        raise ServerUnavailable(f"the sessions cannot be listed: {error.message}") from error


def _build_row(item: WorkflowExecution, view: SessionView | None) -> dict[str, Any]:
    status = item.status.name.lower() if item.status else "unknown"
    known = _STATUS_NAMES.get(item.status, status) if item.status else status
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
