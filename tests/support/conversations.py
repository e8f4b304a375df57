"""What was said in a session, in lines that can be compared."""

from __future__ import annotations

from temporalio.client import Client

from holdfast import Session, SessionView
from holdfast.domain.conversation.messages import AssistantMessage, ConversationMessage, UserMessage


async def spoken(session: Session) -> list[str]:
    """What was said, in short."""
    return [line(message) async for message in session.fetch_messages()]


def line(message: ConversationMessage) -> str:
    """One message, in short."""
    if isinstance(message, UserMessage):
        return f"user: {message.text}"
    if isinstance(message, AssistantMessage):
        return f"assistant: {message.text}{' ' + ','.join(one.tool for one in message.calls) if message.calls else ''}"
    return f"tool: {'; '.join(response.text for response in message.responses)}"


async def idle(session: Session) -> SessionView | None:
    """Its view, once nothing runs and nothing waits."""
    view = await session.fetch_view()
    return view if view.turn is None and not view.waiting else None


async def runs(client: Client, session: Session, count: int) -> bool:
    """Has it had this many runs?"""
    listed = client.list_workflows(f"WorkflowId = '{session.id}'")
    return len([run async for run in listed]) >= count


async def pending(session: Session) -> SessionView | None:
    """Its view, once something waits for somebody."""
    view = await session.fetch_view()
    return view if view.pending else None
