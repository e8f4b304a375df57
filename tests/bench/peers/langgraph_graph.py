"""LangGraph on Temporal, by its official plugin: the graph of a tool-calling agent, every node an activity.

A node of calls is sent one task per call (`Send`), as the prebuilt agent does, so that calls run side by side.
"""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from serve import serve
from temporalio import workflow
from temporalio.langgraph import LangGraphPlugin, graph
from typing_extensions import TypedDict

IN_ACTIVITY = {"execute_in": "activity", "start_to_close_timeout": timedelta(seconds=60)}


class State(TypedDict):
    """The conversation."""

    count: int
    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    """Calls in the first step, text in the second."""
    if any(message["role"] == "tool" for message in state["messages"]):
        return {"messages": [{"role": "assistant", "content": "done"}]}
    calls = [{"id": f"call-{number}", "name": "nothing", "args": {}} for number in range(state["count"])]
    return {"messages": [{"role": "assistant", "tool_calls": calls}]}


async def tool(call: dict[str, Any]) -> dict[str, Any]:
    """A tool that does nothing."""
    return {"messages": [{"role": "tool", "tool_call_id": call["id"], "content": "done"}]}


async def choose_next(state: State) -> Any:
    """The tools that the model asked for, else the end."""
    calls = state["messages"][-1].get("tool_calls")
    return [Send("tool", call) for call in calls] if calls else END


def build_graph() -> StateGraph[Any, Any, Any, Any]:
    """The agent."""
    built = StateGraph(State)
    built.add_node("model", model, metadata=IN_ACTIVITY)
    built.add_node("tool", tool, metadata=IN_ACTIVITY)
    built.add_edge(START, "model")
    built.add_conditional_edges("model", choose_next, ["tool", END])
    built.add_edge("tool", "model")
    return built


@workflow.defn(name="langgraph")
class AgentTurn:
    """One run of the graph."""

    @workflow.run
    async def run(self, count: int) -> str:
        """What the agent says in the end."""
        start = {"count": count, "messages": [{"role": "user", "content": "go"}]}
        state = await graph("agent").compile().ainvoke(start)
        return str(state["messages"][-1]["content"])


async def main() -> None:
    """Serve."""
    await serve([AgentTurn], [], plugins=[LangGraphPlugin(graphs={"agent": build_graph()})])
